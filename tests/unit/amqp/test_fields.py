"""Field values: read tolerantly, written exactly."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.amqp.fields import MAX_DEPTH, Unreadable
from redrive.errors import MalformedData
from tests.strategies import damaged, entry, nested_to, not_finite, opaque_fields, sized
from tests.strategies import fields as any_field

EVERY_TYPE = [
    (b"t\x00", False),
    (b"t\x01", True),
    (b"t\xff", True),
    (b"b\xff", -1),
    (b"B\xff", 255),
    (b"s\xff\xfe", -2),
    (b"U\xff\xfe", -2),
    (b"u\xff\xfe", 65534),
    (b"I\xff\xff\xff\xfd", -3),
    (b"i\xff\xff\xff\xfd", 4294967293),
    (b"l" + b"\xff" * 8, -1),
    (b"L" + b"\xff" * 8, -1),
    (b"f" + struct.pack(">f", 1.5), 1.5),
    (b"d" + struct.pack(">d", 0.1), 0.1),
    (b"D\x02" + struct.pack(">i", -12345), Decimal("-123.45")),
    (b"D\xff" + struct.pack(">i", 1), Decimal(1).scaleb(-255)),
    (b"T" + struct.pack(">Q", 1_700_000_000), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
    (b"V", None),
    (sized(b"S", "é".encode()), "é"),
    (sized(b"S", b"\xff"), b"\xff"),
    (sized(b"S", b""), ""),
    (sized(b"x", b"text"), b"text"),
    (sized(b"A", b""), []),
    (sized(b"A", b"V" + sized(b"A", b"t\x01")), [None, [True]]),
    (sized(b"F", b""), {}),
    (sized(b"F", entry(b"n", b"V") + entry(b"\xff", b"b\x01")), {"n": None, "\udcff": 1}),
]


@pytest.mark.parametrize(("raw", "value"), EVERY_TYPE)
def test_a_field_of_each_type_is_read(raw: bytes, value: fields.Value) -> None:
    assert fields.decode(raw) == value


def test_the_types_above_are_all_there_are() -> None:
    assert {chr(raw[0]) for raw, _ in EVERY_TYPE} == set("tbBsuUIilLfdDTVSxAF")


@given(st.one_of(any_field(), opaque_fields()))
def test_a_field_ends_where_its_bytes_end(raw: bytes) -> None:
    assert fields.field_end(raw + b"more", 0, len(raw) + 4) == len(raw)


@given(any_field())
def test_every_proper_prefix_of_a_field_is_cut_off(raw: bytes) -> None:
    for length in range(len(raw)):
        with pytest.raises(MalformedData):
            fields.field_end(raw[:length], 0, length)


@given(st.one_of(st.binary(max_size=60), damaged(any_field())))
def test_any_bytes_decode_to_something(raw: bytes) -> None:
    value = fields.decode(raw)
    assert not isinstance(value, Unreadable) or raw.endswith(value.raw)


@given(opaque_fields(), st.sampled_from([b"A", b"F"]))
def test_any_bytes_within_a_nested_field_decode_to_something(raw: bytes, letter: bytes) -> None:
    fields.decode(sized(letter, entry(b"n", raw) if letter == b"F" else raw))


@pytest.mark.parametrize("letter", [b"A", b"F"])
def test_a_depth_bomb_is_read_down_to_the_limit_and_keeps_its_bytes(letter: bytes) -> None:
    value = fields.decode(nested_to(20_000, letter=letter))
    for _ in range(MAX_DEPTH):
        assert isinstance(value, (list, dict))
        (value,) = value if isinstance(value, list) else value.values()
    assert value == Unreadable(nested_to(20_000 - MAX_DEPTH, letter=letter))


def test_a_timestamp_beyond_the_calendar_is_unreadable_and_keeps_its_bytes() -> None:
    raw = b"T" + b"\xff" * 8
    assert fields.decode(raw) == Unreadable(raw)


@given(st.binary())
def test_the_bytes_of_a_name_survive_being_text(name: bytes) -> None:
    assert fields.octets(fields.text(name)) == name


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_long_string_that_was_written_is_read_back(value: str) -> None:
    assert fields.decode(fields.longstr(value)) == value


@given(st.integers(-(2**31), 2**31 - 1))
def test_an_int32_that_was_written_is_read_back(value: int) -> None:
    assert fields.decode(fields.int32(value)) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_int64_that_was_written_is_read_back(value: int) -> None:
    assert fields.decode(fields.int64(value)) == value


@given(st.booleans())
def test_a_boolean_that_was_written_is_read_back(value: bool) -> None:
    assert fields.decode(fields.boolean(value)) is value


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - as it wants it
def test_a_timestamp_that_was_written_is_read_back_to_the_second(value: datetime) -> None:
    assert fields.decode(fields.timestamp(value)) == value.replace(microsecond=0)


@given(st.lists(any_field(), max_size=5))
def test_an_array_that_was_written_holds_its_fields(items: list[bytes]) -> None:
    assert repr(fields.decode(fields.array(items))) == repr([fields.decode(f) for f in items])


@given(st.dictionaries(st.text(max_size=8), any_field(), max_size=5))
def test_a_table_that_was_written_holds_its_fields(items: dict[str, bytes]) -> None:
    expected = {name: fields.decode(field) for name, field in items.items()}
    assert repr(fields.decode(fields.table(items))) == repr(expected)


# -- what is not a number ------------------------------------------------------------------------


def _really_holds_non_finite(value: fields.Value) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, list):
        return any(map(_really_holds_non_finite, value))
    return isinstance(value, dict) and any(map(_really_holds_non_finite, value.values()))


@given(st.lists(st.tuples(st.binary(max_size=4), any_field()), max_size=6))
def test_non_finite_numbers_are_found_where_they_are_and_nowhere_else(
    entries: list[tuple[bytes, bytes]],
) -> None:
    # each entry by itself: in a dictionary a repeated name would hide the first
    found = any(_really_holds_non_finite(fields.decode(field)) for _, field in _flat(entries))
    assert fields.holds_non_finite(b"".join(entry(*each) for each in entries)) is found


def _flat(entries: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The entries with every nested table's entries made entries of their own."""
    found = []
    for name, field in entries:
        found.append((name, field))
        if field[:1] in (b"A", b"F"):
            found += _flat(_children(field))
    return found


def _children(field: bytes) -> list[tuple[bytes, bytes]]:
    if field[:1] == b"F":
        return [(n, field[a:b]) for n, a, b in fields.table_entries(field, 5, len(field))]
    children, position = [], 5
    while position < len(field):
        stop = fields.field_end(field, position, len(field))
        children.append((b"", field[position:stop]))
        position = stop
    return children


@given(not_finite(), st.integers(0, 2_000), st.sampled_from([b"A", b"F"]))
def test_a_non_finite_number_is_found_at_any_depth(raw: bytes, depth: int, letter: bytes) -> None:
    assert fields.holds_non_finite(entry(b"n", nested_to(depth, raw, letter=letter)))


@given(st.binary(max_size=80))
def test_looking_for_non_finite_numbers_in_any_bytes_ends(data: bytes) -> None:
    fields.holds_non_finite(b"\x01nd\x7f" + data)


# -- what survives a broker ----------------------------------------------------------------------


def _normal(*entries: bytes) -> object:
    inside = b"".join(entries)
    return fields.normal_form(inside, 0, len(inside), named=True)


@given(st.permutations([entry(b"a", b"V"), entry(b"b", b"t\x01"), entry(b"c", b"b\x01")]))
def test_the_order_of_headers_plays_no_part_in_the_normal_form(entries: list[bytes]) -> None:
    assert _normal(*entries) == _normal(*sorted(entries))


def test_the_two_letters_of_a_long_are_one_in_the_normal_form() -> None:
    number = struct.pack(">q", -5)
    assert _normal(entry(b"n", b"l" + number)) == _normal(entry(b"n", b"L" + number))


def test_every_true_is_one_in_the_normal_form() -> None:
    assert _normal(entry(b"n", b"t\x01")) == _normal(entry(b"n", b"t\x7f"))


def test_true_and_one_differ_in_the_normal_form() -> None:
    assert _normal(entry(b"n", b"t\x01")) != _normal(entry(b"n", b"b\x01"))


def test_values_differ_in_the_normal_form_also_when_nested() -> None:
    one, two = (sized(b"A", sized(b"F", entry(b"n", bytes((98, n))))) for n in (1, 2))
    assert _normal(entry(b"n", one)) != _normal(entry(b"n", two))


@given(st.one_of(any_field(), opaque_fields(), st.just(nested_to(20_000, letter=b"F"))))
def test_any_field_has_a_normal_form(raw: bytes) -> None:
    assert _normal(entry(b"n", raw)) == _normal(entry(b"n", raw))


def test_a_timestamp_is_never_rounded_up() -> None:
    # As a float this is a second later.
    last_moment = datetime(3058, 12, 31, 23, 59, 59, 999997, tzinfo=UTC)
    assert fields.decode(fields.timestamp(last_moment)) == last_moment.replace(microsecond=0)
