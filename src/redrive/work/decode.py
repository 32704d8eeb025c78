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
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MOST_DECODED: Final = 16 * 2**20
"""How many bytes a body may have once its encodings are undone."""
MOST_ENCODINGS: Final = 5
# Each costs a copy of all that follows it.
_MOST_MEMBERS: Final = 500
DEEPEST_JSON: Final = 100
"""JSON that is nested deeper is shown as text: readers and writers of it recurse."""

_NOTHING_TO_UNDO: Final = frozenset({"", "identity", "binary", "8bit", "7bit", "none"})
_JSON_TYPE: Final = re.compile(r"\s*[^;\s]*[/+]json\s*(;|$)", re.IGNORECASE)
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
# Python's own codecs, made for other things than message bodies; some are slow on hostile input.
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"}
)
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


def decode_body(body: bytes, content_type: str | None, content_encoding: str | None) -> Decoded:
    """Understand a body by what its properties say of it, and by itself."""
    encodings, charset = _encodings(content_encoding)
    content, undone, problem = _undo(body, encodings)
    if problem:
        content, undone = body, ()
    declared = _CHARSET.search(content_type or "")
    text = _text(content, declared[1] if declared else charset, content_type)
    kind, document, repeats = _understand(content, text, content_type)
    return Decoded(
        kind=kind,
        content=content,
        text=None if kind is Kind.BINARY else text or "",
        document=document,
        repeats_keys=repeats,
        undone=undone,
        problem=problem,
    )


def charset_of(content: bytes, content_type: str | None, content_encoding: str | None) -> str:
    """The charset that a content is written in, so that its text can be written back the same: a
    byte order mark counts as text. One that nobody knows counts as UTF-8."""
    declared = _CHARSET.search(content_type or "")
    charset = declared[1] if declared else _encodings(content_encoding)[1]
    if charset is None and _is_json_type(content_type):
        charset = json.detect_encoding(content)
    elif charset is None or not _is_charset(charset):
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


# Content encodings


def _encodings(content_encoding: str | None) -> tuple[list[str], str | None]:
    """The encodings to undo, the outermost first, and the charset that many write here instead."""
    encodings = []
    charset = None
    for word in reversed((content_encoding or "").split(",")):
        name = word.strip().lower()
        if name in _NOTHING_TO_UNDO:
            continue
        if name not in _DECODERS and _is_charset(name):
            charset = name
        else:
            encodings.append(name)
    return encodings, charset


def _undo(body: bytes, encodings: list[str]) -> tuple[bytes, tuple[str, ...], str | None]:
    if len(encodings) > MOST_ENCODINGS:
        return (
            body,
            (),
            f"has {len(encodings)} content encodings; at most {MOST_ENCODINGS} are read",
        )
    content = body
    for name in encodings if body else ():
        decoder = _DECODERS.get(name)
        if decoder is None:
            return body, (), f"content encoding {name!r} is not one that is read here"
        try:
            content = decoder(content)
        except _TooLarge:
            most = MOST_DECODED // 2**20
            return body, (), f"would be larger than {most} MiB without its encoding {name!r}"
        except (zlib.error, zstd.ZstdError, EOFError, ValueError):
            return body, (), f"is not {name}, though its content encoding says so"
    return content, tuple(encodings), None


class _TooLarge(Exception):
    """More than `MOST_DECODED` bytes would come of it."""


def _gzip(data: bytes) -> bytes:
    # The zeros that some writers pad with are not another member.
    return _members(data, lambda: zlib.decompressobj(wbits=31), padding=b"\x00")


def _deflate(data: bytes) -> bytes:
    try:
        return _members(data, lambda: zlib.decompressobj(wbits=15))
    except zlib.error:
        # Half of the world writes it without the wrapping that the standard asks for.
        return _members(data, lambda: zlib.decompressobj(wbits=-15))


def _zstd(data: bytes) -> bytes:
    return _members(data, zstd.ZstdDecompressor)


def _members(data: bytes, decompressor: Callable[[], Any], *, padding: bytes = b"") -> bytes:
    """Everything that follows one another in `data`, or `EOFError` if the last one is cut off."""
    parts: list[bytes] = []
    room = MOST_DECODED
    rest = data
    if len(data) > 2 * MOST_DECODED:
        raise _TooLarge
    while rest or not parts:
        if len(parts) == _MOST_MEMBERS:
            raise _TooLarge
        one = decompressor()
        # One byte more than fits tells what is too large from what just fits.
        part = one.decompress(rest, room + 1)
        room -= len(part)
        if room < 0:
            raise _TooLarge
        if not one.eof:
            raise EOFError
        parts.append(part)
        rest = one.unused_data.lstrip(padding) if padding else one.unused_data
    return b"".join(parts)


_DECODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zlib": _deflate,
    "zstd": _zstd,
}


# Text


def _is_json_type(content_type: str | None) -> bool:
    return content_type is not None and _JSON_TYPE.match(content_type) is not None


def _is_charset(name: str) -> bool:
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):  # ValueError: a NUL in the name
        return False
    # Not public, but the only thing that tells `utf-8` from `zlib` and `rot13`.
    return found.name not in _NO_CHARSETS and getattr(found, "_is_text_encoding", False)


def _text(content: bytes, charset: str | None, content_type: str | None) -> str | None:
    """The text, None if it is not in its charset. A charset that nobody knows counts as UTF-8."""
    if charset is None and _is_json_type(content_type):
        charset = json.detect_encoding(content)
    elif charset is None or not _is_charset(charset):
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
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(items)
        repeated = repeated or len(found) < len(items)
        return found

    try:
        document = json.loads(
            text, object_pairs_hook=pairs, parse_constant=_refuse, parse_float=_finite
        )
    except (ValueError, RecursionError):
        return None
    return None if _deeper_than(document, DEEPEST_JSON) else (document, repeated)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is more than a double holds")
    return number


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
