"""Messages without a message id whose content is equal, such as a tick: which of them are copies.

The consumer derives the `redrive-id` of the content, so all of them have one. Times are seconds
after the beginning; a letter is collected a second after it failed, where nothing else is said.
"""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from sqlalchemy import text

from redrive.amqp import fields
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Collected, Fate
from redrive.store.store import Store
from tests.services.letters import BEGAN, arrival, books_are_exact, death

DAY = 86_400


def tick(
    failed_at: int,
    *,
    marked: bool = False,
    name: str = "r-tick",
    message_id: str | None = None,
    redelivered: bool = False,
    collected_at: int | None = None,
) -> Arrival:
    """A dead message as the consumer leaves it: no x-death, but when it failed first."""
    found = {
        "redrive-id": fields.longstr(name),
        "redrive-queue": fields.longstr("ticks"),
        "redrive-first-failed-at": fields.timestamp(BEGAN + timedelta(seconds=failed_at)),
    }
    if marked:
        found["redrive-redelivered"] = fields.boolean(True)
    return arrival(
        b"tick",
        headers=found,
        properties={} if message_id is None else {"message_id": message_id},
        redelivered=redelivered,
        at=timedelta(seconds=1 + (failed_at if collected_at is None else collected_at)),
    )


async def collected(store: Store, *arrivals: Arrival) -> list[Collected]:
    """What becomes of them, each in a batch of its own."""
    return [kept for each in arrivals for kept in await store.letters.add([each])]


def copies(kept: list[Collected]) -> list[str | None]:
    return [each.letter.duplicate_of for each in kept]


async def test_a_tick_that_fails_today_and_tomorrow_is_no_duplicate_of_itself(
    store: Store,
) -> None:
    kept = await collected(store, *(tick(day * DAY) for day in range(3)))
    kept += await store.letters.add([tick(day * DAY) for day in range(3, 6)])
    assert [each.fate for each in kept] == [Fate.NEW] * 6
    assert await books_are_exact(store)


async def test_with_a_message_id_the_same_redrive_id_is_enough(store: Store) -> None:
    first, second, third = (tick(day * DAY, message_id="m-1") for day in range(3))
    kept = await collected(store, first, second, third)
    assert copies(kept) == [None, first.letter.id, first.letter.id]


async def test_a_marked_copy_is_one_of_the_newest_and_those_after_it_are_none(
    store: Store,
) -> None:
    yesterday, today = tick(-DAY), tick(0)
    second, third = tick(5, marked=True), tick(9, marked=True)
    tomorrow, later = tick(DAY), tick(2 * DAY)
    kept = await collected(store, yesterday, today, second, third, tomorrow, later)
    ids = [None, None, today.letter.id, second.letter.id, None, None]
    assert copies(kept) == ids


async def test_within_one_batch_a_marked_copy_is_recognised_as_well(store: Store) -> None:
    yesterday, first, second, tomorrow = tick(-DAY), tick(0), tick(5, marked=True), tick(DAY)
    kept = await store.letters.add([yesterday, first, second, tomorrow])
    assert copies(kept) == [None, None, first.letter.id, None]
    other = tick(DAY + 5, marked=True)
    assert copies(await store.letters.add([other])) == [tomorrow.letter.id]


async def test_a_first_copy_that_comes_after_the_marked_one_is_left_to_a_person_too(
    store: Store,
) -> None:
    second, tomorrow, first, later = tick(5, marked=True), tick(DAY), tick(0), tick(2 * DAY)
    kept = await collected(store, second, tomorrow, first, later)
    assert copies(kept) == [None, None, second.letter.id, None]


async def test_so_it_is_where_an_equal_one_came_before_both(store: Store) -> None:
    yesterday, second, first, later = tick(-DAY), tick(5, marked=True), tick(0), tick(DAY)
    kept = await collected(store, yesterday, second, first, later)
    assert copies(kept) == [None, yesterday.letter.id, second.letter.id, None]


async def test_a_first_copy_is_known_although_the_marked_one_was_deleted(store: Store) -> None:
    second = tick(5, marked=True, collected_at=10)
    await store.letters.add([second])
    async with store.database.writing() as connection:
        for table in ("redrive_envelope", "redrive_letter", "redrive_ledger"):
            await connection.execute(text(f"DELETE FROM {table}"))
    kept = await collected(store, tick(0, collected_at=DAY), tick(DAY, collected_at=DAY))
    assert copies(kept) == [second.letter.id, None]


async def test_copies_of_one_copy_are_recognised_without_a_mark_whatever_came_between(
    store: Store,
) -> None:
    """A broker that is killed while a delay ends makes them: both have failed at one time."""
    first, other, copy = tick(0), tick(60), tick(0)
    kept = await collected(store, first, other, copy)
    assert copies(kept) == [None, None, first.letter.id]


async def test_what_a_collector_had_stored_and_not_acked_is_recognised_after_days(
    store: Store,
) -> None:
    first, again = tick(0), tick(0, redelivered=True, collected_at=3 * DAY)
    assert copies(await collected(store, first, again)) == [None, first.letter.id]


async def test_what_a_collector_gave_back_is_no_copy_of_an_equal_one(store: Store) -> None:
    kept = await collected(store, tick(0), tick(60, redelivered=True))
    assert copies(kept) == [None, None]


async def test_without_a_time_what_is_redelivered_counts_as_marked(store: Store) -> None:
    named = {"redrive-id": fields.longstr("r-1"), "redrive-queue": fields.longstr("ticks")}
    first, other = arrival(b"tick", headers=named), arrival(b"tick", headers=named)
    again = arrival(b"tick", headers=named, redelivered=True, at=timedelta(days=3))
    kept = await collected(store, first, other, again)
    assert copies(kept) == [None, None, other.letter.id]


async def test_of_two_copies_stored_at_once_beside_an_equal_one_each_sees_the_other(
    store: Store,
) -> None:
    for number in range(20):
        name = f"r-{number}"
        await store.letters.add([tick(-DAY, name=name)])
        first, second = tick(0, name=name), tick(5, name=name, marked=True)
        results = await asyncio.gather(store.letters.add([first]), store.letters.add([second]))
        marked = {kept.letter.id: kept.letter.duplicate_of for (kept,) in results}
        if marked[first.letter.id] is None:  # it was the first
            assert marked[second.letter.id] == first.letter.id
        else:
            assert marked[first.letter.id] == second.letter.id


async def test_writers_of_the_same_ticks_never_wait_for_each_other(store: Store) -> None:
    names = [f"r-{number}" for number in range(40)]
    chance = random.Random(5)

    async def write(batch: int) -> None:
        for number in range(5):
            order = chance.sample(names, 30)
            at = DAY * (10 * batch + number)
            await store.letters.add(
                [tick(at, name=each, marked=chance.random() < 0.3) for each in order]
            )

    async with asyncio.timeout(60):
        await asyncio.gather(*(write(batch) for batch in range(4)))
    assert (await store.books.ledger()).received == 4 * 5 * 30
    assert await books_are_exact(store)


async def test_copies_of_a_restored_letter_are_recognised_and_equal_ones_are_none(
    store: Store,
) -> None:
    first = tick(5, marked=True)
    await store.letters.add([first])
    kept = [each async for each in store.letters.stream(Filters())]
    async with store.database.writing() as connection:
        for table in ("redrive_letter", "redrive_envelope", "redrive_identity", "redrive_ledger"):
            await connection.execute(text(f"DELETE FROM {table}"))
    await store.letters.restore(kept)
    found = await collected(store, tick(DAY), tick(5), tick(0))
    assert copies(found) == [None, first.letter.id, first.letter.id]


async def test_what_was_parked_twice_says_so(store: Store) -> None:
    """The retrier could give it no `redrive-id`, and a broker that was killed made two of it."""

    def parked(at: int) -> Arrival:
        deaths = [death("retry-queue", at=at), death("orders", at=at - 1)]
        return arrival(headers={"x-death": fields.array(deaths)}, properties={"message_id": "m-1"})

    first, second = parked(1), parked(3)
    kept = await collected(store, first, second)
    assert copies(kept) == [None, first.letter.id]
    assert await books_are_exact(store)
