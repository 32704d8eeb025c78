"""The collector's quick reading of deaths says what the plain reading of the same header says."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.domain.deaths import Death, read_deaths
from redrive.work.death_reader import DeathReader
from tests.services.letters import BEGAN, death
from tests.strategies import fields as any_field
from tests.strategies import inside_of, opaque_fields, sized

EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, tzinfo=UTC)

LOOKS_LIKE_A_TIME = b"\x04timeT" + struct.pack(">Q", 1_770_811_207)
LOOKS_LIKE_A_TEXT = b"\x04timeTMonday.."
names = st.sampled_from(
    [b"queue", b"reason", b"exchange", b"routing-keys", b"count", b"time", b"x" + LOOKS_LIKE_A_TIME]
)
texts = st.one_of(
    st.text(max_size=8).map(str.encode),
    st.binary(max_size=8),
    st.sampled_from(
        [LOOKS_LIKE_A_TIME, LOOKS_LIKE_A_TEXT, b"", b"\x00", b"q" * 300, "é".encode() * 300]
    ),
).map(lambda body: sized(b"S", body))
times = st.one_of(
    st.integers(0, 2**34),
    st.integers(0, 2**64 - 1),
    st.integers(253402214400 - 2, 253402300799 + 2),  # the last day that a datetime knows
).map(lambda second: b"T" + struct.pack(">Q", second))
written_times = st.sampled_from(
    [
        b"2026-02-11T12:00:07.123456",
        b"2026-02-11T12:00:07+02:00",
        b"0001-01-01T00:00:00+14:00",
        b"9999-12-31T23:59:59-14:00",
        b"yesterday",
    ]
).map(lambda text: sized(b"S", text))
counts = st.integers(-(2**63), 2**63 - 1).map(lambda count: b"l" + struct.pack(">q", count))
keys = st.lists(texts, max_size=3).map(lambda each: sized(b"A", b"".join(each)))
values = st.one_of(texts, times, written_times, counts, keys, any_field(depth=1))
tables = st.one_of(
    st.lists(st.tuples(names, values), max_size=8),
    # as a broker writes it, its time anywhere and of any value
    st.tuples(texts, texts, counts, texts, keys, times | written_times).flatmap(
        lambda each: st.permutations(
            list(
                zip(
                    (b"queue", b"reason", b"count", b"exchange", b"routing-keys", b"time"),
                    each,
                    strict=True,
                )
            )
        )
    ),
).map(lambda entries: sized(b"F", inside_of(list(entries))))
headers = st.lists(st.one_of(tables, any_field(depth=1), opaque_fields()), max_size=4).map(
    lambda items: sized(b"A", b"".join(items))
)


def plainly(field: bytes) -> list[Death]:
    """What the plain reading says, made storable."""
    return [storable(each) for each in read_deaths(fields.decode(field))]


def storable(found: Death) -> Death:
    return Death(
        queue=name(found.queue),
        reason=name(found.reason),
        count=min(found.count, 2**31 - 1),
        exchange=name(found.exchange),
        routing_keys=tuple(name(key) for key in found.routing_keys[:20]),
        at=moment(found.at),
    )


def name(text: str) -> str:
    cut = text if len(text) <= 255 else text[:254] + "…"
    return "".join(
        "\ufffd" if each == "\0" or "\ud800" <= each <= "\udfff" else each for each in cut
    )


def moment(at: datetime | None) -> datetime | None:
    """In UTC, to the millisecond; none that some database or time zone has no place for."""
    if at is None or not EARLIEST <= at <= LATEST:
        return None
    utc = at.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


@given(headers)
def test_it_says_what_the_plain_reading_says_and_says_it_again(field: bytes) -> None:
    reader = DeathReader()
    expected = plainly(field)
    assert reader.read(field) == expected
    assert reader.read(field) == expected  # by now some of it is remembered
    assert reader.read(field) == expected


remembering = DeathReader()


@given(st.lists(headers, min_size=1, max_size=3))
def test_what_was_read_before_does_not_change_what_is_read(read: list[bytes]) -> None:
    for field in read:
        assert remembering.read(field) == plainly(field)


@given(tables, times, times)
def test_deaths_that_differ_in_their_time_keep_their_own(
    table: bytes, one: bytes, other: bytes
) -> None:
    reader = DeathReader()
    for time in (one, other, one):
        inside = table[5:] + b"\x04time" + time
        field = sized(b"A", sized(b"F", inside))
        assert reader.read(field) == plainly(field)


@given(
    st.lists(tables, min_size=2, max_size=4),
    st.lists(st.lists(times, min_size=4, max_size=4), min_size=2, max_size=4),
)
def test_headers_that_differ_in_their_times_keep_their_own(
    several: list[bytes], read: list[list[bytes]]
) -> None:
    reader = DeathReader()
    for each in (*read, *read):
        items = [
            sized(b"F", table[5:] + b"\x04time" + time)
            for table, time in zip(several, each, strict=False)
        ]
        field = sized(b"A", b"".join(items))
        assert reader.read(field) == plainly(field)


def test_headers_of_one_size_with_times_in_other_places_are_told_apart() -> None:
    reader = DeathReader()
    for at in (0, 5, 0):
        for first, second in (("a", "orders"), ("orders", "a"), ("orders", "b")):
            field = fields.array([death(first, at=at), death(second, at=at + 1)])
            assert reader.read(field) == plainly(field)


def test_a_name_that_looks_like_a_time_is_a_name() -> None:
    reader = DeathReader()
    for second in (b"Monday..", b"Tuesday."):
        queue = b"\x04timeT" + second
        field = sized(b"A", sized(b"F", inside_of([(b"queue", sized(b"S", queue))])))
        (found,) = reader.read(field)
        assert found == plainly(field)[0]
        assert found.at is None
        assert found.queue.startswith("\x04timeT")


def test_what_the_broker_writes_is_read_whole_whatever_its_time() -> None:
    reader = DeathReader()
    for at in (0, 5, 0):
        (found,) = reader.read(fields.array([death("orders", count=3, at=at)]))
        assert found == Death(
            queue="orders",
            reason="rejected",
            count=3,
            exchange="shop",
            routing_keys=("order.created",),
            at=BEGAN.replace(second=BEGAN.second + at, microsecond=0),
        )


def test_no_header_and_no_array_are_no_deaths() -> None:
    reader = DeathReader()
    assert reader.read(None) == []
    assert reader.read(fields.longstr("rejected")) == []
    assert reader.read(fields.array([])) == []


@pytest.mark.parametrize("count", [1, 5000])
def test_what_it_remembers_is_bounded(count: int) -> None:
    reader = DeathReader()
    for number in range(count):
        reader.read(fields.array([death(f"queue {number}")]))
    reader.read(fields.array([death("q" * 5000)]))
    assert len(reader._known) <= min(count, 4096)
    reader.read(fields.array([death("q" * 500) for _ in range(10)]))
    assert len(reader._cuts) <= len(reader._headers) <= min(count, 1024)
    assert all(sum(map(len, around)) <= 4096 for around in reader._headers)
