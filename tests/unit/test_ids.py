"""Ids of letters: UUIDs that sort by time, and the bounds of a time among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from random import Random
from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.ids import first_id, last_id, letter_id, rising

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

moments = st.timedeltas(
    timedelta(0),
    datetime(9999, 12, 30, tzinfo=UTC) - EPOCH,
).map(lambda since: EPOCH + since)
bits = st.integers(0, (1 << 74) - 1)


@given(moments, bits)
def test_an_id_is_a_uuid_of_version_7(at: datetime, random: int) -> None:
    text = letter_id(at, random)
    assert str(UUID(text)) == text
    assert UUID(text).version == 7
    assert UUID(text).variant == RFC_4122


@given(moments, bits)
def test_an_id_begins_with_its_millisecond(at: datetime, random: int) -> None:
    assert UUID(letter_id(at, random)).int >> 80 == (at - EPOCH) // MILLISECOND


@given(moments, bits, st.integers(1, 10_000_000), bits)
def test_ids_sort_by_time_as_text_and_as_bytes(
    at: datetime, random: int, later: int, other: int
) -> None:
    first, second = letter_id(at, random), letter_id(at + later * MILLISECOND, other)
    assert first < second
    assert UUID(first).bytes < UUID(second).bytes


@given(moments, bits, bits)
def test_every_random_bit_is_in_the_id(at: datetime, one: int, other: int) -> None:
    assert (letter_id(at, one) == letter_id(at, other)) == (one == other)


@given(moments, bits)
def test_a_time_begins_with_its_first_id_and_ends_with_its_last(at: datetime, random: int) -> None:
    assert first_id(at) <= letter_id(at, random) <= last_id(at)
    assert last_id(at - MILLISECOND if at - EPOCH >= MILLISECOND else at) <= last_id(at)
    assert last_id(at) < first_id(at + MILLISECOND)


@given(moments)
def test_the_zone_of_a_time_does_not_matter(at: datetime) -> None:
    elsewhere = timezone(timedelta(hours=-7))
    if at - EPOCH > timedelta(days=1):
        assert first_id(at.astimezone(elsewhere)) == first_id(at)


def test_a_time_before_1970_begins_with_the_first_id_of_all() -> None:
    assert first_id(datetime(1, 1, 1, tzinfo=UTC)) == first_id(EPOCH)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.lists(bits, min_size=1, max_size=10)), max_size=30),
)
def test_ids_that_are_drawn_together_or_later_sort_behind_those_before(
    drawn: list[tuple[int, list[int]]],
) -> None:
    """Also where the clock stands still or goes back."""
    clock, ids = BEGAN, []
    last = BEGAN, 0
    for passed, draws in drawn:
        clock += passed * MILLISECOND
        at, found = rising(clock, draws, last)
        last = at, found[-1]
        ids += [letter_id(at, each) for each in found]
    assert ids == sorted(ids)


def test_ids_have_the_time_of_the_clock_also_where_many_are_drawn_within_a_millisecond() -> None:
    draw, last = Random(7), (BEGAN, 0)
    for _ in range(4):
        at, found = rising(BEGAN, [draw.getrandbits(74) for _ in range(10)], last)
        assert at == BEGAN
        last = at, found[-1]


def test_when_a_millisecond_has_no_more_room_the_next_one_is_taken() -> None:
    highest = (1 << 74) - 1
    assert rising(BEGAN, [highest], (BEGAN, highest)) == (BEGAN + MILLISECOND, [highest])
