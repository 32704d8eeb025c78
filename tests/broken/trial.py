"""Tests that are run in a copy of the code, and what became of each.

A test has noticed something if it failed. One that could not run (a server did not start, the code
cannot be imported) has not, and nor has one that was not found.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from redrive.broker.processes import GuardedProcess
from tests.broken.tree import Tree

_WITHIN: Final = 900.0
"""Seconds that the tests of one mutation have; each of them ends by its own limit before that."""
_LOOK_EVERY: Final = 0.2
_LAST_WORDS: Final = 25
"""Lines of what pytest said that are shown where a test could not run."""
_LONGEST: Final = 200
"""Characters of a storm's problem: of a duplicate it tells all hands that it was in."""
_STORMS_LIST: Final = re.compile(r"^E +problems: ([1-9]\d*)\nE +(.+)$", re.MULTILINE)


class Verdict(Enum):
    """What became of a test."""

    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_RUN = "could not run"


@dataclass(frozen=True, slots=True)
class Case:
    """One test that ran, as pytest reports it."""

    name: str
    verdict: Verdict
    why: str = ""

    def is_of(self, test: str) -> bool:
        """Whether it is this test, or one of those of this file."""
        return self.name == test or self.name.startswith((f"{test}::", f"{test}["))


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of the tests that were asked for."""

    cases: dict[str, Case]
    """By test: the case that tells most."""
    seconds: float
    output: str
    """The last that pytest said."""

    def all(self, verdict: Verdict) -> bool:
        return all(case.verdict is verdict for case in self.cases.values())


def try_tests(tree: Tree, tests: Sequence[str]) -> Trial:
    """Run tests in the tree, one after the other."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=tree.root) as folder:
        report, output = Path(folder, "report.xml"), Path(folder, "output")
        words = ["-n", "0", "-p", "no:cacheprovider", "-o", "junit_family=xunit1"]
        process = GuardedProcess(
            [str(tree.python), "-m", "pytest", *words, f"--junitxml={report}", *tests],
            env=tree.environment,
            cwd=tree.root,
            output=output,
        )
        try:
            while process.alive and time.monotonic() < began + _WITHIN:
                time.sleep(_LOOK_EVERY)
        finally:
            process.kill()
        cases = list(cases_in(report.read_bytes())) if report.exists() else []
        said = output.read_text(encoding="utf-8", errors="replace").splitlines()
    found = {test: telling(test, cases) for test in tests}
    return Trial(found, time.monotonic() - began, "\n".join(said[-_LAST_WORDS:]))


def cases_in(report: bytes) -> Iterator[Case]:
    """What a report of pytest's tells, in its XML."""
    for case in ET.fromstring(report).iter("testcase"):
        name = f"{case.get('file')}::{case.get('name')}"
        failure, error = case.find("failure"), case.find("error")
        if failure is not None:
            yield Case(name, Verdict.FAILED, reason(failure))
        elif error is not None:
            yield Case(name, Verdict.COULD_NOT_RUN, reason(error))
        elif case.find("skipped") is not None:
            yield Case(name, Verdict.COULD_NOT_RUN, "it was skipped")
        else:
            yield Case(name, Verdict.PASSED)


def telling(test: str, cases: Iterable[Case]) -> Case:
    """Of the cases of a test, one that failed; else one that could not run, or one that passed."""
    of_it = [case for case in cases if case.is_of(test)]
    for verdict in (Verdict.FAILED, Verdict.COULD_NOT_RUN, Verdict.PASSED):
        for case in of_it:
            if case.verdict is verdict:
                return case
    return Case(test, Verdict.COULD_NOT_RUN, "it did not come to it")


def reason(failure: ET.Element) -> str:
    """What a failure says, in a line; of a storm's accounts, what is wrong in them first."""
    if of_a_storm := _STORMS_LIST.search(failure.text or ""):
        number, first = of_a_storm.groups()
        return f"{number} problems, the first: {first[:_LONGEST]}"
    return failure.get("message", "").strip().partition("\n")[0] or "no word"
