"""The fast surgery does what `Properties` does."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields, surgery
from redrive.amqp.properties import Properties
from redrive.errors import MalformedData
from tests.strategies import (
    DELIVERY_MODE,
    HEADERS,
    NAMES_OF_HEADERS,
    Section,
    hostile_sections,
    inside_of,
    not_finite,
    scalars,
    sections,
    sized,
)

TAKE = st.frozensets(NAMES_OF_HEADERS, max_size=4)
PUT = st.dictionaries(NAMES_OF_HEADERS, scalars(), max_size=3)


def entries_of(raw: bytes) -> list[tuple[bytes, bytes]]:
    return [(fields.octets(name), field) for name, field in Properties.read(raw).entries()]


@given(sections())
def test_a_section_that_is_opened_and_closed_is_the_same_but_persistent(section: Section) -> None:
    closed = surgery.close_up(surgery.open_up(section.raw, frozenset()), {})
    assert closed == Section(section.parts | {DELIVERY_MODE: b"\x02"}, []).raw


@given(sections(), TAKE, PUT)
def test_what_is_not_taken_keeps_its_bytes_and_order(
    section: Section, take: frozenset[bytes], put: dict[bytes, bytes]
) -> None:
    closed = surgery.close_up(surgery.open_up(section.raw, take), put)
    kept = [each for each in section.entries if each[0] not in take]
    assert entries_of(closed) == [*kept, *put.items()]


@given(sections(), TAKE, PUT)
def test_every_other_property_keeps_its_bytes(
    section: Section, take: frozenset[bytes], put: dict[bytes, bytes]
) -> None:
    closed = surgery.close_up(surgery.open_up(section.raw, take), put)
    found = Section(Properties.read(closed)._parts, [])
    assert found.others == section.others | {DELIVERY_MODE: b"\x02"}


@given(sections(), TAKE)
def test_what_is_taken_is_the_first_of_each_name(section: Section, take: frozenset[bytes]) -> None:
    opened = surgery.open_up(section.raw, take)
    first = {name: field for name, field in reversed(section.entries) if name in take}
    assert opened[3] == first


@given(sections(), TAKE, PUT)
def test_both_surgeries_give_the_same_entries(
    section: Section, take: frozenset[bytes], put: dict[bytes, bytes]
) -> None:
    fast = surgery.close_up(surgery.open_up(section.raw, take | put.keys()), put)
    exact = (
        Properties.read(section.raw)
        .with_headers(
            {fields.text(name): field for name, field in put.items()},
            remove=set(map(fields.text, take)),
        )
        .persistent()
    )
    assert Counter(entries_of(fast)) == Counter(entries_of(exact.raw))


@given(sections(), TAKE, PUT)
def test_both_surgeries_give_the_same_other_properties(
    section: Section, take: frozenset[bytes], put: dict[bytes, bytes]
) -> None:
    fast = surgery.close_up(surgery.open_up(section.raw, take | put.keys()), put)
    exact = (
        Properties.read(section.raw)
        .with_headers(
            {fields.text(name): field for name, field in put.items()},
            remove=set(map(fields.text, take)),
        )
        .persistent()
    )
    assert [Section(each._parts, []).others for each in (Properties.read(fast), exact)] == [
        section.others | {DELIVERY_MODE: b"\x02"}
    ] * 2


@given(hostile_sections(), TAKE, PUT)
def test_any_bytes_are_closed_up_again_or_malformed(
    raw: bytes, take: frozenset[bytes], put: dict[bytes, bytes]
) -> None:
    try:
        closed = surgery.close_up(surgery.open_up(raw, take), put)
    except MalformedData:
        return
    assert isinstance(closed, bytes)


@given(hostile_sections(), TAKE)
def test_what_properties_can_read_surgery_can_open(raw: bytes, take: frozenset[bytes]) -> None:
    try:
        expected = [each for each in entries_of(raw) if each[0] not in take]
    except MalformedData:
        return
    assert entries_of(surgery.close_up(surgery.open_up(raw, take), {})) == expected


@given(sections(), TAKE)
def test_headers_that_are_cut_off_are_malformed(section: Section, take: frozenset[bytes]) -> None:
    if not section.entries:
        return
    inside_ends = len(section.raw) - len(surgery.open_up(section.raw, take)[4])
    for length in range(inside_ends):
        with pytest.raises(MalformedData):
            surgery.open_up(section.raw[:length], take)


@given(not_finite(), st.sampled_from([b"", b"A"]))
def test_the_cheap_look_never_misses_a_header_that_is_not_finite(
    field: bytes, within: bytes
) -> None:
    raw = Properties.empty().with_headers({"n": sized(within, field) if within else field}).raw
    assert fields.may_hold_non_finite(raw)


@pytest.mark.parametrize("raw", [b"", b"\x00"])
def test_flags_that_are_cut_off_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedData):
        surgery.open_up(raw, frozenset())


# -- the same by shapes --------------------------------------------------------------------------


def with_other_values(section: Section, fill: int) -> bytes:
    """A section of the same shape: all of one size, with other strings and numbers."""
    entries = [
        (name, field if field[:1] in b"AFfd" else _filled(field, fill))
        for name, field in section.entries
    ]
    inside = inside_of(entries)
    headers = {HEADERS: len(inside).to_bytes(4) + inside} if HEADERS in section.parts else {}
    return Section(section.parts | headers, entries).raw


def _filled(field: bytes, fill: int) -> bytes:
    value = 5 if field[:1] in b"Sx" else 1
    return field[:value] + bytes((fill,)) * (len(field) - value)


@given(st.lists(sections(), min_size=1, max_size=4), TAKE, TAKE, st.integers(0, 255))
def test_what_is_opened_by_its_shape_is_opened_as_any_other(
    some: list[Section], take: frozenset[bytes], drop: frozenset[bytes], fill: int
) -> None:
    opener = surgery.Opener(take, drop, learn_each=1)
    for section in some:
        for raw in (section.raw, section.raw, with_other_values(section, fill)):
            assert opener.open_up(raw) == surgery.open_up(raw, take, drop)


@given(st.data(), TAKE)
def test_what_only_looks_like_a_known_shape_is_opened_as_any_other(
    data: st.DataObject, take: frozenset[bytes]
) -> None:
    section = data.draw(sections())
    opener = surgery.Opener(take, learn_each=1)
    opener.open_up(section.raw)
    forged = bytearray(section.raw)
    forged[data.draw(st.integers(0, len(forged) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = surgery.open_up(bytes(forged), take)
    except MalformedData:
        with pytest.raises(MalformedData):
            opener.open_up(bytes(forged))
        return
    assert opener.open_up(bytes(forged)) == expected


@given(st.lists(hostile_sections(), max_size=4), TAKE)
def test_any_bytes_are_opened_by_shapes_as_without_or_malformed(
    some: list[bytes], take: frozenset[bytes]
) -> None:
    opener = surgery.Opener(take, learn_each=1)
    for raw in (*some, *some):
        try:
            expected = surgery.open_up(raw, take)
        except MalformedData:
            with pytest.raises(MalformedData):
                opener.open_up(raw)
            continue
        assert opener.open_up(raw) == expected


def test_shapes_are_learned_and_forgotten_within_bounds() -> None:
    opener = surgery.Opener(frozenset({b"n"}), learn_each=1)
    for size in range(5000):
        text = fields.longstr("x" * size)
        opener.open_up(Properties.empty().with_headers({"n": text}).raw)
    assert 0 < len(opener._shapes) <= 512
    assert all(size <= 4096 for size in opener._shapes)
