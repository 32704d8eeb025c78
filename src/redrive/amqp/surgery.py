"""Taking headers out of a raw property section and putting others in, in one pass.

The hot path of everything that publishes again. It does what `Properties` does, without splitting
what it does not look at: untouched headers stay together as the slices of bytes they came in.
`Properties` is for reading and for the rare changes; a property test holds the two together.

`open_up` reads header by header. `Opener` gives the same, faster, where messages resemble each
other; a property test holds these two together as well.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

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

_SHAPES: Final = 512
"""How many shapes are kept in mind. Beyond it all are forgotten: what repeats comes back."""
_NAMES: Final = 256
"""How many names are kept as they stand in a table. Callers put in a few of their own."""
_LARGEST_SHAPE: Final = 4096
"""Bytes of a section beyond which it is read header by header: what is kept is bounded."""

_named: dict[bytes, bytes] = {}  # names as they stand in a table, behind their length

Opened = tuple[int, bytes, list[bytes], dict[bytes, bytes], bytes]
"""A property section, opened up; a plain tuple because one is made for every message:

0. its flags,
1. all before the headers: the flags as they came, content type and encoding,
2. the headers that stay, in slices,
3. the headers that were taken out, as raw fields; of repeated names the first,
4. the delivery mode and all that follows.
"""


def open_up(raw: bytes, take: frozenset[bytes], drop: frozenset[bytes] = frozenset()) -> Opened:
    """Take the named headers out; of those, the ones to drop are not kept.

    Raises `MalformedData` where their boundaries cannot be found.
    """
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
    for name in drop.intersection(taken):
        del taken[name]
    return flags, raw[:start], kept, taken, raw[end:]


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


class _Shape(NamedTuple):
    """A section without its headers' values and what follows them: where one like it has what."""

    read_structure: Callable[[bytes], tuple[bytes, ...]]
    structure: tuple[bytes, ...]
    """All before the headers, and of each its name, type and size: all that tells boundaries."""
    flags: int
    before: bytes
    names: tuple[bytes, ...]
    read_taken: Callable[[bytes], tuple[bytes, ...]]
    read_kept: Callable[[bytes], tuple[bytes, ...]]
    """Reads the slices that stay, and last what follows the headers."""


class Opener:
    """Opens sections up as `open_up` does, by the shapes of those that it has seen before.

    The messages of a queue mostly have the same headers, with values of the same sizes. Three calls
    into C compare a section with a shape and cut it to pieces, instead of a loop over its headers.
    """

    __slots__ = ("_drop", "_learn_each", "_missed", "_shapes", "_take")

    def __init__(
        self, take: frozenset[bytes], drop: frozenset[bytes] = frozenset(), *, learn_each: int = 64
    ) -> None:
        """`learn_each`: of so many sections without a known shape, one is learned from. Learning
        costs more than reading, and is lost where sections do not resemble each other."""
        self._take = take
        self._drop = drop
        self._learn_each = learn_each
        self._missed = 0
        self._shapes: dict[int, _Shape] = {}  # by the size of the section

    def open_up(self, raw: bytes) -> Opened:
        """The section with headers taken out. Raises `MalformedData` as `open_up` does."""
        shape = self._shapes.get(len(raw))
        if shape is None:
            return self._look_closer(raw)
        read_structure, structure, flags, before, names, read_taken, read_kept = shape
        if read_structure(raw) != structure:
            return self._look_closer(raw)
        kept = list(read_kept(raw))
        after = kept.pop()
        # As many as names: `strict` would only cost.
        return flags, before, kept, dict(zip(names, read_taken(raw))), after  # noqa: B905

    def _look_closer(self, raw: bytes) -> Opened:
        opened = open_up(raw, self._take, self._drop)
        self._missed += 1
        if self._missed % self._learn_each == 0 and len(raw) <= _LARGEST_SHAPE:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            self._shapes[len(raw)] = self._shape(raw, opened)
        return opened

    def _shape(self, raw: bytes, opened: Opened) -> _Shape:
        """The shape of a section that could be opened."""
        flags, before, _, _, after = opened
        end = len(raw) - len(after)
        start = len(before) + 4 if flags & _HEADERS else end
        structure, taken, kept = _Cutter(), _Cutter(), _Cutter()
        names: list[bytes] = []
        told, kept_from = 0, start
        for name, field, stop in fields.table_entries(raw, start, end):
            value = field + (5 if raw[field] in fields.SIZED else 1)
            structure.cut(told, value)
            told = stop
            if name not in self._take:
                continue
            entry = field - len(name) - 1
            if entry > kept_from:
                kept.cut(kept_from, entry)
            kept_from = stop
            if name not in self._drop and name not in names:
                names.append(name)
                taken.cut(field, stop)
        structure.cut(told, end)
        if end > kept_from:
            kept.cut(kept_from, end)
        kept.cut(end, len(raw))
        read_structure = structure.reader(len(raw))
        return _Shape(
            read_structure,
            read_structure(raw),
            flags,
            before,
            tuple(names),
            taken.reader(len(raw)),
            kept.reader(len(raw)),
        )


class _Cutter:
    """Puts together what cuts slices out of bytes of one size, in one call."""

    def __init__(self) -> None:
        self._format = ""
        self._position = 0

    def cut(self, start: int, stop: int) -> None:
        self._format += f"{start - self._position}x{stop - start}s"
        self._position = stop

    def reader(self, size: int) -> Callable[[bytes], tuple[bytes, ...]]:
        return struct.Struct(f"{self._format}{size - self._position}x").unpack


def close_up(opened: Opened, put: Mapping[bytes, bytes], last: bytes = b"") -> bytes:
    """The section with headers (names and raw fields) put in at the end, made persistent.

    `last` is a whole entry that comes after all others, or nothing.
    """
    flags, before, kept, _, after = opened
    if put or last:
        kept = kept.copy()
        add, named = kept.append, _named.get
        for name, field in put.items():
            add(named(name) or _name(name))
            add(field)
        add(last)
    if not flags & _DELIVERY_MODE:
        after = b"\x02" + after
    elif after[0] != 2:
        after = b"\x02" + after[1:]
    inside = b"".join(kept)
    with_headers = flags | _DELIVERY_MODE | (_HEADERS if kept else 0)
    if with_headers != flags:
        before = _U16.pack(with_headers) + before[2:]
    if not with_headers & _HEADERS:
        return before + after
    return b"".join((before, _U32.pack(len(inside)), inside, after))


def _name(name: bytes) -> bytes:
    if len(_named) >= _NAMES:
        _named.clear()
    named = _named[name] = bytes((len(name),)) + name
    return named
