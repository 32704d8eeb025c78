"""Globs of queue names: `*` is any text, dots too, `?` one character; nothing else is special."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def is_glob(text: str) -> bool:
    """Whether a text is a pattern, and not a name."""
    return "*" in text or "?" in text


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern means, in their order."""
    matches = _compiled(pattern).fullmatch
    return [name for name in names if matches(name)]


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    first, *others = pattern.split("*")
    parts = [_piece(first)]
    if others:
        *between, last = others
        # Each piece is taken where it comes first, for good: nothing is gained by another place,
        # and trying all of them takes seconds for three stars and a long text.
        parts += [f"(?>.*?{_piece(each)})" for each in between if each]
        parts.append(".*" + _piece(last))
    return re.compile("".join(parts), re.DOTALL)


def _piece(text: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in text)


def wildcards(pattern: str) -> str:
    """The wildcards of a pattern, in their order."""
    return "".join(character for character in pattern if character in "*?")


def translated(pattern: str, name: str, target: str) -> str:
    """The name that `target` makes of a name that the pattern means: `dlq.*` and `dead.*` make
    `dead.orders` of `dlq.orders`. Both must have the same wildcards; without any, the target."""
    if not is_glob(target):
        return target
    found = _capturing(pattern).fullmatch(name)
    if found is None or wildcards(pattern) != wildcards(target):
        raise ValueError(f"{target!r} does not fit {pattern!r}")
    parts = iter(found.groups())
    return "".join(next(parts) if character in "*?" else character for character in target)


@lru_cache(maxsize=1024)
def _capturing(pattern: str) -> re.Pattern[str]:
    parts = [{"*": "(.*)", "?": "(.)"}.get(each) or re.escape(each) for each in pattern]
    return re.compile("".join(parts), re.DOTALL)
