"""The pages of the documentation as somebody reads them who types what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def blocks_in(page: Path) -> list[tuple[str, str]]:
    """The code blocks of a page: the language, if it says one, and the text."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """A line that runs `redrive`."""

    words: list[str]
    variables: dict[str, str]
    """What it sets before the command."""


def lines_in(page: Path) -> Iterator[str]:
    """The lines of a page's code blocks that may be typed."""
    for kind, block in blocks_in(page):
        if kind in ("", "sh", "bash", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                yield line.strip().removeprefix("$ ")


def commands_in(page: Path) -> list[Typed]:
    """The lines that run `redrive`; what is only sketched with an ellipsis, brackets or a pipe
    inside a word is left out."""
    found = []
    for line in lines_in(page):
        command = re.match(r"((?:[A-Z_]+=\S* )*)redrive (.+)", line)
        if command is None or re.search(r"[…\[{]|\w\|\w", line):
            continue
        variables = dict(each.split("=", 1) for each in shlex.split(command[1]))
        words = shlex.split(command[2], comments=True)
        ends = [number for number, word in enumerate(words) if word in ("|", ">", "&&", "<")]
        found.append(Typed(words[: ends[0] if ends else None], variables))
    return found
