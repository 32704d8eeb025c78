"""Whether what is rejected is kept: asked anew for each who asks, but once for many."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from redrive.errors import ConnectionLost
from redrive.work.parking import Parking


class Broker:
    """Answers when it is told to, and counts the questions."""

    def __init__(self, *keeps: str) -> None:
        self.keeps: Collection[str] = keeps
        self.questions = 0
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self) -> Collection[str]:
        self.questions += 1
        self.asked.set()
        keeps = self.keeps
        await self.may_answer.wait()
        return keeps


async def test_a_queue_is_known_to_keep_what_is_rejected_if_the_broker_says_so() -> None:
    parking = Parking(Broker("retry-queue").ask)
    assert await parking.keeps("retry-queue")
    assert not await parking.keeps("somebodys")


async def test_it_is_asked_anew_each_time() -> None:
    broker = Broker("retry-queue")
    parking = Parking(broker.ask)
    assert await parking.keeps("retry-queue")
    broker.keeps = ()
    assert not await parking.keeps("retry-queue")


async def test_many_who_ask_at_a_time_get_one_answer_of_a_question_after_theirs() -> None:
    broker = Broker("retry-queue")
    broker.may_answer.clear()
    parking = Parking(broker.ask)
    first = asyncio.create_task(parking.keeps("retry-queue"))
    await broker.asked.wait()
    broker.keeps = ()
    others = [asyncio.create_task(parking.keeps("retry-queue")) for _ in range(100)]
    await asyncio.sleep(0)
    broker.may_answer.set()
    assert await first
    assert not any(await asyncio.gather(*others))
    assert broker.questions == 2


async def test_one_who_no_longer_waits_takes_no_answer_from_the_others() -> None:
    broker = Broker("retry-queue")
    broker.may_answer.clear()
    parking = Parking(broker.ask)
    gone, stays = (asyncio.create_task(parking.keeps("retry-queue")) for _ in range(2))
    await broker.asked.wait()
    gone.cancel()
    broker.may_answer.set()
    assert await stays


async def test_nothing_is_known_to_be_kept_where_nobody_can_be_asked() -> None:
    async def lost() -> Collection[str]:
        raise ConnectionLost("the broker is away")

    assert not await Parking(lost).keeps("retry-queue")
