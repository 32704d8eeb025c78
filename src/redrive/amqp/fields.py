"""AMQP field values: the typed entries of header tables, read tolerantly and written exactly.

A field is kept as its raw bytes: a type letter and its payload. Nothing here re-encodes a field
that it did not make itself, because no decoded form keeps all that the wire can say (two letters
for one integer size, strings that are not UTF-8, doubles that are not numbers, repeated names).

Reading never recurses over hostile depth and never hangs: bytes whose boundaries cannot be found
raise `MalformedData`; a field whose inside cannot be read comes back as `Unreadable`.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from redrive.errors import MalformedData

MAX_DEPTH = 64
"""How deep a nested value is read; what lies deeper is `Unreadable`, with its bytes kept."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# By type letter: the size of the payload, or that four bytes of length precede it.
FIXED_SIZE = {
    ord(letter): size
    for letters, size in (
        ("tbB", 1),
        ("suU", 2),
        ("Iif", 4),
        ("lLdT", 8),
        ("D", 5),
        ("V", 0),
    )
    for letter in letters
}
SIZED = frozenset(b"SxAF")

# RabbitMQ reads `l` and `L` alike, as signed; so do we.
_INTEGERS = {
    ord(letter): struct.Struct(code)
    for letter, code in {
        "b": ">b",
        "B": ">B",
        "s": ">h",
        "U": ">h",
        "u": ">H",
        "I": ">i",
        "i": ">I",
        "l": ">q",
        "L": ">q",
    }.items()
}
_FLOATS = {ord("f"): struct.Struct(">f"), ord("d"): struct.Struct(">d")}
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A field that has clear boundaries but whose inside makes no sense, or lies too deep."""

    raw: bytes


Value = (
    None
    | bool
    | int
    | float
    | str
    | bytes
    | Decimal
    | datetime
    | Unreadable
    | list["Value"]
    | dict[str, "Value"]
)


def text(raw: bytes) -> str:
    """A name of the wire as text. Bytes that are not UTF-8 survive the way back by `octets`."""
    return raw.decode("utf-8", "surrogateescape")


def octets(name: str) -> bytes:
    """The bytes of a name: the inverse of `text`."""
    return name.encode("utf-8", "surrogateescape")


def field_end(data: bytes, start: int, limit: int) -> int:
    """Where the field that starts at `start` ends, which must be at or before `limit`."""
    if start >= limit:
        raise MalformedData("a field is cut off before its type")
    letter = data[start]
    size = FIXED_SIZE.get(letter)
    if size is not None:
        end = start + 1 + size
    elif letter in SIZED:
        if start + 5 > limit:
            raise MalformedData("a field is cut off in its length")
        end = start + 5 + int(_U32.unpack_from(data, start + 1)[0])
    else:
        raise MalformedData(f"unknown field type 0x{letter:02x}")
    if end > limit:
        raise MalformedData("a field is cut off in its value")
    return end


def table_entries(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Each entry of a table's inside as (name, where its field starts, where it ends)."""
    position = start
    while position < end:
        field = position + 1 + data[position]
        stop = field_end(data, field, end)
        yield data[position + 1 : field], field, stop
        position = stop


def decode(raw: bytes) -> Value:
    """The value of one field. Never raises: what cannot be read is `Unreadable`."""
    try:
        if field_end(raw, 0, len(raw)) != len(raw):
            return Unreadable(raw)
    except MalformedData:
        return Unreadable(raw)
    return _decode(raw, 0, len(raw), 0)


def _decode(data: bytes, start: int, end: int, depth: int) -> Value:
    letter, payload = data[start], start + 1
    if letter in _INTEGERS:
        return int(_INTEGERS[letter].unpack_from(data, payload)[0])
    if letter == 0x53:  # S
        body = data[payload + 4 : end]
        try:
            return body.decode()
        except UnicodeDecodeError:
            return body
    if letter in b"AF":
        return _decode_nested(data, start, end, depth)
    if letter in _FLOATS:
        return float(_FLOATS[letter].unpack_from(data, payload)[0])
    return _decode_rare(data, start, end)


def _decode_rare(data: bytes, start: int, end: int) -> Value:
    letter, payload = chr(data[start]), start + 1
    if letter == "t":
        return data[payload] != 0
    if letter == "x":
        return data[payload + 4 : end]
    if letter == "V":
        return None
    if letter == "D":
        return Decimal(_I32.unpack_from(data, payload + 1)[0]).scaleb(-data[payload])
    seconds = int(_U64.unpack_from(data, payload)[0])
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return Unreadable(data[start:end])


def _decode_nested(data: bytes, start: int, end: int, depth: int) -> Value:
    if depth == MAX_DEPTH:
        return Unreadable(data[start:end])
    inside = start + 5
    try:
        if data[start] == 0x46:  # F
            return {
                text(name): _decode(data, field, stop, depth + 1)
                for name, field, stop in table_entries(data, inside, end)
            }
        items: list[Value] = []
        while inside < end:
            stop = field_end(data, inside, end)
            items.append(_decode(data, inside, stop, depth + 1))
            inside = stop
        return items
    except (MalformedData, IndexError):
        return Unreadable(data[start:end])


def array_items(field: bytes | None) -> list[bytes]:
    """The raw fields of an array; none if it is not one."""
    if field is None:
        return []
    ends = item_ends(field)
    return [field[start:end] for start, end in itertools.pairwise((5, *ends))]


def count_items(field: bytes) -> int:
    """How many fields an array has; none if it is not one."""
    return len(item_ends(field))


def item_ends(field: bytes) -> list[int]:
    """Where each field of an array ends; the first begins at 5."""
    if field[:1] != b"A":
        return []
    ends = []
    position, end = 5, len(field)
    try:
        while position < end:
            if field[position] == 0x46:  # a death, as most are
                position += 5 + int(_U32.unpack_from(field, position + 1)[0])
            else:
                position = field_end(field, position, end)
            ends.append(position)
    except (MalformedData, struct.error):
        return []
    return ends if position == end else []


def text_of(field: bytes | None) -> str | None:
    """A header that should be a string; None if it is none, or not one."""
    return text(field[5:]) if field is not None and field[:1] == b"S" else None


def longstr(value: str | bytes) -> bytes:
    body = octets(value) if isinstance(value, str) else value
    return b"S" + _U32.pack(len(body)) + body


def int32(value: int) -> bytes:
    return b"I" + _I32.pack(value)


def int64(value: int) -> bytes:
    return b"l" + _I64.pack(value)


def boolean(value: bool) -> bytes:
    return b"t\x01" if value else b"t\x00"


def timestamp(value: datetime) -> bytes:
    return b"T" + _U64.pack((value - _EPOCH) // timedelta(seconds=1))


def array(fields: Iterable[bytes]) -> bytes:
    body = b"".join(fields)
    return b"A" + _U32.pack(len(body)) + body


def table(fields: Mapping[str, bytes]) -> bytes:
    body = b"".join(entry(octets(name), field) for name, field in fields.items())
    return b"F" + _U32.pack(len(body)) + body


def entry(name: bytes, field: bytes) -> bytes:
    """A table's entry: name and field. A name has at most 255 bytes."""
    return bytes((len(name),)) + name + field


def may_hold_non_finite(data: bytes) -> bool:
    """Whether a table could hold NaN or an infinity: cheap enough for every message, never misses.

    The exponent of such a number is all ones, so its type letter is followed by 0x7f or 0xff. Most
    messages have neither byte, and looking for a single one, as a number, is much the fastest.
    """
    if 0x7F in data or 0xFF in data:
        return b"d\x7f" in data or b"d\xff" in data or b"f\x7f" in data or b"f\xff" in data
    return False


def holds_non_finite(data: bytes) -> bool:
    """Whether a table's inside holds NaN or an infinity: the broker closes the connection on it."""
    return may_hold_non_finite(data) and _walk_non_finite(data)


def _walk_non_finite(data: bytes) -> bool:
    # An explicit stack: hostile depth must not exhaust Python's.
    pending: list[tuple[int, int, bool]] = [(0, len(data), True)]
    while pending:
        position, end, named = pending.pop()
        while position < end:
            if named:
                position += 1 + data[position]
            try:
                stop = field_end(data, position, end)
            except MalformedData:
                break
            letter = data[position]
            if letter in _FLOATS:
                if not math.isfinite(_FLOATS[letter].unpack_from(data, position + 1)[0]):
                    return True
            elif letter in b"AF":
                pending.append((position + 5, stop, letter == 0x46))
            position = stop
    return False


def normal_form(data: bytes, start: int, end: int, *, named: bool, depth: int = 0) -> object:
    """A table's or array's inside in a form that survives what a broker may do to it on the way.

    Brokers sort tables, drop repeated names, unify integer types and booleans (BROKER_FACTS).
    """
    if depth == MAX_DEPTH:
        return data[start:end]
    if named:
        named_fields: dict[bytes, object] = {}
        for name, field, stop in table_entries(data, start, end):
            named_fields.setdefault(name, _normal_field(data, field, stop, depth))
        return tuple(sorted(named_fields.items(), key=lambda item: item[0]))
    items = []
    while start < end:
        stop = field_end(data, start, end)
        items.append(_normal_field(data, start, stop, depth))
        start = stop
    return tuple(items)


def _normal_field(data: bytes, start: int, end: int, depth: int) -> object:
    letter = data[start]
    if letter in _INTEGERS:
        return int(_INTEGERS[letter].unpack_from(data, start + 1)[0])
    if letter == 0x74:  # t
        return (letter, data[start + 1] != 0)
    if letter in b"AF":
        try:
            inside = normal_form(data, start + 5, end, named=letter == 0x46, depth=depth + 1)
        except (MalformedData, IndexError):
            inside = data[start:end]
        return (letter, inside)
    return data[start:end]
