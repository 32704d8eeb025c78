"""How many messages a collector takes at a time: fewer while they do not fit, then more again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import structlog

from redrive.amqp import Connection, Delivery, strain
from redrive.work.collector import Collector
from redrive.work.keeper import LetterStore
from redrive.work.mover import Limits
from redrive.work.understand import Understanding
from tests.services.eventually import eventually_async

PREFETCH, FITTING = 100, 30


class FakeConsumer:
    """Has nothing, or is said to have too much."""

    answered, fitting = 0, FITTING

    def __init__(self, *, is_over: bool, has_room: bool) -> None:
        self.is_over_budget, self.has_ample_room = is_over, has_room
        self.is_cancelled = False
        self.takes_the_rest: bool | None = None
        self.gave_back = False
        self._end = asyncio.Event()

    async def next_batch(self) -> list[Delivery]:
        await self._end.wait()
        return []

    async def cancel(self, *, take_the_rest: bool = False) -> None:
        self.is_cancelled, self.takes_the_rest = True, take_the_rest
        self._end.set()

    async def give_back(self) -> None:
        assert self.is_cancelled
        self.gave_back = True


class FakeBroker:
    """Connection and channel in one. Its first consumer is strained, those after it have room."""

    def __init__(self, *, room: bool) -> None:
        self.prefetches: list[int] = []
        self.consumers: list[FakeConsumer] = []
        self._room = room

    async def connect(self, name: str) -> Connection:
        return cast("Connection", self)

    async def channel(self) -> FakeBroker:
        return self

    async def consume(self, queue: str, *, prefetch: int, budget: object) -> FakeConsumer:
        first = not self.consumers
        consumer = FakeConsumer(is_over=first, has_room=self._room and not first)
        self.prefetches.append(prefetch)
        self.consumers.append(consumer)
        return consumer

    async def close(self) -> None: ...
    def abort(self) -> None: ...


class Idle:
    """A store that is there."""

    writers = 1

    async def prove_writable(self, room: int = 0) -> None: ...


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strain, "LOOK_EVERY", 0.001)


@asynccontextmanager
async def collecting(broker: FakeBroker) -> AsyncIterator[list[Any]]:
    collector = Collector(
        "dead",
        cast("LetterStore", Idle()),
        cast("Understanding", None),
        connect=broker.connect,
        limits=Limits(prefetch=PREFETCH),
    )
    with structlog.testing.capture_logs() as said:
        running = asyncio.create_task(collector.run())
        try:
            yield said
        finally:
            collector.stop()
            await asyncio.wait_for(running, 30)


async def test_a_prefetch_that_was_lowered_doubles_after_calm_up_to_the_usual_one() -> None:
    broker = FakeBroker(room=True)
    async with collecting(broker) as said:
        await eventually_async(lambda: len(broker.prefetches) == 4)
        await asyncio.sleep(3 * strain._CALM_LOOKS * strain.LOOK_EVERY)  # nothing happens
    assert broker.prefetches == [PREFETCH, 30, 60, 100]
    raised = [line for line in said if line["event"] == "collector.prefetch_raised"]
    assert [(line["prefetch"], line["raised_to"]) for line in raised] == [(30, 60), (60, 100)]
    assert not [line for line in said if line["event"] == "collector.lost"]


async def test_a_raise_has_what_is_on_its_way_stored_and_a_lowering_has_it_go_back() -> None:
    broker = FakeBroker(room=True)
    async with collecting(broker):
        await eventually_async(lambda: len(broker.prefetches) == 4)
    lowered, raised, raised_again, stopped = broker.consumers
    assert not lowered.takes_the_rest
    assert raised.takes_the_rest
    assert raised_again.takes_the_rest
    assert not stopped.takes_the_rest


async def test_a_prefetch_that_was_lowered_stays_so_while_there_is_no_room_for_more() -> None:
    broker = FakeBroker(room=False)
    async with collecting(broker):
        await eventually_async(lambda: len(broker.prefetches) == 2)
        await asyncio.sleep(3 * strain._CALM_LOOKS * strain.LOOK_EVERY)  # nothing happens
    assert broker.prefetches == [PREFETCH, FITTING]


async def test_each_session_gives_back_what_it_holds_before_it_ends() -> None:
    broker = FakeBroker(room=True)
    async with collecting(broker):
        await eventually_async(lambda: len(broker.prefetches) == 4)
    assert all(consumer.gave_back for consumer in broker.consumers)
