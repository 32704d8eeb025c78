"""Consumers of several connections that share a budget of bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from redrive.amqp import Budget, Consumer, Delivery
from tests.stub_transport import Stub, deliver

SIZE, BODY = 5000, 1000


@dataclass(frozen=True)
class One:
    """A connection with one consumer."""

    stub: Stub
    consumer: Consumer

    def is_read(self) -> bool:
        return self.stub.transport.reading

    async def fill(self, messages: int) -> list[Delivery]:
        for tag in range(1, messages + 1):
            if self.is_read():
                self.stub.feed(deliver(self.consumer, tag, "k", b"\x00\x00", bytes(BODY)))
        return await self.consumer.next_batch()


@pytest.fixture
def budget() -> Budget:
    return Budget(SIZE)


async def one(budget: Budget) -> One:
    stub = Stub()
    return One(stub, await stub.consumer(await stub.channel(), budget=budget))


async def test_what_one_consumer_has_spent_leaves_each_of_the_others_its_share(
    budget: Budget,
) -> None:
    large, small, idle = [await one(budget) for _ in range(3)]
    await large.fill(9)
    assert not large.is_read()
    assert small.is_read()
    assert budget.spent <= SIZE - 2 * budget.share + BODY + 500
    await small.fill(9)
    assert not small.is_read()
    assert idle.is_read()
    await idle.fill(9)
    assert not idle.is_read()
    for each in (small, idle):
        assert budget.share < each.consumer.unsettled_bytes <= budget.share + BODY + 500
    assert budget.spent <= SIZE + 3 * (BODY + 500)


async def test_a_message_larger_than_the_budget_stops_nobody_else(budget: Budget) -> None:
    large, small = await one(budget), await one(budget)
    large.stub.wire.frame_max = 1 << 20
    large.stub.feed(deliver(large.consumer, 1, "k", b"\x00\x00", bytes(3 * SIZE)))
    assert not large.is_read()
    assert small.is_read()
    assert len(await small.fill(1)) == 1
    assert small.is_read()


async def test_what_one_consumer_settles_has_the_sockets_of_all_read(budget: Budget) -> None:
    large, small = await one(budget), await one(budget)
    own = await small.fill(2)
    await large.fill(9)
    assert not large.is_read()
    small.consumer.ack(*own)
    assert large.is_read()
    assert small.is_read()


async def test_one_that_has_no_more_than_its_share_left_is_read_though_all_is_spent(
    budget: Budget,
) -> None:
    small, large = await one(budget), await one(budget)
    first, *_ = await small.fill(2)
    large.stub.wire.frame_max = 1 << 20
    large.stub.feed(deliver(large.consumer, 1, "k", b"\x00\x00", bytes(3 * SIZE)))
    assert not small.is_read()
    small.consumer.ack(first)
    assert small.is_read()
    assert not large.is_read()


async def test_the_share_of_one_that_is_gone_is_the_others(budget: Budget) -> None:
    large, idle = await one(budget), await one(budget)
    await large.fill(9)
    assert not large.is_read()
    idle.stub.connection.abort()
    assert large.is_read()


async def test_a_lost_connection_gives_its_share_to_the_others_once(budget: Budget) -> None:
    lost, other = await one(budget), await one(budget)
    batch = await lost.fill(9)
    lost.stub.connection.abort()
    assert budget.spent == 0
    lost.consumer.ack(*batch)  # by an owner who does not know it yet
    assert budget.spent == 0
    assert other.is_read()


async def test_what_is_given_back_unsettled_makes_room_for_the_others(budget: Budget) -> None:
    away, other = await one(budget), await one(budget)
    await away.fill(9)
    away.consumer.return_everything()
    assert budget.spent == 0
    assert other.is_read()


async def test_a_consumer_that_has_left_stops_nobody(budget: Budget) -> None:
    first = await one(budget)
    await first.fill(9)
    first.stub.connection.abort()
    second = await one(budget)
    batch = await second.fill(3)
    assert len(batch) == 3
    assert second.is_read()


async def test_a_consumer_whose_prefetch_lets_no_more_come_is_read_all_the_same(
    budget: Budget,
) -> None:
    large, other = await one(budget), await one(budget)
    for tag in range(1, 11):  # as many as its prefetch
        large.stub.feed(deliver(large.consumer, tag, "k", b"\x00\x00", bytes(BODY)))
    await asyncio.sleep(0)
    assert large.is_read()
    assert other.is_read()
    await other.fill(9)
    assert not other.is_read()
