"""What a collector takes for a store that is away, and how long it rests after it gave messages
back, because its store did not take them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
import structlog

from redrive.domain.letter import Arrival, Collected
from redrive.errors import ConnectionLost, StoreUnreachable
from redrive.work import keeper
from redrive.work.keeper import Keeper, rest_after
from redrive.work.system_state import system_watch
from tests.services.letters import failed


def test_after_an_outage_it_goes_on_as_soon_as_the_store_answers() -> None:
    assert rest_after(1) == 0


def test_where_the_store_takes_anything_but_the_messages_it_rests_longer_each_time() -> None:
    rests = [rest_after(times) for times in range(2, 8)]
    assert rests == [60, 120, 240, 480, 960, 1920]


def test_it_rests_for_an_hour_at_most() -> None:
    assert rest_after(10_000) == 3600


class Picky:
    """Takes everything but one message, and is always there."""

    writers = 1

    def __init__(self, bad: Arrival) -> None:
        self._bad = bad

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]:
        if self._bad in arrivals:
            raise StoreUnreachable("a statement takes too long")
        return [cast("Collected", None) for _ in arrivals]

    async def prove_writable(self, room: int = 0) -> None: ...


async def test_one_message_that_fails_for_ever_is_tried_less_often_though_others_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = failed("fine"), failed("never")
    times: list[int] = []
    monkeypatch.setattr(keeper, "PATIENCE", 0.0)

    def noted(in_vain: int) -> float:
        times.append(in_vain)
        return 0.0

    monkeypatch.setattr(keeper, "rest_after", noted)
    keeps = Keeper(Picky(bad), asyncio.Event(), system_watch(), structlog.get_logger())
    for _ in range(4):
        assert await keeps.store_answers()
        assert not (await keeps.keep([good], lambda: None)).gave_up
        assert (await keeps.keep([bad], lambda: None)).gave_up
    assert times == [1, 2, 3]


async def test_a_store_that_fails_when_the_broker_is_lost_does_not_count_as_away() -> None:
    """A query may fail because it was cancelled; and what was not stored is void anyway."""
    bad = failed("m")
    keeps = Keeper(Picky(bad), asyncio.Event(), system_watch(), structlog.get_logger())

    def lost() -> None:
        raise ConnectionLost("the connection to the broker was lost")

    with structlog.testing.capture_logs() as said, pytest.raises(ConnectionLost):
        await keeps.keep([bad], lost)
    assert said == []
