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

    @property
    def is_read(self) -> bool:
        return self.stub.transport.reading

    async def fill(self, messages: int) -> list[Delivery]:
        for tag in range(1, messages + 1):
            if self.is_read:
                self.stub.feed(deliver(self.consumer, tag, "k", b"\x00\x00", bytes(BODY)))
        return await self.consumer.next_batch()


@pytest.fixture
def budget() -> Budget:
    return Budget(SIZE)


async def one(budget: Budget) -> One:
    stub = Stub()
    return One(stub, await stub.consumer(await stub.channel(), budget=budget))


async def test_what_one_consumer_has_spent_stops_the_sockets_of_all(budget: Budget) -> None:
    large, small, idle = [await one(budget) for _ in range(3)]
    await small.fill(1)
    await large.fill(9)
    assert [each.is_read for each in (large, small, idle)] == [False] * 3
    assert SIZE < budget.spent < SIZE + BODY + 500


async def test_what_one_consumer_settles_has_the_sockets_of_all_read(budget: Budget) -> None:
    large, small = await one(budget), await one(budget)
    (own,) = await small.fill(1)
    await large.fill(9)
    small.consumer.ack(own)
    assert large.is_read
    assert small.is_read


async def test_a_lost_connection_gives_its_share_to_the_others_once(budget: Budget) -> None:
    lost, other = await one(budget), await one(budget)
    batch = await lost.fill(9)
    lost.stub.connection.abort()
    assert budget.spent == 0
    lost.consumer.ack(*batch)  # by an owner who does not know it yet
    assert budget.spent == 0
    assert other.is_read


async def test_what_is_given_back_unsettled_makes_room_for_the_others(budget: Budget) -> None:
    away, other = await one(budget), await one(budget)
    await away.fill(9)
    away.consumer.return_everything()
    assert budget.spent == 0
    assert other.is_read


async def test_a_consumer_that_has_left_stops_nobody(budget: Budget) -> None:
    first = await one(budget)
    await first.fill(9)
    first.stub.connection.abort()
    second = await one(budget)
    batch = await second.fill(3)
    assert len(batch) == 3
    assert second.is_read


async def test_a_consumer_whose_prefetch_lets_no_more_come_is_read_all_the_same(
    budget: Budget,
) -> None:
    large, other = await one(budget), await one(budget)
    for tag in range(1, 11):  # as many as its prefetch
        large.stub.feed(deliver(large.consumer, tag, "k", b"\x00\x00", bytes(BODY)))
    await asyncio.sleep(0)
    assert large.is_read
    assert not other.is_read
