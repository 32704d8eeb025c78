"""While the broker takes nothing, or the way back is missing, a worker claims nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from redrive.domain.letter import Claim, Result
from redrive.domain.lifecycle import State
from redrive.domain.strategy import Rules, Timetable
from redrive.store.sendings import Sendings
from redrive.work import worker as worker_module
from redrive.work.conditions import Conditions
from redrive.work.sender import Sender, Sent
from redrive.work.worker import Worker
from tests.unit.work.letters import a_letter, an_envelope


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

    async def has_way(self) -> bool:
        return True


class Astray(Blocked):
    """A sender that found no return exchange, until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_again = asyncio.Event()

    async def ready(self) -> None: ...

    async def has_way(self) -> bool:
        if self.asked.is_set():
            self.asked_again.set()
        self.asked.set()
        return self.unblocked.is_set()


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


async def test_while_the_return_exchange_is_missing_a_worker_claims_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "_LOOK_FOR_WAY", 0.001)
    sender = Astray()
    working = worker(sender)
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(10):
        await sender.asked_again.wait()
        assert working.rounds == 0
        sender.unblocked.set()
        await running
    assert working.rounds == 1


async def test_a_worker_ends_while_the_return_exchange_is_missing() -> None:
    sender = Astray()
    working = worker(sender)
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(4):
        await sender.asked.wait()
        working.stop()
        await running
    assert working.rounds == 0


@pytest.mark.parametrize(
    ("why", "after", "revival"),
    [
        ({"no_way": True}, State.PENDING, False),
        ({"unwritten": True}, State.PENDING, False),
        ({"cut_off": True}, State.PENDING, False),
        ({}, State.FAILED, True),
    ],
    ids=["a missing return exchange", "lost before", "lost while its queue was sought", "full"],
)
def test_what_is_not_the_queues_is_no_revival_and_fails_no_letter(
    why: dict[str, bool], after: State, revival: bool
) -> None:
    """It has had four of five revivals: a queue that is full would be the last."""
    claim = Claim(
        letter=a_letter(dlq_retry_count=4),
        generation=5,
        envelope=an_envelope(),
        queue="orders",
        exchange=None,
    )
    sent = Sent(claim=claim, result=Result.REFUSED, reason="why", passing=True, **why)
    outcome = worker(Blocked())._outcome(sent)
    assert (outcome.after, outcome.revival, outcome.result) == (after, revival, Result.REFUSED)
    assert outcome.retry_in
