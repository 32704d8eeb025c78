"""Taking headers out of a raw property section and putting others in, in one pass.

The hot path of everything that publishes again. It does what `Properties` does, without splitting
what it does not look at: untouched headers stay together as the slices of bytes they came in.
`Properties` is for reading and for the rare changes; a property test holds the two together.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from redrive.amqp import fields
from redrive.errors import MalformedData

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_u32: Final = _U32.unpack_from
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000
_DELIVERY_MODE: Final = 0x1000
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
USER_ID: Final = 0x0010

_SIZED: Final = 255
_UNKNOWN: Final = 254
# By type letter: the payload's size, or that a length precedes it, or that nobody knows the type.
_SIZES: Final = bytes(
    fields.FIXED_SIZE.get(letter, _SIZED if letter in fields.SIZED else _UNKNOWN)
    for letter in range(256)
)


Opened = tuple[int, bytes, list[bytes], dict[bytes, bytes], bytes]
"""A property section, opened up; a plain tuple because one is made for every message:

0. its flags,
1. content type and encoding,
2. the headers that stay, in slices,
3. the headers that were taken out, as raw fields; of repeated names the first,
4. the delivery mode and all that follows.
"""


def flags_of(raw: bytes) -> int:
    """Which properties a section has."""
    if len(raw) < 2:
        raise MalformedData("a property section is cut off")
    return raw[0] << 8 | raw[1]


def open_up(raw: bytes, take: frozenset[bytes]) -> Opened:
    """Take the named headers out. Raises `MalformedData` where their boundaries cannot be found."""
    try:
        flags = raw[0] << 8 | raw[1]
        start = 2
        if flags & _CONTENT_TYPE:
            start += 1 + raw[start]
        if flags & _CONTENT_ENCODING:
            start += 1 + raw[start]
        kept: list[bytes] = []
        taken: dict[bytes, bytes] = {}
        end = _take_out(raw, start, take, kept, taken) if flags & _HEADERS else start
        if end + bool(flags & _DELIVERY_MODE) > len(raw):
            raise MalformedData("a property section is cut off")
    except (IndexError, struct.error):
        raise MalformedData("a property section is cut off") from None
    return flags, raw[2:start], kept, taken, raw[end:]


def _take_out(
    raw: bytes, start: int, take: frozenset[bytes], kept: list[bytes], taken: dict[bytes, bytes]
) -> int:
    """Sort the headers of the table at `start` into those kept and taken; where the table ends."""
    position = kept_from = start + 4
    end: int = position + _u32(raw, start)[0]
    while position < end:
        field = position + 1 + raw[position]
        size = _SIZES[raw[field]]
        if size == _SIZED:
            stop = field + 5 + _u32(raw, field + 1)[0]
        elif size == _UNKNOWN:
            raise MalformedData(f"unknown field type 0x{raw[field]:02x}")
        else:
            stop = field + 1 + size
        name = raw[position + 1 : field]
        if name in take:
            if position > kept_from:
                kept.append(raw[kept_from:position])
            kept_from = stop
            taken.setdefault(name, raw[field:stop])
        position = stop
    if position != end or end > len(raw):
        raise MalformedData("a header is cut off")
    if end > kept_from:
        kept.append(raw[kept_from:end])
    return end


def close_up(opened: Opened, put: Mapping[bytes, bytes]) -> bytes:
    """The section with headers (names and raw fields) put in at the end, made persistent."""
    flags, before, kept, _, after = opened
    if put:
        kept = [*kept, *[b"%c%b%b" % (len(name), name, field) for name, field in put.items()]]
    if not flags & _DELIVERY_MODE:
        after = b"\x02" + after
    elif after[0] != 2:
        after = b"\x02" + after[1:]
    flags |= _DELIVERY_MODE
    if not kept and not flags & _HEADERS:
        return b"".join((_U16.pack(flags), before, after))
    inside = b"".join(kept)
    return b"".join((_U16.pack(flags | _HEADERS), before, _U32.pack(len(inside)), inside, after))


def table_fields(raw: bytes, start: int, end: int) -> dict[bytes, bytes]:
    """A nested table's inside as name to raw field, of repeated names the first; not decoded."""
    found: dict[bytes, bytes] = {}
    try:
        while start < end:
            field = start + 1 + raw[start]
            size = _SIZES[raw[field]]
            if size == _SIZED:
                stop = field + 5 + _u32(raw, field + 1)[0]
            elif size == _UNKNOWN:
                raise MalformedData(f"unknown field type 0x{raw[field]:02x}")
            else:
                stop = field + 1 + size
            found.setdefault(raw[start + 1 : field], raw[field:stop])
            start = stop
    except (IndexError, struct.error):
        raise MalformedData("a table is cut off") from None
    if start != end:
        raise MalformedData("a table is cut off")
    return found
