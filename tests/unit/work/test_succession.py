"""One consumer of a Mover's queue follows another, and each settles what it has brought."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import structlog

from redrive.amqp import Budget, Connection, Delivery, strain
from redrive.work.succession import Succession
from tests.services.eventually import eventually_async

PREFETCH, BESIDE = 100, 30


class FakeConsumer:
    """Hands out what it is given; the first of a broker is said to have too much."""

    answered = unsettled_bytes = 0
    fitting = fitting_beside = BESIDE

    def __init__(self, *, first: bool) -> None:
        self.is_over_budget, self.has_ample_room = first, not first
        self.is_cancelled = self.has_left = self.gave_back = False
        self.takes_the_rest: bool | None = None
        self.settled: list[Delivery] = []
        self.arrived: list[Delivery] = []
        self._stirs = asyncio.Event()

    def bring(self, *deliveries: Delivery) -> None:
        self.arrived += deliveries
        self._stirs.set()

    async def next_batch(self) -> list[Delivery]:
        await self._stirs.wait()
        batch, self.arrived = self.arrived, []
        if not self.is_cancelled:
            self._stirs.clear()
        return batch

    def leave(self) -> None:
        self.has_left = True

    async def cancel(self, *, take_the_rest: bool = False) -> None:
        self.is_cancelled, self.takes_the_rest = True, take_the_rest
        self._stirs.set()

    def check(self) -> None: ...
    def flush(self) -> None: ...
    def unload(self, delivery: Delivery) -> None: ...

    def ack(self, *deliveries: Delivery) -> None:
        self.settled += deliveries

    def requeue(self, delivery: Delivery) -> None:
        self.settled.append(delivery)

    async def give_back(self) -> None:
        self.gave_back = True


class FakeChannel:
    """Consumes once."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.is_open = True

    async def consume(self, queue: str, *, prefetch: int, budget: Budget) -> FakeConsumer:
        consumer = FakeConsumer(first=not self._broker.consumers)
        self._broker.consumers.append(consumer)
        self._broker.prefetches.append(prefetch)
        return consumer

    async def close(self) -> None:
        self.is_open = False


class FakeBroker:
    """Seen as a connection."""

    def __init__(self) -> None:
        self.channels: list[FakeChannel] = []
        self.consumers: list[FakeConsumer] = []
        self.prefetches: list[int] = []

    async def channel(self) -> FakeChannel:
        self.channels.append(FakeChannel(self))
        return self.channels[-1]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strain, "LOOK_EVERY", 0.001)


@asynccontextmanager
async def watched(broker: FakeBroker) -> AsyncIterator[Succession]:
    source = Succession(
        cast("Connection", broker),
        "q",
        prefetch=PREFETCH,
        budget=Budget(1000),
        logger=structlog.get_logger(),
    )
    await source.open()
    watch = asyncio.create_task(source.watch())
    try:
        yield source
    finally:
        watch.cancel()
        await asyncio.wait((watch,))


def delivery(tag: int) -> Delivery:
    return Delivery(tag, False, "", "q", b"\x00\x00", b"body")


async def test_a_prefetch_that_was_lowered_doubles_after_calm_up_to_the_usual_one() -> None:
    broker = FakeBroker()
    with structlog.testing.capture_logs() as said:
        async with watched(broker) as source:
            taking = asyncio.create_task(source.next_batch())
            await eventually_async(lambda: len(broker.prefetches) == 4)
            await eventually_async(lambda: not any(each.is_open for each in broker.channels[:3]))
            assert not taking.done()  # there is always one that consumes
            await source.cancel()
            assert await taking == []
    assert broker.prefetches == [PREFETCH, 30, 60, 100]
    assert [each.has_left for each in broker.consumers] == [True, False, False, False]
    assert [each.takes_the_rest for each in broker.consumers] == [True, True, True, False]
    assert [line["event"] for line in said] == [
        "mover.prefetch_lowered",
        "mover.prefetch_raised",
        "mover.prefetch_raised",
    ]


async def test_each_settles_what_it_has_brought_and_then_gives_back_the_rest() -> None:
    broker = FakeBroker()
    async with watched(broker) as source:
        first = broker.consumers[0]
        first.bring(*(in_hand := [delivery(tag) for tag in (1, 2)]))
        assert await source.next_batch() == in_hand
        first.bring(unread := delivery(3))  # nobody takes it before the change
        await eventually_async(lambda: len(broker.consumers) == 2)
        second = broker.consumers[1]
        second.bring(beside := delivery(1))
        assert await source.next_batch() == [unread]
        assert await source.next_batch() == [beside]
        source.ack(beside, in_hand[0])
        source.unload(in_hand[1])  # it is to be answered all the same
        source.ack(unread)
        await eventually_async(lambda: len(broker.consumers) == 3)  # so many looks later
        assert not any(each.gave_back for each in broker.consumers)
        source.requeue(in_hand[1])
        await eventually_async(lambda: not broker.channels[0].is_open)
    assert first.gave_back
    assert first.settled == [in_hand[0], unread, in_hand[1]]
    assert second.settled == [beside]


async def test_the_prefetch_stays_low_while_what_the_former_brought_is_in_memory() -> None:
    broker = FakeBroker()
    async with watched(broker) as source:
        broker.consumers[0].bring(waits := delivery(1))
        assert await source.next_batch() == [waits]
        broker.consumers[0].unsettled_bytes = waits.size
        await eventually_async(lambda: len(broker.consumers) == 2)
        await asyncio.sleep(2 * strain._CALM_LOOKS * strain.LOOK_EVERY)  # nothing happens
        assert broker.prefetches == [PREFETCH, BESIDE]
        broker.consumers[0].unsettled_bytes = 0
        await eventually_async(lambda: broker.prefetches[2:] == [2 * BESIDE])


async def test_after_the_end_nobody_follows() -> None:
    broker = FakeBroker()
    async with watched(broker) as source:
        await source.cancel()
        assert await source.next_batch() == []
        await asyncio.sleep(3 * strain._LOOKS * strain.LOOK_EVERY)  # nothing happens
        await source.give_back()
    assert len(broker.consumers) == 1
    assert broker.consumers[0].gave_back
