"""A body as people can read it: content encodings undone, then JSON, text or bytes.

For display only: nothing that is decoded here is stored or sent. Nothing raises. Data that is not
what it says to be is given as it was stored, with `problem` saying why; what would unfold to more
than 16 MiB counts as that, so that a small body cannot fill the memory.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from redrive.amqp.encodings import encodings_of, is_charset, undone
from redrive.domain.json_spans import why_no_json

DEEPEST_JSON: Final = 100
"""JSON that is nested deeper is shown as text: readers and writers of it recurse."""

_JSON_TYPE: Final = re.compile(r"\s*[^;\s]*[/+]json\s*(;|$)", re.IGNORECASE)
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
# What makes a terminal do things, or shows that this is no text.
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


class Kind(StrEnum):
    """What a body turned out to be."""

    EMPTY = "empty"
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A body, understood as far as it could be."""

    kind: Kind
    content: bytes
    """Without its content encodings; as it was stored where they could not be undone."""
    text: str | None
    """None if it is binary."""
    document: Any = None
    """The parsed JSON; None if it is none."""
    repeats_keys: bool = False
    """Whether the JSON has a key twice in one object: the document has the last, the text both."""
    undone: tuple[str, ...] = ()
    """The content encodings that were undone, the outermost first."""
    problem: str | None = None
    """Why a content encoding could not be undone."""
    content_type: str | None = None
    """As the message has it."""

    @property
    def may_be_json(self) -> bool:
        """Whether it says to be JSON or begins like it; or nothing tells that it is none."""
        if self.kind is Kind.EMPTY:
            return False
        if self.kind is Kind.JSON or "json" in (self.content_type or "").partition(";")[0].lower():
            return True
        # A charset that is not said, or said wrongly, hides the beginning from the text.
        detected = self.content.decode(json.detect_encoding(self.content), "ignore")
        begins = any(
            text.lstrip("\ufeff \t\r\n").startswith(("{", "["))
            for text in (self.text or "", detected)
        )
        return begins or (self.problem is not None and self.content_type is None)


def decode_body(body: bytes, content_type: str | None, content_encoding: str | None) -> Decoded:
    """Understand a body by what its properties say of it, and by itself."""
    encodings, charset = encodings_of(content_encoding)
    content, names, problem = undone(body, encodings)
    if problem:
        content, names = body, ()
    declared = _CHARSET.search(content_type or "")
    text = _text(content, declared[1] if declared else charset, content_type)
    kind, document, repeats = _understand(content, text, content_type)
    return Decoded(
        kind=kind,
        content=content,
        text=None if kind is Kind.BINARY else text or "",
        document=document,
        repeats_keys=repeats,
        undone=names,
        problem=problem,
        content_type=content_type,
    )


def charset_of(content: bytes, content_type: str | None, content_encoding: str | None) -> str:
    """The charset that a content is written in, so that its text can be written back the same: a
    byte order mark counts as text. One that nobody knows counts as UTF-8."""
    declared = _CHARSET.search(content_type or "")
    charset = declared[1] if declared else encodings_of(content_encoding)[1]
    if charset is None and _is_json_type(content_type):
        charset = json.detect_encoding(content)
    elif charset is None or not is_charset(charset):
        charset = "utf-8"
    name = codecs.lookup(charset).name
    if name == "utf-16":
        return "utf-16-be" if content.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
    if name == "utf-32":
        return "utf-32-be" if content.startswith(codecs.BOM_UTF32_BE) else "utf-32-le"
    return "utf-8" if name == "utf-8-sig" else name


def _understand(
    content: bytes, text: str | None, content_type: str | None
) -> tuple[Kind, Any, bool]:
    if not content:
        return Kind.EMPTY, None, False
    if text is None:
        return Kind.BINARY, None, False
    if _is_json_type(content_type) or content_type is None or text.lstrip()[:1] in ("{", "["):
        parsed = parse_json(text)
        if parsed is not None:
            return Kind.JSON, *parsed
    return (Kind.BINARY if _NOT_TEXT.search(text) else Kind.TEXT), None, False


# Text


def _is_json_type(content_type: str | None) -> bool:
    return content_type is not None and _JSON_TYPE.match(content_type) is not None


def _text(content: bytes, charset: str | None, content_type: str | None) -> str | None:
    """The text, None if it is not in its charset. A charset that nobody knows counts as UTF-8."""
    if charset is None and _is_json_type(content_type):
        charset = json.detect_encoding(content)
    elif charset is None or not is_charset(charset):
        charset = "utf-8"
    try:
        return content.decode(charset).removeprefix("\ufeff")
    except (UnicodeError, LookupError):
        return None


# JSON


def parse_json(text: str) -> tuple[Any, bool] | None:
    """What the text says as JSON, and whether an object has a key twice; None if it is no JSON.

    Integers of any size are exact. What JSON does not have (NaN, an infinity) makes it none.
    """
    try:
        return _parse(text, parse_constant=_refuse, parse_float=_finite)
    except ValueError:
        return None


def parse_any_json(text: str) -> tuple[Any, bool]:
    """As `parse_json`, but with numbers of any size, and with the NaN and infinities that Python
    writes; `ValueError` with the reason if it is no JSON."""
    try:
        return _parse(text, parse_float=_any_number, parse_int=_any_number)
    except json.JSONDecodeError as error:
        raise ValueError(why_no_json(error)) from None


def _parse(text: str, **readers: Any) -> tuple[Any, bool]:
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(items)
        repeated = repeated or len(found) < len(items)
        return found

    try:
        document = json.loads(text, object_pairs_hook=pairs, **readers)
        deep = _deeper_than(document, DEEPEST_JSON)
    except RecursionError:
        deep = True
    if deep:
        raise ValueError(f"is nested deeper than {DEEPEST_JSON} levels")
    return document, repeated


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is more than a double holds")
    return number


def _any_number(digits: str) -> int | float | Decimal:
    """A `Decimal` where nothing else holds it."""
    try:
        return int(digits) if digits.lstrip("-").isdecimal() else _finite(digits)
    except ValueError:
        pass
    try:
        return Decimal(digits)
    except ArithmeticError:
        raise ValueError("has a number with an exponent that cannot be read") from None


def _deeper_than(document: Any, most: int) -> bool:
    level = [document]
    for _ in range(most):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


_JSON_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+|[\[\]{},:]', re.DOTALL)


def indent_json(text: str) -> str:
    """JSON on many lines. Only white space changes: every number and string is as it was written.

    `text` must be JSON.
    """
    parts: list[str] = []
    depth = 0
    opened = False
    for match in _JSON_PART.finditer(text):
        part = match[0]
        if part in ("]", "}"):
            depth -= 1
            parts.append(part if opened else f"\n{'  ' * depth}{part}")
            opened = False
            continue
        if opened:
            parts.append(f"\n{'  ' * depth}")
        opened = part in ("[", "{")
        depth += opened
        parts.append(f",\n{'  ' * depth}" if part == "," else ": " if part == ":" else part)
    return "".join(parts)


# Bytes


def hex_dump(data: bytes, *, offset: int = 0) -> list[str]:
    """Sixteen bytes a line: where, which, and those that are ASCII."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset + start:08x}  {left:<23}  {right:<23}  |{shown}|")
    return lines
