"""The collector's quick reading of a property section says what `Properties` says of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import Properties, fields
from redrive.errors import MalformedData
from redrive.work.section import Section, SectionReader
from tests.strategies import fields as any_field
from tests.strategies import hostile_sections, sections

NAMES = frozenset({b"x-death", b"redrive-id", b"task", b""})
entries = st.lists(st.tuples(st.sampled_from([*NAMES, b"tenant"]), any_field(depth=1)), max_size=6)
any_section = st.one_of(
    sections(entries=entries).map(lambda each: each.raw),
    sections().map(lambda each: each.raw),
    hostile_sections(),
    st.binary(max_size=60),
)


def plainly(raw: bytes) -> Section | str:
    """What `Properties` says of it, or why it says nothing."""
    try:
        properties = Properties.read(raw)
    except MalformedData as error:
        return str(error)
    text: list[str | None] = []
    for name in ("content_type", "content_encoding", "message_id", "app_id"):
        value = properties.get(name)
        assert value is None or isinstance(value, str)
        text.append(value)
    priority = properties.get("priority")
    assert priority is None or isinstance(priority, int)
    return properties.chosen(NAMES), text[0], text[1], priority, text[2], text[3]


def quickly(reader: SectionReader, raw: bytes) -> Section | str:
    try:
        return reader.read(raw)
    except MalformedData as error:
        return str(error)


@given(any_section)
def test_it_says_what_properties_say(raw: bytes) -> None:
    assert quickly(SectionReader(NAMES), raw) == plainly(raw)


remembering = SectionReader(NAMES)


@given(any_section)
def test_what_was_read_before_does_not_change_what_is_read(raw: bytes) -> None:
    for _ in range(70):  # of so many of one shape, at least one is learned from
        assert quickly(remembering, raw) == plainly(raw)


@given(any_section, st.integers(0, 80), st.binary(max_size=2))
def test_a_section_cut_off_or_with_more_behind_it_is_refused_for_the_same_reason(
    raw: bytes, size: int, more: bytes
) -> None:
    for broken in (raw[:size], raw + more):
        assert quickly(remembering, broken) == plainly(broken)


def test_what_it_remembers_is_bounded() -> None:
    reader = SectionReader(NAMES)
    for number in range(2000):
        section = Properties.empty().with_text("content_type", f"text/{number}")
        section = section.with_headers({"task": fields.int32(number)})
        assert reader.read(section.raw)[1] == f"text/{number}"
    assert len(reader._beginnings) <= 512
