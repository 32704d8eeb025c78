"""How often a message was tried: the largest evidence, or the one that is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.deaths import Death
from redrive.domain.retry_count import CountBy, Evidence, read_evidence

MAYBE = st.none() | st.integers(0, 50)


@given(header=MAYBE, deaths=MAYBE, deliveries=MAYBE)
def test_the_largest_evidence_counts(
    header: int | None, deaths: int | None, deliveries: int | None
) -> None:
    evidence = Evidence(header=header, deaths=deaths, deliveries=deliveries)
    assert evidence.count(CountBy.LARGEST) == max(header or 0, deaths or 0, deliveries or 0)
    assert evidence.count(CountBy.HEADER) == (header or 0)
    assert evidence.count(CountBy.DEATHS) == (deaths or 0)
    assert evidence.count(CountBy.DELIVERIES) == (deliveries or 0)


def test_a_delivery_count_that_counts_looks_is_used_only_where_asked_for() -> None:
    evidence = Evidence(deaths=1, deliveries=50)
    assert evidence.count(CountBy.LARGEST, deliveries_tell=False) == 1
    assert evidence.count(CountBy.DELIVERIES, deliveries_tell=False) == 50


def test_all_entries_of_the_origin_queue_count_and_no_others() -> None:
    deaths = [
        Death(queue="orders", reason="rejected", count=2),
        Death(queue="dlq", reason="expired", count=7),
        Death(queue="orders", reason="expired", count=3),
        Death(queue="elsewhere", count=90),
    ]
    assert read_evidence(x_death=deaths, not_origins={"dlq"}).deaths == 5


def test_a_message_that_died_only_where_it_is_failed_there() -> None:
    assert read_evidence(x_death=[Death(queue="dlq", count=4)], not_origins={"dlq"}).deaths == 4


def test_deaths_that_were_moved_aside_count_unless_the_retrier_counted_them() -> None:
    aside = [Death(queue="orders", count=4)]
    assert read_evidence(redrive_deaths=aside).deaths == 4
    retried = read_evidence(redrive_deaths=aside, attempt=3, noted_queue="orders")
    assert (retried.header, retried.deaths) == (3, None)


def test_retries_of_another_queue_do_not_count() -> None:
    moved_on = read_evidence(x_death=[Death(queue="mail")], attempt=9, noted_queue="orders")
    assert (moved_on.header, moved_on.deaths) == (None, 1)


@pytest.mark.parametrize("value", [None, -1, "3", 3.0, True, b"3"])
def test_a_count_of_a_wrong_type_counts_as_not_there(value: object) -> None:
    assert read_evidence(attempt=value, delivery_count=value) == Evidence()
