"""A message's properties as the raw bytes of the wire, with typed reading and exact surgery.

`Properties` splits the bytes once and keeps every part as it came. A change (set, replace or
remove one header; set or remove one property) gives new `Properties` in which every other part's
bytes are identical, also where a header name occurs twice or a string is not UTF-8.

Bytes that do not follow AMQP's grammar raise `MalformedData`, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Self

from redrive.amqp import fields
from redrive.amqp.fields import Value
from redrive.errors import MalformedData

NAMES = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
_INDEX = {name: index for index, name in enumerate(NAMES)}
_HEADERS = _INDEX["headers"]
_DELIVERY_MODE = _INDEX["delivery_mode"]
_OCTETS = frozenset((_DELIVERY_MODE, _INDEX["priority"]))
_TIMESTAMP = _INDEX["timestamp"]
_FLAG = tuple(1 << (15 - index) for index in range(len(NAMES)))
_UNKNOWN_FLAGS = 0b11  # bit 1 is not assigned, bit 0 announces more flags, which nobody sends

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")

_PERSISTENT = b"\x02"
_NO_HEADERS = b"\x00\x00\x00\x00"
_layouts: dict[int, tuple[int, ...]] = {}  # flags to the indexes they announce; 2 ** 14 at most


class Properties:
    """The parts of one property section. Immutable: every change gives a new one."""

    __slots__ = ("_entries", "_parts")

    def __init__(self, parts: dict[int, bytes]) -> None:
        self._parts = parts  # every property that is set, in the wire's order, as its raw bytes
        self._entries: list[tuple[bytes, bytes]] | None = None  # (name, entry), once looked at

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Split a raw property section. Raises `MalformedData` if it is not one."""
        try:
            properties = cls(_parts_of(raw))
            properties._headers()  # so that broken headers are found here, and only here
        except (IndexError, struct.error):
            raise MalformedData("a property section is cut off") from None
        return properties

    @classmethod
    def empty(cls) -> Self:
        return cls({})

    @property
    def raw(self) -> bytes:
        """The property section as it goes onto the wire."""
        flags = 0
        for index in self._parts:
            flags |= _FLAG[index]
        return b"".join((_U16.pack(flags), *self._parts.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Properties({self.raw!r})"

    # Reading

    def get(self, name: str) -> str | int | datetime | None:
        """A property other than the headers, decoded; None if it is not set."""
        index = _INDEX[name]
        part = self._parts.get(index)
        if part is None:
            return None
        if index in _OCTETS:
            return part[0]
        if index == _TIMESTAMP:
            value = fields.decode(b"T" + part)
            return value if isinstance(value, datetime) else int(_U64.unpack(part)[0])
        return fields.text(part[1:])

    @property
    def header_names(self) -> list[str]:
        """The names of the headers in their order, repeated ones repeatedly."""
        return [fields.text(name) for name, _ in self._headers()]

    def header_field(self, name: str) -> bytes | None:
        """A header's raw field (type letter and payload); of repeated names the first."""
        wanted = fields.octets(name)
        for found, entry in self._headers():
            if found == wanted:
                return entry[1 + len(found) :]
        return None

    def header(self, name: str) -> Value:
        """A header's value; None also if it is not there."""
        field = self.header_field(name)
        return None if field is None else fields.decode(field)

    def headers(self) -> dict[str, Value]:
        """All headers decoded, for people; of repeated names the first."""
        found: dict[str, Value] = {}
        for name, field in self.entries():
            found.setdefault(name, fields.decode(field))
        return found

    def chosen(self, names: Collection[bytes]) -> dict[bytes, bytes]:
        """The raw fields of some headers by name; of repeated names the first."""
        found: dict[bytes, bytes] = {}
        for name, entry in self._headers():
            if name in names and name not in found:
                found[name] = entry[1 + len(name) :]
        return found

    def entries(self) -> list[tuple[str, bytes]]:
        """Every header as (name, raw field), in order, repeated ones too."""
        return [(fields.text(name), entry[1 + len(name) :]) for name, entry in self._headers()]

    def _headers(self) -> list[tuple[bytes, bytes]]:
        if self._entries is None:
            self._entries = _entries_of(self._parts.get(_HEADERS, _NO_HEADERS))
        return self._entries

    # Surgery

    def with_headers(self, put: Mapping[str, bytes], *, remove: Collection[str] = ()) -> Self:
        """Set headers to raw fields (made by `fields`), and remove others; the rest stays as it is.

        A header that is replaced keeps its place; a new one comes last.
        """
        fresh = {fields.octets(name): field for name, field in put.items()}
        names = {*map(fields.octets, remove), *fresh}
        kept: list[bytes] = []
        for name, entry in self._headers():
            if name not in names:
                kept.append(entry)
            elif name in fresh:
                # A second one of this name would contradict the new value: it goes.
                kept.append(fields.entry(name, fresh.pop(name)))
        kept.extend([fields.entry(name, field) for name, field in fresh.items()])
        inside = b"".join(kept)
        if not inside and _HEADERS not in self._parts:
            return self
        return self._with(_HEADERS, _U32.pack(len(inside)) + inside)

    def without(self, *names: str) -> Self:
        """Without the named properties."""
        gone = {_INDEX[name] for name in names}
        return type(self)({i: part for i, part in self._parts.items() if i not in gone})

    def with_text(self, name: str, value: str) -> Self:
        """With one short-string property set."""
        body = fields.octets(value)
        if len(body) > 255:
            raise MalformedData(f"property {name} has {len(body)} bytes; at most 255 fit")
        return self._with(_INDEX[name], bytes((len(body),)) + body)

    def persistent(self) -> Self:
        """With delivery mode 2, so that the message survives a broker restart."""
        if self._parts.get(_DELIVERY_MODE) == _PERSISTENT:
            return self
        return self._with(_DELIVERY_MODE, _PERSISTENT)

    def _with(self, index: int, part: bytes) -> Self:
        parts = self._parts.copy()
        ordered = index in parts or not parts or index > next(reversed(parts))
        parts[index] = part
        return type(self)(parts if ordered else dict(sorted(parts.items())))

    # What a broker does with it

    def holds_non_finite(self) -> bool:
        """Whether a header holds NaN or an infinity, on which the broker closes the connection."""
        table = self._parts.get(_HEADERS)
        return table is not None and fields.holds_non_finite(table[4:])

    def normal_form(self) -> object:
        """What stays equal when a broker hands the properties back in a `basic.return`."""
        inside = b"".join([entry for name, entry in self._headers() if name != b"BCC"])
        headers = fields.normal_form(inside, 0, len(inside), named=True)
        others = {index: part for index, part in self._parts.items() if index != _HEADERS}
        return (tuple(others.items()), headers)


def _parts_of(raw: bytes) -> dict[int, bytes]:
    flags = _U16.unpack_from(raw)[0]
    layout = _layouts.get(flags)
    if layout is None:
        if flags & _UNKNOWN_FLAGS:
            raise MalformedData(f"property flags 0x{flags:04x} are not of AMQP 0-9-1")
        layout = tuple(index for index, flag in enumerate(_FLAG) if flags & flag)
        _layouts[flags] = layout
    parts: dict[int, bytes] = {}
    start, end = 2, len(raw)
    for index in layout:
        if index == _HEADERS:
            stop = start + 4 + _U32.unpack_from(raw, start)[0]
        elif index in _OCTETS:
            stop = start + 1
        elif index == _TIMESTAMP:
            stop = start + 8
        else:
            stop = start + 1 + raw[start]
        if stop > end:
            raise MalformedData("a property section is cut off")
        parts[index] = raw[start:stop]
        start = stop
    if start != end:
        raise MalformedData("a property section is longer than its content")
    return parts


def _entries_of(table: bytes) -> list[tuple[bytes, bytes]]:
    """Each header as (name, its whole entry)."""
    found = []
    field_end = fields.field_end
    start, end = 4, len(table)
    while start < end:
        field = start + 1 + table[start]
        stop = field_end(table, field, end)
        found.append((table[start + 1 : field], table[start:stop]))
        start = stop
    return found
