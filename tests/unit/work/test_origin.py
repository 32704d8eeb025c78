"""The raw reading of x-death says what the decoded one says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp import fields
from redrive.domain import deaths
from redrive.work.origin import origin_of, text_of

OWN = {"queue.delay.1", "retry-queue"}

text = st.text(max_size=8).map(fields.longstr)
odd = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(fields.int32),
    st.just(b"V"),
    st.just(fields.table({})),
    st.just(fields.array([])),
)
queues = st.sampled_from(["orders", "queue.delay.1", "retry-queue", ""]).map(fields.longstr)
death = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.one_of(queues, odd),
        "reason": st.one_of(text, odd),
        "count": st.one_of(st.integers(-3, 2**62).map(fields.int64), text),
        "exchange": st.one_of(text, odd),
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
