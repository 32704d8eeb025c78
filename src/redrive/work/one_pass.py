"""One pass over a queue: each message that is there at its start is looked at once, by a plan.

It is the Mover's session on a `Window`: all rules on confirms, returns and poison are the Mover's.
Where giving back may be a message's end, it is on `OneByOne`, by a plan that spares those.
What the plan holds goes back at the end, in its order where the queue can keep it. A pass is not
taken up again: if the broker is lost, what was unsettled is back in its queue, and the error goes
to the caller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import structlog

from redrive.amqp import Connection, Delivery, Publish, Refused, Returned
from redrive.amqp.lane import Connect, Lane
from redrive.work.mover import (
    Counts,
    Hold,
    Instruction,
    Limits,
    MoverSession,
    Pace,
    Park,
    Plan,
    Stay,
)
from redrive.work.one_by_one import AT_ONCE, OneByOne
from redrive.work.sparing import Sparing, assure_that_we_may_publish
from redrive.work.window import Window

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Passed:
    """What a pass saw."""

    present: int = 0
    """Messages that were ready when it began."""
    consumers: int = 0
    """Consumers that were there before us."""
    examined: int = 0
    counts: Counts = field(default_factory=Counts)
    cut_short: str = ""
    """Why it did not see all that it should have, if it did not."""
    went_back: int = 0
    """Messages that were taken and given back, also those that nobody looked at."""

    spared: int = 0
    """Messages at their delivery limit that stay as a copy; the Mover counts them as moved."""
    lost: Counter[str] = field(default_factory=Counter)
    """Why others of them could not be kept, and how many."""

    @property
    def moved(self) -> int:
        """Messages that are not in the queue any more."""
        return max(0, self.counts.moved - self.spared)

    @property
    def untouched(self) -> int:
        """How many of them were not even taken."""
        return max(0, self.present - self.counts.moved - self.went_back)


class OnePass:
    """Looks at the messages of one queue, once."""

    def __init__(
        self,
        queue: str,
        plan: Plan,
        *,
        connect: Connect,
        limits: Limits | None = None,
        most: int | None = None,
    ) -> None:
        """`most` messages are looked at; all that are there by default."""
        self.queue = queue
        self.passed = Passed()
        """What was seen so far."""
        self.pace: Pace | None = None
        self.classic = False
        """Whether it is known to be a classic queue: what those get back comes in another order."""
        self._plan = plan
        self._connect = connect
        self._limits = limits or Limits()
        self._most = most
        self._ended = False
        self._window: Window | OneByOne | None = None
        self._sparing: Sparing | None = None

    def spare(self, limit: int | None, own_queues: Collection[str]) -> None:
        """Let no message be removed by being given back, if there is a delivery limit for that."""
        if limit is not None:
            self._sparing = Sparing(self._plan, self.queue, limit, own_queues, self.passed)
            self._sparing.end = self.end
            self._plan = self._sparing

    def end(self) -> None:
        """Look at no more messages; what is under way is finished, as at the end of all."""
        self._ended = True
        if self._window is not None:
            self._window.end()

    # The session's plan is ours, which counts, and leaves unread what comes after the end.

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        if self._ended:
            return Hold() if self._sparing is None else self._sparing.leave(delivery, user)
        self.passed.examined += 1
        return self._plan.decide(delivery, user)

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        return await self._plan.reconsider(delivery, sent, outcome)

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay | Hold:
        return self._plan.poisoned(delivery, reason)

    async def run(self, stopping: asyncio.Event | None = None) -> Passed:
        """Look at them. Raises the `BrokerError` that ended it; `passed` has what was done."""
        source = await self._connect(f"redrive look into {self.queue}")
        lane = Lane(self._connect, f"redrive publish from {self.queue}")
        try:
            channel = await source.channel()
            self.passed.present, self.passed.consumers = await channel.inspect_queue(self.queue)
            await channel.close()
            count = min(self.passed.present, self._most or self.passed.present)
            if count:
                if self._sparing is not None:
                    await assure_that_we_may_publish(self._connect, self.queue)
                await lane.open()
                window = self._opened(source, count)
                await self._look(window, lane, stopping or asyncio.Event())
                await lane.close()
            await source.close()
        finally:
            lane.abort()
            source.abort()
        return self.passed

    def _opened(self, source: Connection, count: int) -> Window | OneByOne:
        if self._sparing is None:
            return Window(
                source, self.queue, count=count, limits=self._limits, classic=self.classic
            )
        return OneByOne(source, self.queue, count=count, limits=self._limits, pace=self.pace)

    async def _look(self, window: Window | OneByOne, lane: Lane, stopping: asyncio.Event) -> None:
        self._window = window
        in_advance = isinstance(window, Window)
        most = self._limits.prefetch
        session = MoverSession(
            self,
            window,
            lane,
            self.passed.counts,
            log.bind(queue=self.queue),
            most=most if in_advance else min(most, AT_ONCE),
            pace=self.pace if in_advance else None,
        )
        await window.open()
        try:
            await session.run(until=stopping)
        finally:
            self.passed.cut_short = window.cut_short
            self.passed.went_back = window.given_back
