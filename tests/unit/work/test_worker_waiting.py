"""While the broker takes nothing, a worker claims nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

from redrive.domain.strategy import Rules, Timetable
from redrive.store.sendings import Sendings
from redrive.work.conditions import Conditions
from redrive.work.sender import Sender
from redrive.work.worker import Worker


class Blocked:
    """A sender whose broker has blocked publishers, until it is told."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.unblocked = asyncio.Event()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def abort(self) -> None: ...

    async def ready(self) -> None:
        self.asked.set()
        await self.unblocked.wait()


class Counting(Worker):
    """A worker whose rounds, in which it claims, are only counted."""

    rounds = 0

    async def round(self, sender: Sender) -> int:
        self.rounds += 1
        self.stop()
        return 1


def worker(sender: Blocked) -> Counting:
    nothing = cast("Any", None)
    return Counting(
        "worker-1",
        "/",
        cast("Sendings", nothing),
        lambda: cast("Sender", sender),
        rules=cast("Rules", nothing),
        timetable=cast("Timetable", nothing),
        conditions=cast("Conditions", nothing),
        destination_of=lambda _: None,
        max_revivals=5,
        batch=10,
        poll=timedelta(seconds=30),
        verdict_after=timedelta(minutes=10),
    )


async def test_while_the_broker_takes_nothing_a_worker_claims_nothing() -> None:
    sender = Blocked()
    working = worker(sender)
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(10):
        await sender.asked.wait()
        assert working.rounds == 0
        sender.unblocked.set()
        await running
    assert working.rounds == 1


async def test_a_worker_ends_while_the_broker_takes_nothing() -> None:
    sender = Blocked()
    working = worker(sender)
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(10):
        await sender.asked.wait()
        working.stop()
        await running
    assert working.rounds == 0
