"""What the wire may carry, for property tests: raw fields, property sections, damaged bytes.

Everything is drawn as bytes, since no decoded form says all that the wire can say.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from hypothesis import strategies as st

from redrive.amqp.properties import NAMES

Entry = tuple[bytes, bytes]

HEADERS = NAMES.index("headers")
DELIVERY_MODE = NAMES.index("delivery_mode")
_OCTETS = (DELIVERY_MODE, NAMES.index("priority"))
_TIMESTAMP = NAMES.index("timestamp")
_SHARE = 8
_FIXED = {
    letter: size
    for letters, size in {"V": 0, "tbB": 1, "suU": 2, "Iif": 4, "D": 5, "lLdT": 8}.items()
    for letter in letters
}
_SCALARS = [*_FIXED, "S", "x"]
_LETTERS = [*_SCALARS, "A", "F"]

NAMES_OF_HEADERS = st.one_of(
    # few and short, so that repeated names and hits on a wanted name are common
    st.sampled_from(
        [b"", b"a", b"b", b"CC", b"BCC", b"x-death", b"redrive-id", b"\xff\xfe", b"n" * 255]
    ),
    st.binary(max_size=12),
)


def sized(letter: bytes, body: bytes) -> bytes:
    return letter + struct.pack(">I", len(body)) + body


def entry(name: bytes, field: bytes) -> bytes:
    return bytes((len(name),)) + name + field


def inside_of(entries: list[Entry]) -> bytes:
    return b"".join(entry(name, field) for name, field in entries)


def _finite(letter: str, payload: bytes) -> bytes:
    """The same number with its highest exponent bit cleared: neither NaN nor infinite."""
    return bytes((payload[0] & 0xBF,)) + payload[1:] if letter in "fd" else payload


@st.composite
def fields(draw: st.DrawFn, *, finite: bool = False, depth: int = 3) -> bytes:
    """A field of any type, nested at will, empty arrays and tables included."""
    letter = draw(st.sampled_from(_LETTERS if depth else _SCALARS))
    if letter in _FIXED:
        size = _FIXED[letter]
        payload = draw(st.binary(min_size=size, max_size=size))
        return letter.encode() + (_finite(letter, payload) if finite else payload)
    if letter in "AF":
        inner = fields(finite=finite, depth=depth - 1)
        if letter == "A":
            return sized(b"A", b"".join(draw(st.lists(inner, max_size=3))))
        return sized(
            b"F", inside_of(draw(st.lists(st.tuples(NAMES_OF_HEADERS, inner), max_size=3)))
        )
    body = draw(st.binary(max_size=20) | st.sampled_from([b"", b"text", "é☃".encode(), b"\xff"]))
    return sized(letter.encode(), body)


def scalars(*, finite: bool = False) -> st.SearchStrategy[bytes]:
    """A field of every type that does not nest."""
    return fields(finite=finite, depth=0)


def opaque_fields() -> st.SearchStrategy[bytes]:
    """A field with clear boundaries and nonsense inside."""
    return st.builds(sized, st.sampled_from([b"A", b"F"]), st.binary(min_size=1, max_size=20))


def header_entries(
    field: st.SearchStrategy[bytes] | None = None, *, max_size: int = 5
) -> st.SearchStrategy[list[Entry]]:
    """Headers in order, names repeated now and then."""
    any_field = st.one_of(fields(), opaque_fields()) if field is None else field
    return st.lists(st.tuples(NAMES_OF_HEADERS, any_field), max_size=max_size)


@dataclass(frozen=True)
class Section:
    """A property section and what it is made of: each property's bytes, each header."""

    parts: dict[int, bytes]
    entries: list[Entry]

    @property
    def raw(self) -> bytes:
        flags = sum(1 << (15 - index) for index in self.parts)
        return struct.pack(">H", flags) + b"".join(
            self.parts[index] for index in sorted(self.parts)
        )

    @property
    def others(self) -> dict[int, bytes]:
        """Every property but the headers."""
        return {index: part for index, part in self.parts.items() if index != HEADERS}


def _parts(chosen: set[int], entries: list[Entry], pool: bytes) -> dict[int, bytes]:
    """The bytes of each property, cut from a pool: one draw where fourteen would be slow."""
    parts: dict[int, bytes] = {}
    for index in sorted(chosen):
        mine = pool[index * _SHARE : (index + 1) * _SHARE]
        if index == HEADERS:
            inside = inside_of(entries)
            parts[index] = struct.pack(">I", len(inside)) + inside
        elif index in _OCTETS:
            parts[index] = mine[:1]
        elif index == _TIMESTAMP:
            parts[index] = mine[:8]
        else:
            length = mine[0] % _SHARE
            parts[index] = bytes((length,)) + mine[1 : 1 + length]
    return parts


@st.composite
def sections(
    draw: st.DrawFn,
    *,
    entries: st.SearchStrategy[list[Entry]] | None = None,
    without: frozenset[str] = frozenset(),
) -> Section:
    """A property section with any of the fourteen properties set, none to all."""
    mask = sum(1 << index for index, name in enumerate(NAMES) if name not in without)
    flags = draw(st.integers(0, (1 << len(NAMES)) - 1)) & mask
    headers = draw(entries if entries is not None else header_entries())
    if headers:
        flags |= 1 << HEADERS
    chosen = {index for index in range(len(NAMES)) if flags >> index & 1}
    pool = draw(st.binary(min_size=_SHARE * len(NAMES), max_size=_SHARE * len(NAMES)))
    return Section(_parts(chosen, headers, pool), headers)


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes cut short, lengthened, or with some bytes changed."""
    data = bytearray(draw(valid))
    how = draw(st.sampled_from(["cut", "append", "change"]))
    if how == "cut":
        del data[draw(st.integers(0, len(data))) :]
    elif how == "append":
        data += draw(st.binary(min_size=1, max_size=8))
    elif data:
        for _ in range(draw(st.integers(1, 4))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def hostile_sections() -> st.SearchStrategy[bytes]:
    """Bytes that claim to be a property section: random ones, and damaged valid ones."""
    return st.one_of(st.binary(max_size=80), damaged(sections().map(lambda each: each.raw)))


def nested_to(depth: int, innermost: bytes = b"V", *, letter: bytes = b"A") -> bytes:
    """A field within a field within a field."""
    field = innermost
    for _ in range(depth):
        field = sized(letter, entry(b"n", field) if letter == b"F" else field)
    return field


NOT_FINITE = [math.nan, math.inf, -math.inf]


def not_finite() -> st.SearchStrategy[bytes]:
    """A field on which the broker closes the connection."""
    return st.one_of(
        st.sampled_from(NOT_FINITE).map(lambda value: b"d" + struct.pack(">d", value)),
        st.sampled_from(NOT_FINITE).map(lambda value: b"f" + struct.pack(">f", value)),
        # every bit pattern of a NaN
        st.integers(1, 2**52 - 1).map(lambda bits: b"d" + struct.pack(">Q", 0x7FF << 52 | bits)),
        st.integers(1, 2**23 - 1).map(lambda bits: b"f" + struct.pack(">I", 0x1FF << 23 | bits)),
    )
