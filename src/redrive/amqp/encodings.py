"""Content encodings of bodies, undone.

Nothing raises. What is not what it says to be, or would unfold to more than 16 MiB, is given as it
came, with why: a small body cannot fill the memory.
"""

from __future__ import annotations

import codecs
import sys
import zlib
from collections.abc import Callable
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
_NOTHING_TO_UNDO: Final = frozenset({"", "identity", "binary", "8bit", "7bit", "none"})
# Python's own codecs, made for other things than message bodies; some are slow on hostile input.
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"}
)


def encodings_of(content_encoding: str | None) -> tuple[list[str], str | None]:
    """The encodings to undo, the outermost first, and the charset that many write here instead."""
    encodings = []
    charset = None
    for word in reversed((content_encoding or "").split(",")):
        name = word.strip().lower()
        if name in _NOTHING_TO_UNDO:
            continue
        if name not in _DECODERS and is_charset(name):
            charset = name
        else:
            encodings.append(name)
    return encodings, charset


def undone(body: bytes, encodings: list[str]) -> tuple[bytes, tuple[str, ...], str | None]:
    """The content, the encodings that were undone, and why they could not be."""
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


def is_charset(name: str) -> bool:
    """Whether it is the name of one that texts are written in."""
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):  # ValueError: a NUL in the name
        return False
    # Not public, but the only thing that tells `utf-8` from `zlib` and `rot13`.
    return found.name not in _NO_CHARSETS and getattr(found, "_is_text_encoding", False)
