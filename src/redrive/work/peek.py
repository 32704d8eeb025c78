"""Peeking: the first messages of a queue, read as letters are, and left in it.

Guarantees: no more messages are touched than are shown; they go back in their order where the queue
can keep it, by the way that costs them nothing. Where that is not possible, nothing is touched
unless told.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from redrive.amqp import Delivery, Publish, Refused, Returned
from redrive.domain.letter import Arrival
from redrive.errors import BrokerError
from redrive.work.look import Looks, told_of_interruption, told_of_lost
from redrive.work.mover import Hold, Limits
from redrive.work.queue_site import QueueSite
from redrive.work.system_state import SystemState
from redrive.work.understand import Understanding, utc_now

_UNMEASURED = SystemState(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Peeked:
    """What was seen of a queue."""

    messages: tuple[Arrival, ...]
    present: int
    notes: tuple[str, ...]
    error: str = ""
    """What went wrong with them, if anything did."""


class Peek:
    """The plan: read each message, hold it."""

    def __init__(self, queue: str, understanding: Understanding) -> None:
        self.seen: list[Arrival] = []
        self._queue = queue
        self._understanding = understanding

    def decide(self, delivery: Delivery, user: str) -> Hold:
        self.seen.append(
            self._understanding.arrival(
                delivery,
                self._queue,
                now=utc_now(),
                random=secrets.randbits(74),
                state=_UNMEASURED,
            )
        )
        return Hold()

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Hold:
        raise AssertionError("nothing was sent")

    def poisoned(self, delivery: Delivery, reason: str) -> Hold:
        return Hold(reason)


async def peek(  # noqa: PLR0913  (the last four are as they are by default)
    site: QueueSite,
    queue: str,
    understanding: Understanding,
    *,
    most: int,
    spend_deliveries: bool = False,
    limits: Limits | None = None,
    stopping: asyncio.Event | None = None,
) -> Peeked:
    """The first messages of a queue that must be there; fewer, if it is stopped before."""
    facts = await site.existing(queue)
    looks = Looks(site.version, spend_deliveries, site.management is not None)
    looks.check(facts)
    plan = Peek(queue, understanding)
    look = site.pass_over(facts, plan, limits=limits, most=most)
    try:
        passed = await look.run(stopping)
    except BrokerError as error:
        if lost := told_of_lost(look.passed):
            raise BrokerError(f"{error}; {lost}") from error
        raise
    notes = looks.notes(facts, passed)
    if passed.interrupted:
        notes.append(told_of_interruption(passed))
    wrong = told_of_lost(passed) or passed.shortfall
    return Peeked(tuple(plan.seen), passed.present, tuple(notes), wrong)
