"""What waits for a writer of the store, and how much of it a writer takes."""

from __future__ import annotations

import asyncio
from typing import cast

from redrive.amqp import Delivery
from redrive.domain.letter import Arrival
from redrive.work.pile import Pile


def delivery(tag: int, size: int = 10) -> Delivery:
    return Delivery(tag, False, "", "q", b"", bytes(size))


def add(pile: Pile, *deliveries: Delivery) -> None:
    """Each with itself as what it was understood as: the pile does not look into that."""
    pile.add(deliveries, [cast("Arrival", each) for each in deliveries])


async def taken(pile: Pile) -> list[int] | None:
    batch = await pile.take()
    if batch is None:
        return None
    deliveries, arrivals = batch
    assert list(map(id, arrivals)) == list(map(id, deliveries))
    return [each.tag for each in deliveries]


async def test_a_writer_takes_all_that_was_added_meanwhile_in_its_order() -> None:
    pile = Pile()
    add(pile, delivery(1))
    add(pile, delivery(2), delivery(3))
    assert await taken(pile) == [1, 2, 3]


async def test_no_more_than_500_are_taken_at_a_time_and_the_rest_stays() -> None:
    pile = Pile()
    add(pile, *map(delivery, range(1, 503)))
    assert await taken(pile) == list(range(1, 501))
    assert await taken(pile) == [501, 502]


async def test_of_more_than_a_hundred_whole_hundreds_are_taken() -> None:
    pile = Pile()
    add(pile, *map(delivery, range(1, 251)))
    assert await taken(pile) == list(range(1, 201))
    assert await taken(pile) == list(range(201, 251))


async def test_no_more_than_8_mb_are_taken_at_a_time() -> None:
    pile = Pile()
    add(pile, delivery(1, 3_000_000), delivery(2, 3_000_000), delivery(3, 3_000_000))
    assert await taken(pile) == [1, 2]
    assert await taken(pile) == [3]


async def test_a_message_that_is_larger_than_that_is_taken_alone() -> None:
    pile = Pile()
    add(pile, delivery(1, 15_000_000), delivery(2))
    assert await taken(pile) == [1]
    assert await taken(pile) == [2]


async def test_who_finds_nothing_waits_until_something_is_added() -> None:
    pile = Pile()
    taking = asyncio.create_task(taken(pile))
    await asyncio.sleep(0)
    assert not taking.done()
    add(pile, delivery(1))
    assert await asyncio.wait_for(taking, 5) == [1]


async def test_of_two_who_wait_the_second_goes_on_waiting_when_the_first_has_taken_all() -> None:
    pile = Pile()
    first, second = asyncio.create_task(taken(pile)), asyncio.create_task(taken(pile))
    await asyncio.sleep(0)
    add(pile, delivery(1))
    assert await asyncio.wait_for(first, 5) == [1]
    assert not second.done()
    add(pile, delivery(2))
    assert await asyncio.wait_for(second, 5) == [2]


async def test_what_is_there_when_it_is_closed_is_taken_and_then_everybody_is_sent_home() -> None:
    pile = Pile()
    add(pile, delivery(1))
    pile.close()
    assert await taken(pile) == [1]
    assert await taken(pile) is None
    assert await taken(pile) is None
