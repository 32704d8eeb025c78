"""Java's properties format, and the policies in such a file: `redrive.policy.<routing key>=N`.

Guarantees: a file that Java reads is read with the same keys and values: comments (`#`, `!`), the
separators `=`, `:` and blanks, backslash escapes with `\\uXXXX`, lines that go on after a
backslash, every kind of line end. Text is UTF-8, and ISO-8859-1 where it is not valid UTF-8. Other
keys are of no concern: the file may be an application's own. Of a key that stands twice the last
counts, as in Java. A policy that is no whole number is a problem with its line; the others count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from redrive.domain.policy import MOST_RETRIES, Policy, PolicyProblem

PREFIX: Final = "redrive.policy."

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_BLANKS: Final = " \t\f"
# A key ends at the first separator that has no backslash before it.
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NUMBER: Final = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Property:
    """A key and its value, and the line where the key begins."""

    key: str
    value: str
    line: int


def decode_properties(content: bytes) -> str:
    """The text of a file, in either of the encodings that Java has used."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("iso-8859-1")


def parse_properties(text: str) -> Iterator[Property]:
    """Every key and value, in the order of the file."""
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # it also matches nothing
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        yield Property(_unescape(key[0]), _unescape(line[separator.end() :]), number)


def read_policies(text: str) -> tuple[list[Policy], list[PolicyProblem]]:
    """The policies of a file, and what was left out."""
    policies: dict[str, Policy] = {}
    problems: list[PolicyProblem] = []
    for found in parse_properties(text):
        if not found.key.startswith(PREFIX):
            continue
        name, value = found.key.removeprefix(PREFIX), found.value.strip()
        reason = _objection(name, value)
        if reason:
            problems.append(
                PolicyProblem(
                    source="properties", place=f"line {found.line}", name=name, reason=reason
                )
            )
        else:
            policies.pop(name, None)
            policies[name] = Policy(name=name, max_retries=int(value), source="properties")
    return list(policies.values()), problems


def _objection(name: str, value: str) -> str:
    if not name:
        return f"is no routing key: expected {PREFIX}<routing key>"
    if not _NUMBER.fullmatch(value) or int(value) > MOST_RETRIES:
        shown = value if len(value) <= 40 else value[:40] + "…"
        return f"has {shown!r}: expected a whole number from 0 to {MOST_RETRIES}"
    return ""


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks at their beginning; continued ones are joined."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, natural in lines:
        line = natural.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        while _goes_on(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(_BLANKS)
        yield number, line


def _goes_on(line: str) -> bool:
    """An odd number of backslashes at the end: the last one is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _CONTROL.get(escaped, escaped)

    if "\\" not in text:
        return text
    # Java's \u escapes are halves of characters beyond the first 65,536.
    halves = _ESCAPE.sub(replaced, text)
    return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
