"""The pages of the documentation as somebody reads them who types what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BESIDE: Final = tuple(
    ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "console/README.md")
)
"""What is written for those who work on Redrive, or look back."""

_FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r'\]\(([^)\s]+)(?:\s+"[^"]*")?\)|\b(?:href|src|srcset)="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Link:
    """A link or an image of a page that leads into the repository."""

    page: Path
    target: str
    """As the page has it."""

    @property
    def path(self) -> Path:
        name = self.target.partition("#")[0]
        return (self.page.parent / name).resolve() if name else self.page

    @property
    def anchor(self) -> str:
        return self.target.partition("#")[2]

    @property
    def leads_somewhere(self) -> bool:
        if not self.path.is_relative_to(ROOT) or not self.path.exists():
            return False
        return not self.anchor or self.anchor in anchors_of(self.path)


def links_in(page: Path) -> list[Link]:
    """Links, images and the other pictures of a `<picture>`, without what is on other hosts."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    targets = (linked or shown for linked, shown in _LINK.findall(text))
    return [Link(page, target) for target in targets if not re.match(r"[a-z]+:", target)]


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """What `#…` may name in a page, as GitHub makes it of its headings. A second heading of the
    same words gets a number."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    anchors = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        before = found.get(anchor, 0)
        found[anchor] = before + 1
        anchors.add(f"{anchor}-{before}" if before else anchor)
    return frozenset(anchors)


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
