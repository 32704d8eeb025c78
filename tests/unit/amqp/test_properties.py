"""Property sections: what is not touched keeps its bytes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.amqp.properties import NAMES, Properties
from redrive.errors import MalformedData
from tests.strategies import (
    DELIVERY_MODE,
    NAMES_OF_HEADERS,
    Section,
    header_entries,
    hostile_sections,
    inside_of,
    scalars,
    sections,
    sized,
)

PUT = st.dictionaries(NAMES_OF_HEADERS, scalars(), max_size=3)
REMOVE = st.sets(NAMES_OF_HEADERS, max_size=3)


def parts_of(raw: bytes) -> dict[int, bytes]:
    return Properties.read(raw)._parts


def entries_of(raw: bytes) -> list[tuple[bytes, bytes]]:
    return [(fields.octets(name), field) for name, field in Properties.read(raw).entries()]


@given(sections())
def test_any_section_comes_out_as_it_went_in(section: Section) -> None:
    assert Properties.read(section.raw).raw == section.raw


@given(sections())
def test_every_header_of_any_section_is_found_in_order(section: Section) -> None:
    assert entries_of(section.raw) == section.entries


@given(sections(), PUT, REMOVE)
def test_surgery_leaves_every_other_header_as_it_was(
    section: Section, put: dict[bytes, bytes], remove: set[bytes]
) -> None:
    changed = Properties.read(section.raw).with_headers(
        {fields.text(name): field for name, field in put.items()},
        remove=set(map(fields.text, remove)),
    )
    untouched = [each for each in section.entries if each[0] not in remove | put.keys()]
    found = entries_of(changed.raw)
    assert [each for each in found if each[0] not in put] == untouched


@given(sections(), PUT, REMOVE)
def test_surgery_puts_each_new_header_in_exactly_once(
    section: Section, put: dict[bytes, bytes], remove: set[bytes]
) -> None:
    changed = Properties.read(section.raw).with_headers(
        {fields.text(name): field for name, field in put.items()},
        remove=set(map(fields.text, remove)),
    )
    assert sorted(each for each in entries_of(changed.raw) if each[0] in put) == sorted(put.items())


@given(sections(), PUT, REMOVE)
def test_surgery_on_headers_leaves_every_other_property_as_it_was(
    section: Section, put: dict[bytes, bytes], remove: set[bytes]
) -> None:
    changed = Properties.read(section.raw).with_headers(
        {fields.text(name): field for name, field in put.items()},
        remove=set(map(fields.text, remove)),
    )
    assert Section(parts_of(changed.raw), []).others == section.others


@given(sections(), st.data())
def test_a_replaced_header_keeps_its_place(section: Section, data: st.DataObject) -> None:
    names = [name for name, _ in section.entries]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    changed = Properties.read(section.raw).with_headers({fields.text(name): b"t\x01"})
    kept = [n for at, n in enumerate(names) if n != name or at == names.index(name)]
    assert [n for n, _ in entries_of(changed.raw)] == kept


@given(sections(), st.sampled_from(NAMES))
def test_a_property_that_is_removed_leaves_the_others_as_they_were(
    section: Section, name: str
) -> None:
    changed = Properties.read(section.raw).without(name)
    expected = {i: part for i, part in section.parts.items() if i != NAMES.index(name)}
    assert parts_of(changed.raw) == expected


@given(sections(), st.text(max_size=60))
def test_a_property_that_is_set_leaves_the_others_as_they_were(
    section: Section, value: str
) -> None:
    changed = Properties.read(section.raw).with_text("message_id", value)
    at = NAMES.index("message_id")
    expected = section.parts | {at: bytes((len(value.encode()),)) + value.encode()}
    assert parts_of(changed.raw) == expected


@given(sections())
def test_making_persistent_changes_the_delivery_mode_and_nothing_else(section: Section) -> None:
    changed = Properties.read(section.raw).persistent()
    assert parts_of(changed.raw) == section.parts | {DELIVERY_MODE: b"\x02"}


@given(sections())
def test_equal_sections_have_equal_hashes(section: Section) -> None:
    assert len({Properties.read(section.raw), Properties.read(section.raw)}) == 1


@given(hostile_sections())
def test_any_bytes_are_a_section_or_malformed(raw: bytes) -> None:
    try:
        properties = Properties.read(raw)
    except MalformedData:
        return
    assert properties.raw == raw


@given(hostile_sections())
def test_whatever_was_read_can_be_looked_at_in_every_way(raw: bytes) -> None:
    try:
        properties = Properties.read(raw)
    except MalformedData:
        return
    for name in NAMES:
        if name != "headers":
            properties.get(name)
    properties.headers()
    properties.holds_non_finite()
    properties.normal_form()


@given(sections())
def test_every_proper_prefix_of_a_section_is_malformed(section: Section) -> None:
    raw = section.raw
    for length in range(len(raw)):
        with pytest.raises(MalformedData):
            Properties.read(raw[:length])


@given(header_entries(), st.permutations(range(8)), st.binary(max_size=8))
def test_the_normal_form_of_headers_knows_neither_their_order_nor_bcc(
    entries: list[tuple[bytes, bytes]], order: list[int], bcc: bytes
) -> None:
    distinct = list({name: (name, field) for name, field in entries if name != b"BCC"}.values())
    shuffled = [distinct[at] for at in order if at < len(distinct)]
    shuffled.append((b"BCC", sized(b"S", bcc)))
    one, two = (Properties.read(_with_headers(each)).normal_form() for each in (distinct, shuffled))
    assert one == two


def _with_headers(entries: list[tuple[bytes, bytes]]) -> bytes:
    inside = inside_of(entries)
    return b"\x20\x00" + len(inside).to_bytes(4) + inside


def test_no_properties_are_two_bytes() -> None:
    assert Properties.empty().raw == b"\x00\x00"


def test_each_property_is_read_as_its_type() -> None:
    raw = b"\x98\x40" + b"\x04text" + b"\x02" + b"\x09" + (1_700_000_000).to_bytes(8)
    properties = Properties.read(raw)
    assert [
        properties.get(name)
        for name in ("content_type", "delivery_mode", "priority", "timestamp", "user_id")
    ] == ["text", 2, 9, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), None]


def test_a_timestamp_beyond_the_calendar_is_its_number() -> None:
    assert Properties.read(b"\x00\x40" + b"\xff" * 8).get("timestamp") == 2**64 - 1


def test_of_repeated_headers_the_first_is_read() -> None:
    raw = _with_headers([(b"n", b"b\x01"), (b"n", b"b\x02")])
    assert Properties.read(raw).header("n") == 1


def test_a_property_text_too_long_for_the_wire_is_refused() -> None:
    with pytest.raises(MalformedData, match="256 bytes"):
        Properties.empty().with_text("message_id", "é" * 128)


def test_flags_that_amqp_does_not_know_are_refused() -> None:
    with pytest.raises(MalformedData, match="0x0001"):
        Properties.read(b"\x00\x01")
