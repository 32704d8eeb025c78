"""What a mutation is: a text of the source, what stands there instead, and who must notice.

All of them are in mutations.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STORM: Final = "tests/faults/test_storm.py"
"""It is by chance what a short storm hits: where it does not notice, another test may."""


@dataclass(frozen=True, slots=True)
class Change:
    """A text of a file, and what stands there instead."""

    file: str
    """From the root of the repository."""
    old: str
    """It occurs exactly once."""
    new: str

    def made_in(self, text: str) -> str:
        """The file's text with the change; `ValueError` if it is not clear where."""
        times = text.count(self.old)
        if times != 1:
            raise ValueError(
                f"{self.file} has {times} times what is to be broken, not once:\n{self.old}"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A guarantee's code, broken in one way."""

    guarantees: tuple[int, ...]
    words: str
    """What is broken, as the table in docs/explanation/proof.md says it."""
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    """Those that must notice: files, or tests as pytest names them."""

    @property
    def certain(self) -> tuple[str, ...]:
        """The tests that do not depend on chance."""
        return tuple(test for test in self.tests if test != STORM)

    @property
    def has_storm(self) -> bool:
        return STORM in self.tests

    @property
    def files(self) -> frozenset[str]:
        """The files of its tests."""
        return frozenset(test.partition("::")[0] for test in self.tests)

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.guarantees))}  {self.words}"

    def is_meant_by(self, words: Sequence[str]) -> bool:
        """Whether each of the words is in its line, or in the name of a file or a test of it."""
        changed = (change.file for change in self.changes)
        line = " ".join((str(self), *changed, *self.tests)).lower()
        return all(word.lower() in line for word in words)

    def made_in(self, root: Path) -> dict[str, str]:
        """The files that it changes in a tree, by their names, each with its new text."""
        texts: dict[str, str] = {}
        for change in self.changes:
            if change.file not in texts:
                texts[change.file] = (root / change.file).read_text(encoding="utf-8")
            texts[change.file] = change.made_in(texts[change.file])
        return texts


def _all() -> tuple[Mutation, ...]:
    with Path(__file__).with_name("mutations.toml").open("rb") as file:
        listed = tomllib.load(file)["mutation"]
    return tuple(
        Mutation(
            guarantees=tuple(each["guarantees"]),
            words=each["words"],
            changes=tuple(Change(**change) for change in each["changes"]),
            tests=tuple(each["tests"]),
        )
        for each in listed
    )


MUTATIONS: Final = _all()
