"""When a consumer has too much on its way, and when it has had room for long."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands

from redrive.amqp import Budget, Consumer, Delivery, strain
from redrive.amqp.strain import Calm, Fit, Strain
from redrive.errors import BrokerError
from tests.services.eventually import eventually_async
from tests.stub_transport import Stub, deliver, method

SIZE, SMALL, LARGE = 30_000, 100, 35_000


class One:
    """A connection with one consumer, which has a prefetch of 10."""

    def __init__(self, stub: Stub, consumer: Consumer) -> None:
        self.stub, self.consumer = stub, consumer
        self._tag = 0

    def is_read(self) -> bool:
        return self.stub.transport.reading

    async def get(self, size: int) -> Delivery:
        self._tag += 1
        self.stub.feed(deliver(self.consumer, self._tag, "k", b"\x00\x00", bytes(size)))
        (delivery,) = await self.consumer.next_batch()
        return delivery

    def settle(self, delivery: Delivery) -> None:
        self.consumer.ack(delivery)
        self.consumer.flush()


@pytest.fixture
def budget() -> Budget:
    return Budget(SIZE)


async def one(budget: Budget) -> One:
    stub = Stub()
    stub.wire.frame_max = 1 << 20
    return One(stub, await stub.consumer(await stub.channel(), budget=budget))


def is_too_much(looks: Strain) -> bool:
    """After as many looks as it takes."""
    return [looks.is_too_much() for _ in range(strain._LOOKS)][-1]


async def test_a_consumer_that_keeps_its_budget_spent_has_too_much(budget: Budget) -> None:
    alone = await one(budget)
    await alone.get(LARGE)
    looks = Strain(alone.consumer)
    told = [looks.is_too_much() for _ in range(strain._LOOKS)]
    assert told == [False] * (strain._LOOKS - 1) + [True]
    assert alone.consumer.fitting == 1


@pytest.mark.parametrize("in_hand", [0, 1, 5])
async def test_the_neighbour_of_one_that_has_too_much_is_read_on_and_not_strained(
    budget: Budget, in_hand: int
) -> None:
    small, large = await one(budget), await one(budget)
    for _ in range(in_hand):
        await small.get(SMALL)
    await large.get(LARGE)
    assert is_too_much(Strain(large.consumer))
    assert not is_too_much(Strain(small.consumer))
    assert small.is_read()
    await small.get(SMALL)
    assert small.is_read()


async def test_a_neighbour_that_has_more_than_its_share_too_is_lowered_by_its_own_messages(
    budget: Budget,
) -> None:
    neighbour, large = await one(budget), await one(budget)
    for _ in range(6):
        await neighbour.get(2000)
    await large.get(LARGE)
    assert not neighbour.is_read()
    assert is_too_much(Strain(neighbour.consumer))
    assert neighbour.consumer.fitting == SIZE // 3 // 2000 - 1  # with what each has beside its body


async def test_a_prefetch_that_fits_is_never_strained_whatever_the_others_have(
    budget: Budget,
) -> None:
    neighbour, large = await one(budget), await one(budget)
    for _ in range(6):
        await neighbour.get(2000)
    await large.get(LARGE)
    fitting = neighbour.consumer.fitting
    neighbour.stub.connection.abort()
    anew = await one(budget)
    for _ in range(fitting):
        assert anew.is_read()
        await anew.get(2000)
    assert anew.is_read()


def is_calm(calm: Calm, looks: int = strain._CALM_LOOKS) -> bool:
    return [calm.is_long() for _ in range(looks)][-1]


async def test_a_consumer_that_has_had_little_for_a_while_is_calm(budget: Budget) -> None:
    alone = await one(budget)
    await alone.get(SMALL)
    calm = Calm(alone.consumer)
    assert not is_calm(calm, strain._CALM_LOOKS - 1)
    assert calm.is_long()


async def test_a_consumer_is_not_calm_while_twice_what_it_has_does_not_fit(budget: Budget) -> None:
    alone = await one(budget)
    delivery = await alone.get(SIZE // 2)
    calm = Calm(alone.consumer)
    assert not is_calm(calm)
    alone.settle(delivery)
    assert not is_calm(calm, strain._CALM_LOOKS - 1)
    delivery = await alone.get(SIZE // 2)
    assert not calm.is_long()  # and it begins anew
    alone.settle(delivery)
    assert not is_calm(calm, strain._CALM_LOOKS - 1)
    assert calm.is_long()


async def test_a_consumer_is_calm_though_its_neighbour_has_too_much(budget: Budget) -> None:
    small, large = await one(budget), await one(budget)
    await small.get(SMALL)
    await large.get(LARGE)
    assert is_calm(Calm(small.consumer))
    assert not is_calm(Calm(large.consumer))


async def test_a_prefetch_that_fits_beside_what_stays_in_hand_is_never_strained(
    budget: Budget,
) -> None:
    former = await one(budget)
    for _ in range(9):
        await former.get(4000)
    fit = Fit(former.consumer, 10, most=10, stays=True)
    assert [fit.look() for _ in range(strain._LOOKS)] == [10] * (strain._LOOKS - 1) + [2]
    beside = await one(budget)
    for _ in range(2):
        await beside.get(4000)
        assert beside.is_read()


async def test_where_nothing_stays_in_hand_the_prefetch_is_for_all_of_the_share(
    budget: Budget,
) -> None:
    alone = await one(budget)
    for _ in range(9):
        await alone.get(4000)
    fit = Fit(alone.consumer, 10, most=10)
    assert [fit.look() for _ in range(strain._LOOKS)][-1] == alone.consumer.fitting == 7


@pytest.mark.parametrize(("has", "then"), [(4, 8), (6, 10), (10, 10)])
async def test_after_a_calm_it_is_twice_what_it_was_and_never_more_than_usual(
    budget: Budget, has: int, then: int
) -> None:
    fit = Fit((await one(budget)).consumer, has, most=10)
    looks = [fit.look() for _ in range(strain._CALM_LOOKS)]
    assert looks == [has] * (strain._CALM_LOOKS - 1) + [then]


async def test_a_consumer_that_gets_nothing_more_does_not_stop_one_beside_it(
    budget: Budget,
) -> None:
    """Cancelled to be followed by another, with more in hand than is its share by then."""
    former = await one(budget)
    for _ in range(3):
        await former.get(4000)
    said = len(former.stub.transport.written)
    cancelling = asyncio.ensure_future(former.consumer.cancel(take_the_rest=True))
    await eventually_async(lambda: len(former.stub.transport.written) > said)
    former.stub.feed(method(commands.Basic.CancelOk(consumer_tag="any")))
    await cancelling
    beside = await one(budget)
    for _ in range(3):
        await beside.get(4000)
    assert budget.is_spent
    assert former.consumer.unsettled_bytes > budget.share
    assert former.is_read()


async def test_a_consumer_that_the_broker_cancels_is_read_however_much_it_has(
    budget: Budget,
) -> None:
    alone = await one(budget)
    await alone.get(LARGE)
    assert not alone.is_read()
    alone.consumer.end(BrokerError("the queue was deleted"), closed=False)
    assert alone.is_read()
