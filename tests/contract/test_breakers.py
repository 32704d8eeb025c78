"""Breakers in the store: one suite that SQLite and PostgreSQL both pass, for real.

After every test the books are exact, and every letter's history leads to what it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from redrive.domain.breaker import USUAL, Breaker, Position
from redrive.domain.filters import Filters
from redrive.domain.letter import Claim, Head, Letter, Result
from redrive.domain.replay import Destination, ReplayOrder
from redrive.domain.revival import Decision, Send
from redrive.domain.strategy import CONDITIONS_AGAIN
from redrive.domain.verdict import Receipt
from redrive.store.breakers import gate_of
from redrive.store.store import Store
from tests.services.sending import (
    LEASE,
    QUEUE,
    VHOST,
    all_is_consistent,
    claimed,
    come_back,
    later,
    letter,
    new_id,
    sending,
    sent,
    stored,
)

GATED = sending(gated=True)


@pytest.fixture(autouse=True)
async def _consistent(store: Store) -> AsyncIterator[None]:
    yield
    await all_is_consistent(store)


async def fail(store: Store, number: int) -> None:
    """So many letters come back from the queue, and are due once more."""
    await stored(store, number)
    await come_back(store, await sent(store, limit=number))


async def breaker(store: Store, queue: str = QUEUE) -> Breaker:
    (found,) = [each for each in await store.breakers.all() if each.queue == queue]
    assert found.vhost == VHOST
    return found.breaker


async def test_a_breaker_opens_after_five_returns(store: Store) -> None:
    await fail(store, 4)
    assert (await breaker(store)).state is Position.CLOSED
    await fail(store, 1)
    assert (await breaker(store)).state is Position.OPEN


async def test_returns_of_one_batch_count_each(store: Store) -> None:
    await fail(store, 5)
    assert (await breaker(store)).state is Position.OPEN


async def test_a_second_copy_of_a_return_does_not_count(store: Store) -> None:
    await stored(store)
    claims = await sent(store)
    for _ in range(5):
        await come_back(store, claims)
    assert (await breaker(store)).failures == 1


async def test_a_success_in_between_begins_the_count_anew(store: Store) -> None:
    await fail(store, 4)
    (claim, *_) = await sent(store)
    await store.verdicts.settle_receipts([Receipt(letter=claim.letter.id, generation=2)])
    assert (await breaker(store)).failures == 0


async def test_what_comes_back_from_an_exchange_opens_no_breaker(store: Store) -> None:
    await stored(store, 5)
    await come_back(store, await sent(store, sending(None)))
    assert await store.breakers.all() == []


async def test_while_a_breaker_is_open_gated_letters_wait_without_a_word(store: Store) -> None:
    await fail(store, 5)
    taken = await store.sendings.take_due("worker-1", VHOST, 10, GATED)
    assert (taken.claims, taken.looked_at) == ([], 5)
    opened = await breaker(store)
    (waiting, *_) = await stored(store)
    await claimed(store, GATED)
    now = await letter(store, waiting)
    assert (now.strategy, now.next_retry_at) == ("immediate", opened.next_probe_at())
    assert len(await store.letters.history(waiting)) == 1


async def test_other_letters_pass_an_open_breaker(store: Store) -> None:
    await fail(store, 5)
    assert len(await claimed(store)) == 5


async def test_another_queue_has_a_breaker_of_its_own(store: Store) -> None:
    await fail(store, 5)
    assert len(await claimed(store, sending("billing", gated=True))) == 5


async def test_half_open_it_admits_one_letter_of_a_batch(store: Store) -> None:
    await fail(store, 5)
    later(store, USUAL.wait)
    assert len(await claimed(store, GATED)) == 1
    assert (await breaker(store)).state is Position.HALF_OPEN


async def test_half_open_it_admits_one_letter_of_many_workers(store: Store) -> None:
    await fail(store, 6)
    later(store, USUAL.wait)
    found = await asyncio.gather(
        *(claimed(store, GATED, worker=f"worker-{number}", limit=1) for number in range(6))
    )
    assert sum(map(len, found)) == 1


async def test_a_probe_that_is_consumed_closes_it(store: Store) -> None:
    await fail(store, 5)
    later(store, USUAL.wait)
    (claim,) = await sent(store, GATED)
    await store.verdicts.settle_receipts([Receipt(letter=claim.letter.id, generation=2)])
    assert await breaker(store) == Breaker()
    later(store, USUAL.probe_patience)
    assert len(await claimed(store, GATED)) == 4


async def test_a_probe_that_comes_back_doubles_the_wait(store: Store) -> None:
    await fail(store, 5)
    later(store, USUAL.wait)
    await come_back(store, await sent(store, GATED))
    opened = await breaker(store)
    assert (opened.state, opened.wait) == (Position.OPEN, 2 * USUAL.wait)
    later(store, 2 * USUAL.wait - timedelta(seconds=30))
    assert await claimed(store, GATED) == []


async def test_a_probe_of_which_nothing_is_heard_is_given_up(store: Store) -> None:
    await fail(store, 5)
    later(store, USUAL.wait)
    await sent(store, GATED)
    later(store, USUAL.probe_patience)
    assert len(await claimed(store, GATED)) == 1


async def test_forced_open_it_holds_everything_until_it_is_released(store: Store) -> None:
    await stored(store, 2)
    forced = await store.breakers.force(VHOST, QUEUE, Position.OPEN)
    assert forced == await breaker(store)
    assert await claimed(store, GATED) == []
    later(store, CONDITIONS_AGAIN)
    assert await claimed(store, GATED) == []
    await store.breakers.force(VHOST, QUEUE, None)
    later(store, CONDITIONS_AGAIN)
    assert len(await claimed(store, GATED)) == 2


async def test_forced_closed_it_admits_all_and_goes_on_counting_beneath(store: Store) -> None:
    await store.breakers.force(VHOST, QUEUE, Position.CLOSED)
    await fail(store, 5)
    assert len(await claimed(store, GATED)) == 5
    released = await store.breakers.force(VHOST, QUEUE, None)
    assert released.state is Position.OPEN


async def test_failures_noted_by_many_at_once_all_count(store: Store) -> None:
    await stored(store, 4)
    claims = await sent(store)
    await asyncio.gather(*(come_back(store, [claim]) for claim in claims))
    assert (await breaker(store)).failures == 4
    results = [(await store.letters.attempts(claim.letter.id))[-1].result for claim in claims]
    assert results == [Result.RETURNED] * 4


@pytest.mark.parametrize("who", ["a worker", "a replay"])
async def test_who_needs_several_breakers_waits_for_them_in_one_order(
    store: Store, who: str
) -> None:
    """Or two that need the same would wait for each other."""
    await stored(store)
    await stored(store, queue="billing")  # its breaker comes first, whatever the letters' order
    for queue in ("billing", QUEUE):
        await store.breakers.force(VHOST, queue, Position.CLOSED)

    def to_origin(one: Letter | Head) -> Destination:
        return Destination(queue=one.queue)

    def decide(one: Letter, _: datetime, __: bool) -> Decision:
        return Send(strategy="conditional", queue=one.queue, gated=True)

    async def send() -> list[Claim]:
        if who == "a worker":
            return await claimed(store, decide)
        return (await store.replays.take_batch(job, "job-1", to_origin)).claims

    order = ReplayOrder(actor="me", described="")
    made = await store.replays.create(new_id(), VHOST, Filters(), order)
    assert made is not None
    job = await store.replays.begin(made.id, "job-1", LEASE)
    async with store.database.writing() as connection:
        now = await store.clock.now(connection)
        await gate_of(connection, [(VHOST, "billing")], now)
        sending_ = asyncio.create_task(send())
        await asyncio.wait((sending_,), timeout=0.3)
        assert not sending_.done(), "it waits for the first of its breakers"
        await gate_of(connection, [(VHOST, QUEUE)], now)
    assert len(await sending_) == 2
