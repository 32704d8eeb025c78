"""The pages of the documentation as somebody reads them who types what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def blocks_in(page: Path) -> list[tuple[str, str]]:
    """The code blocks of a page: the language, if it says one, and the text."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands_in(page: Path) -> list[list[str]]:
    """The lines of a page's code blocks that run `redrive`, in words; what is only sketched with
    an ellipsis, brackets or a pipe inside a word is left out."""
    found = []
    for kind, block in blocks_in(page):
        if kind not in ("", "sh", "bash", "console"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            bare = line.strip().removeprefix("$ ")
            if not bare.startswith("redrive ") or re.search(r"[…\[{]|\w\|\w", bare):
                continue
            words = shlex.split(bare, comments=True)
            ends = [number for number, word in enumerate(words) if word in ("|", ">", "&&", "<")]
            found.append(words[1 : ends[0] if ends else None])
    return found
