"""One pass over a queue: each message that is there at its start is looked at once, by a plan.

It is the Mover's session on a `Window`: all rules on confirms, returns and poison are the Mover's.
What the plan holds goes back at the end, in its order where the queue can keep it. A pass is not
taken up again: if the broker is lost, what was unsettled is back in its queue, and the error goes
to the caller.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from redrive.amqp import Delivery, Publish, Refused, Returned
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
        self._window: Window | None = None

    def end(self) -> None:
        """Look at no more messages; what is under way is finished, as at the end of all."""
        self._ended = True
        if self._window is not None:
            self._window.end()

    # The session's plan is ours, which counts, and leaves unread what comes after the end.

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        if self._ended:
            return Hold()
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
                await lane.open()
                window = Window(
                    source,
                    self.queue,
                    count=count,
                    limits=self._limits,
                    classic=self.classic,
                )
                await self._look(window, lane, stopping or asyncio.Event())
                await lane.close()
            await source.close()
        finally:
            lane.abort()
            source.abort()
        return self.passed

    async def _look(self, window: Window, lane: Lane, stopping: asyncio.Event) -> None:
        self._window = window
        session = MoverSession(
            self,
            window,
            lane,
            self.passed.counts,
            log.bind(queue=self.queue),
            most=self._limits.prefetch,
            pace=self.pace,
        )
        await window.open()
        try:
            await session.run(until=stopping)
        finally:
            self.passed.cut_short = window.cut_short
            self.passed.went_back = window.given_back
