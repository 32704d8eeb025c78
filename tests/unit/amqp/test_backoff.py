"""Waits between attempts, and the supervision that uses them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp.supervision import supervise
from redrive.domain.backoff import Backoff
from redrive.errors import BrokerError, ConnectionLost

FAILURES = st.integers(1, 100_000)
CHANCE = st.floats(0, 1, exclude_max=True)
AT_ONCE = Backoff(first=timedelta(0), cap=timedelta(0))


@given(FAILURES, CHANCE)
def test_a_wait_is_never_longer_than_the_cap(failures: int, chance: float) -> None:
    assert Backoff().delay(failures, chance) <= Backoff().cap


@given(FAILURES, CHANCE)
def test_a_wait_is_never_shorter_than_half_the_first(failures: int, chance: float) -> None:
    assert Backoff().delay(failures, chance) >= Backoff().first / 2


@given(st.integers(1, 7))
def test_waits_double_until_the_cap(failures: int) -> None:
    backoff = Backoff(first=timedelta(seconds=1), cap=timedelta(days=1))
    assert backoff.delay(failures + 1, 0.5) == 2 * backoff.delay(failures, 0.5)


@given(FAILURES)
def test_chance_spreads_a_wait_over_half_of_it(failures: int) -> None:
    lowest = Backoff().delay(failures, 0)
    assert Backoff().delay(failures, 0.999999) > 1.99 * lowest


async def test_a_lost_session_is_started_again_until_one_ends_by_itself() -> None:
    heard: list[BrokerError] = []
    lives = 0

    async def session() -> None:
        nonlocal lives
        lives += 1
        if lives < 4:
            raise ConnectionLost(f"loss {lives}")

    await supervise(
        session,
        on_lost=lambda error, _: heard.append(error),
        stopping=asyncio.Event(),
        backoff=AT_ONCE,
    )
    assert [str(error) for error in heard] == ["loss 1", "loss 2", "loss 3"]


async def test_each_loss_in_a_row_is_waited_for_longer() -> None:
    waits: list[timedelta] = []

    async def session() -> None:
        if len(waits) < 5:
            raise ConnectionLost("gone")

    backoff = Backoff(first=timedelta(milliseconds=1), cap=timedelta(seconds=1))
    await supervise(
        session,
        on_lost=lambda _, wait: waits.append(wait),
        stopping=asyncio.Event(),
        backoff=backoff,
    )
    # twice the time less the spread: every second one is longer for certain
    assert waits[0] < waits[2] < waits[4]


async def test_stopping_ends_the_wait_for_the_next_session() -> None:
    stopping = asyncio.Event()
    lives = 0

    async def session() -> None:
        nonlocal lives
        lives += 1
        raise ConnectionLost("gone")

    day = Backoff(first=timedelta(days=1), cap=timedelta(days=1))
    async with asyncio.timeout(5):
        await supervise(session, on_lost=lambda *_: stopping.set(), stopping=stopping, backoff=day)
    assert lives == 1


async def test_an_error_that_is_not_the_brokers_goes_to_the_caller() -> None:
    async def session() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await supervise(session, on_lost=lambda *_: None, stopping=asyncio.Event())
