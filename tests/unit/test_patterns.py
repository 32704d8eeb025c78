"""Patterns must mean the same to every Python that Redrive runs on: letters of one failure are one
group whichever process collected them.
"""

from __future__ import annotations

import re
from pathlib import Path

import redrive

_POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")


def test_no_group_is_repeated_possessively() -> None:
    """Python before 3.11.5 goes back into such a group (`(?:ab?)*+`). Write `(?>(?:ab?)*)`."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(Path(redrive.__file__).parent.rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if _POSSESSIVE_GROUP.search(line)
    ]
    assert found == []
