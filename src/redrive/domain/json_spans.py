"""Where the parts of a JSON text are, so that one can be changed and the rest left as it is.

A text goes through `require_json` once; every other function takes it for granted that it is JSON.
Nothing here makes a value of a text and a text of it again: `1.10`, `1e400`, integers of any size,
repeated keys, the order of keys and white space are never looked at, and so never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR: Final = re.compile(r"[-+.0-9A-Za-z]+")
_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of an object or an array."""

    key: Span | None
    """With its quotes; None in an array."""
    value: Span

    @property
    def start(self) -> int:
        return self.value.start if self.key is None else self.key.start

    @property
    def end(self) -> int:
        return self.value.end


def require_json(text: str) -> None:
    """`ValueError` with the reason if a text is not JSON. Numbers may be of any size."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(why_no_json(error)) from None


def why_no_json(error: json.JSONDecodeError) -> str:
    """The reason and the place, and nothing of the text."""
    place = f"line {error.lineno}, column {error.colno}"
    return f"is no JSON: {error.msg[:1].lower()}{error.msg[1:]} at {place}"


def _refuse(word: str) -> Any:
    raise ValueError(f"is no JSON: it has no {word}")


def whole(text: str) -> Span:
    """The value of a text, without the white space around it."""
    start = after_blank(text, 0)
    return Span(start, _value_end(text, start))


def members(text: str, span: Span) -> Iterator[Member]:
    """The entries of the object or array at `span`, in order; none of another value."""
    opening = text[span.start]
    if opening not in "{[":
        return
    position = after_blank(text, span.start + 1)
    while text[position] not in "}]":
        key = None
        if opening == "{":
            key = Span(position, _string_end(text, position))
            colon = after_blank(text, key.end)
            position = after_blank(text, colon + 1)
        value = Span(position, _value_end(text, position))
        yield Member(key, value)
        position = after_blank(text, value.end)
        if text[position] == ",":
            position = after_blank(text, position + 1)


def key_of(text: str, member: Member) -> str:
    """What the key of an object's entry says, its escapes undone."""
    assert member.key is not None
    key: str = json.loads(member.key.of(text))
    return key


def after_blank(text: str, position: int) -> int:
    """The first place from `position` on that is not white space."""
    found = _BLANK.match(text, position)
    assert found is not None  # it also matches nothing
    return found.end()


def _value_end(text: str, start: int) -> int:
    if text[start] == '"':
        return _string_end(text, start)
    if text[start] not in "{[":
        found = _SCALAR.match(text, start)
        assert found is not None
        return found.end()
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        mark = bracket[0]
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if not depth:
                return bracket.end()
    raise AssertionError("a bracket without its end is no JSON")


def _string_end(text: str, start: int) -> int:
    found = _STRING.match(text, start)
    assert found is not None
    return found.end()
