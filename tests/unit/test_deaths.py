"""Reading deaths from headers that anyone may have written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.deaths import Death, NotOrigins, origin_of, read_deaths

NOON = datetime(2026, 2, 11, 12, tzinfo=UTC)

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
deathlike = st.dictionaries(
    st.sampled_from(["queue", "reason", "count", "exchange", "routing-keys", "time"]), anything
)


def test_a_death_as_the_broker_writes_it_is_read_whole() -> None:
    (death,) = read_deaths(
        [
            {
                "count": 2,
                "exchange": "work",
                "queue": "orders",
                "reason": "rejected",
                "routing-keys": ["order.created", "copied"],
                "time": NOON,
            }
        ]
    )
    assert death == Death(
        queue="orders",
        reason="rejected",
        count=2,
        exchange="work",
        routing_keys=("order.created", "copied"),
        at=NOON,
    )
    assert death.routing_key == "order.created"


@pytest.mark.parametrize(
    "time", [NOON, int(NOON.timestamp()), "2026-02-11T12:00:00Z", "2026-02-11T12:00:00"]
)
def test_times_of_other_software_are_understood(time: object) -> None:
    (death,) = read_deaths([{"queue": "q", "time": time}])
    assert death.at == NOON


def test_what_is_no_death_is_passed_over() -> None:
    assert read_deaths([1, "x", None, {}, {"queue": 7}, {"queue": "q"}]) == [Death(queue="q")]


@given(st.one_of(anything, st.lists(deathlike)))
def test_no_header_of_any_shape_makes_reading_fail(header: object) -> None:
    for death in read_deaths(header):
        assert isinstance(death.queue, str)
        assert death.count >= 1


def test_the_origin_is_the_newest_death_outside_our_own_queues() -> None:
    deaths = [Death(queue="queue.delay.1"), Death(queue="orders"), Death(queue="waiting-room")]
    assert origin_of(deaths, {"queue.delay.1"}) == Death(queue="orders")


def test_for_who_reads_a_queue_nothing_fails_in_that_one_either() -> None:
    deaths = [Death(queue="orders.dlq"), Death(queue="queue.delay.1"), Death(queue="orders")]
    assert origin_of(deaths, NotOrigins({"queue.delay.1"}, "orders.dlq")) == Death(queue="orders")


def test_without_a_foreign_death_there_is_no_origin() -> None:
    assert origin_of([Death(queue="queue.delay.1")], {"queue.delay.1"}) is None
