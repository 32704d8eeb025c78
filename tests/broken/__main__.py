"""`python -m tests.broken [WORD...] [--quick]`: what `make broken` runs.

First the tests are run in a copy of the code as it is: one that fails there tells nothing. Then
each mutation is made in the copy and its tests are run: first all that do not depend on chance,
then the storms. Exits 1 if a mutation was not noticed, or could not be tried.

Every test that does not depend on chance must notice. The storm has to only where there is no such
test; else it is said if it did not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from redrive.broker.processes import remove_at_exit
from tests.broken.mutation import MUTATIONS, STORM, Mutation
from tests.broken.tree import Tree
from tests.broken.trial import Case, Trial, Verdict, try_tests


def main() -> int:
    """Try what was chosen; 1 if something was not noticed."""
    parser = argparse.ArgumentParser(prog="make broken")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only lines with all these words")
    parser.add_argument("--quick", action="store_true", help="leave the storm out")
    chosen = parser.parse_args()
    mutations = [each for each in MUTATIONS if each.is_meant_by(chosen.words)]
    certain = [each for each in mutations if each.certain]
    stormy = [] if chosen.quick else [each for each in mutations if each.has_storm]
    if not certain and not stormy:
        parser.error(f"nothing is broken by the words {' '.join(chosen.words)}")
    folder = Path(tempfile.mkdtemp(prefix="redrive-broken-"))
    remove_at_exit(folder)
    try:
        return 0 if Trials(Tree(folder)).run(certain, stormy) else 1
    except KeyboardInterrupt:
        return 130


class Trials:
    """All that was chosen, one after the other."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._cases: dict[Mutation, list[Case]] = defaultdict(list)

    def run(self, certain: Sequence[Mutation], stormy: Sequence[Mutation]) -> bool:
        """Whether every mutation was noticed."""
        tests = sorted({test for each in certain for test in each.certain})
        if tests and not self._pass_as_it_is(tests):
            return False
        for each in certain:
            self._break(each, each.certain)
        if stormy:
            if not self._pass_as_it_is([STORM]):
                return False
            for each in stormy:
                self._break(each, [STORM])
        return self._conclude()

    def _pass_as_it_is(self, tests: Sequence[str]) -> bool:
        trial = try_tests(self._tree, tests)
        if trial.all(Verdict.PASSED):
            say(f"as it is, all pass: {len(tests)} in {trial.seconds:.0f} s\n")
            return True
        say("as it is, without anything broken:")
        self._tell(trial)
        return False

    def _break(self, mutation: Mutation, tests: Sequence[str]) -> None:
        with self._tree.broken(mutation):
            trial = try_tests(self._tree, tests)
        say(f"{mutation}  ({trial.seconds:.0f} s)")
        self._tell(trial)
        self._cases[mutation] += trial.cases.values()

    def _tell(self, trial: Trial) -> None:
        for test, case in trial.cases.items():
            say(f"    {case.verdict.value}: {test}{': ' if case.why else ''}{case.why}")
        if not trial.all(Verdict.FAILED) and not trial.all(Verdict.PASSED):
            say(trial.output)

    def _conclude(self) -> bool:
        unnoticed = [each for each, cases in self._cases.items() if not noticed(cases)]
        say(f"\n{len(self._cases)} broken, {len(self._cases) - len(unnoticed)} noticed")
        for each in unnoticed:
            say(f"NOT NOTICED  {each}")
        return not unnoticed


def noticed(cases: Sequence[Case]) -> bool:
    """Whether a mutation was noticed by all that must, given what became of its tests."""
    certain = [case for case in cases if not case.is_of(STORM)]
    return all(case.verdict is Verdict.FAILED for case in certain or cases)


def say(line: str) -> None:
    """A line of the report, at once."""
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
