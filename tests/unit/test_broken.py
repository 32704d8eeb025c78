"""What `make broken` breaks still stands in the source, and the page has a line for each of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from tests.broken.__main__ import noticed
from tests.broken.mutation import MUTATIONS, STORM, Change, Mutation
from tests.broken.tree import Tree
from tests.broken.trial import Case, Verdict, cases_in, reason, telling
from tests.services.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "proof.md"
CERTAIN = "tests/unit/test_retry.py::test_an_expired_message_is_stale"


class Line(NamedTuple):
    """A line of the page's table."""

    guarantees: tuple[int, ...]
    words: str
    files: frozenset[str]
    """Of the tests that failed."""


def lines_of_the_page() -> Iterator[Line]:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Broken on purpose\n")[2]
    for row in re.findall(r"^\| (\d.*) \|$", section.partition("\n## ")[0], re.MULTILINE):
        guarantees, words, failed = row.split(" | ")
        files = set(re.findall(r"`(tests/[\w/]+\.py)`", failed))
        if re.search(r"\bstorm\b", failed):
            files.add(STORM)
        yield Line(tuple(map(int, re.findall(r"\d", guarantees))), words, frozenset(files))


# The list


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.words)
def test_what_is_to_be_broken_stands_once_in_its_file_and_breaks_no_syntax(
    mutation: Mutation,
) -> None:
    for file, text in mutation.made_in(ROOT).items():
        before = (ROOT / file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(before))


def test_the_page_has_a_line_for_each_and_no_other() -> None:
    ours = [Line(each.guarantees, each.words, each.files) for each in MUTATIONS]
    assert list(lines_of_the_page()) == ours


def test_every_guarantee_is_broken() -> None:
    assert {number for each in MUTATIONS for number in each.guarantees} == {*range(1, 8)}


def test_every_test_that_must_notice_is_there() -> None:
    for test in {test for each in MUTATIONS for test in each.tests}:
        file, _, name = test.partition("::")
        code = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}" in code, test


def test_what_stands_there_twice_is_not_broken() -> None:
    change = Change("src/redrive/x.py", "a()", "b()")
    assert change.made_in("a()\n") == "b()\n"
    for text in ("c()\n", "a()\na()\n"):
        with pytest.raises(ValueError, match=r"src/redrive/x\.py"):
            change.made_in(text)


def test_a_word_chooses_the_lines_that_have_it() -> None:
    (chosen,) = (each for each in MUTATIONS if each.is_meant_by(["Policies", "test_run"]))
    assert chosen.words == "the retrier consumes before it has read the policies"
    assert all(each.is_meant_by([]) for each in MUTATIONS)


# The copy


def test_what_is_broken_is_what_every_process_of_the_copy_runs(tmp_path: Path) -> None:
    tree, file = Tree(tmp_path), "src/redrive/domain/retry.py"
    change = Change(file, "failed.attempt >= policy.max_retries", "True")
    broken = Mutation(guarantees=(1,), words="all", changes=(change,), tests=(CERTAIN,))
    before = (ROOT / file).read_bytes()
    with tree.broken(broken):  # which asks one
        assert b"if True:" in (tree.root / file).read_bytes()
        assert (ROOT / file).read_bytes() == before
    assert (tree.root / file).read_bytes() == before


# The verdict


REPORT = """\
<testsuites><testsuite>
  <testcase file="tests/a.py" name="test_one[x]"/>
  <testcase file="tests/a.py" name="test_one[y]"><failure message="one &lt; two&#10;"/></testcase>
  <testcase file="tests/a.py" name="test_one_more"/>
  <testcase file="tests/b.py" name="test_two"><error message="no broker"/></testcase>
</testsuite></testsuites>
"""


def test_a_test_has_noticed_if_one_of_its_cases_failed_and_not_if_it_could_not_run() -> None:
    cases = list(cases_in(REPORT.encode()))
    told = {
        test: telling(test, cases)
        for test in ("tests/a.py::test_one", "tests/a.py::test_one[x]", "tests/a.py", "tests/b.py")
    }
    assert [each.verdict for each in told.values()] == [
        Verdict.FAILED,
        Verdict.PASSED,
        Verdict.FAILED,
        Verdict.COULD_NOT_RUN,
    ]
    assert told["tests/a.py::test_one"].why == "one < two"
    assert told["tests/b.py"].why == "no broker"
    assert telling("tests/c.py", cases).verdict is Verdict.COULD_NOT_RUN


def test_of_a_storm_what_was_wrong_is_told() -> None:
    failure = ET.Element("failure", message="AssertionError: storm of seed 3\n[+28 more lines]")
    failure.text = "E       AssertionError: storm of seed 3\nE         lost: 12\n"
    assert reason(failure) == "AssertionError: storm of seed 3"
    failure.text += "E         problems: 12\nE           m-1 is lost\nE           m-2 is lost\n"
    assert reason(failure) == "12 problems, the first: m-1 is lost"
    assert reason(ET.Element("failure")) == "no word"


@pytest.mark.parametrize(
    ("certain", "storm", "is_noticed"),
    [
        (Verdict.FAILED, Verdict.FAILED, True),
        (Verdict.FAILED, Verdict.PASSED, True),
        (Verdict.PASSED, Verdict.FAILED, False),
        (Verdict.COULD_NOT_RUN, Verdict.FAILED, False),
        (None, Verdict.FAILED, True),
        (None, Verdict.PASSED, False),
    ],
)
def test_the_storm_has_to_notice_only_what_no_other_test_does(
    certain: Verdict | None, storm: Verdict, is_noticed: bool
) -> None:
    cases = [] if certain is None else [Case(CERTAIN, certain)]
    assert noticed([*cases, Case(f"{STORM}::test_in_a_storm", storm)]) is is_noticed
