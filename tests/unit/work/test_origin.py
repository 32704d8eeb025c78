"""The raw reading of x-death says what the decoded one says."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.amqp.fields import text_of
from redrive.domain import deaths
from redrive.work.origin import Origin, Origins, origin_of

OWN = {"queue.delay.1", "retry-queue"}

text = st.text(max_size=8).map(fields.longstr)
odd = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(fields.int32),
    st.just(b"V"),
    st.just(fields.table({})),
    st.just(fields.array([])),
)
queues = st.sampled_from(["orders", "queue.delay.1", "retry-queue", ""]).map(fields.longstr)
times = st.integers(0, 3).map(lambda seconds: b"T" + seconds.to_bytes(8))
death = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.one_of(queues, odd),
        "reason": st.one_of(text, odd),
        "count": st.one_of(st.integers(-3, 2**62).map(fields.int64), text),
        "exchange": st.one_of(text, odd),
        "time": st.one_of(times, odd),
        "a\x04timeT": text,
        "routing-keys": st.one_of(
            st.lists(st.one_of(text, odd), max_size=3).map(fields.array), text, odd
        ),
    },
).map(fields.table)
x_death = st.one_of(st.lists(st.one_of(death, odd, text), max_size=4).map(fields.array), odd, text)


@given(x_death)
def test_raw_and_decoded_reading_agree_on_the_origin(header: bytes) -> None:
    raw = origin_of(header, OWN)
    decoded = deaths.origin_of(deaths.read_deaths(fields.decode(header)), OWN)
    if decoded is None:
        assert raw is None
        return
    assert raw is not None
    assert raw.queue == decoded.queue
    assert raw.reason == (decoded.reason or "unknown")
    assert raw.times == decoded.count
    assert (text_of(raw.exchange) or "") == decoded.exchange
    assert text_of(raw.routing_key) == decoded.routing_key


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_tell_an_origin_or_none(junk: bytes) -> None:
    for header in (junk, b"A" + junk, fields.array([b"F" + junk])):
        found = origin_of(header, OWN)
        assert found is None or found.queue not in OWN


def test_without_a_header_there_is_no_origin() -> None:
    assert origin_of(None, OWN) is None


def told(origin: Origin | None, header: bytes) -> object:
    return origin and (dataclasses.astuple(origin), origin.at(header))


@given(st.lists(x_death, max_size=6))
def test_what_is_remembered_is_what_would_be_read(headers: list[bytes]) -> None:
    origins = Origins(OWN)
    for header in (*headers, *headers):
        assert told(origins.of(header), header) == told(origin_of(header, OWN), header)


def dead_at(seconds: int, queue: str = "orders") -> bytes:
    time = b"T" + seconds.to_bytes(8)
    return fields.array([fields.table({"queue": fields.longstr(queue), "time": time})])


def test_deaths_that_differ_only_in_time_are_read_once_and_keep_their_times() -> None:
    origins = Origins(OWN)
    first, second = origins.of(dead_at(1)), origins.of(dead_at(2))
    assert first is second
    assert first is not None
    assert [first.at(dead_at(1)), first.at(dead_at(2))] == [
        b"T" + seconds.to_bytes(8) for seconds in (1, 2)
    ]


def test_a_queue_whose_name_looks_like_a_time_is_not_taken_for_another() -> None:
    origins = Origins(OWN)
    names = [f"\x04timeT{name}" for name in ("aaaaaaaa", "bbbbbbbb")]
    found = [origins.of(dead_at(1, name)) for name in (*names, *names)]
    assert [origin and origin.queue for origin in found] == [*names, *names]


def test_what_is_remembered_is_bounded() -> None:
    origins = Origins(OWN)
    for number in range(5000):
        assert origins.of(dead_at(1, f"queue-{number}")) is not None
    assert origins.of(dead_at(1, "q" * 5000)) is not None
    assert len(origins._known) <= 4096
    assert all(len(before) + len(after) < 1024 for before, after in origins._known)
