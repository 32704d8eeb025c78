"""One pass over a queue: each message that is there at its start is looked at once, by a plan.

It is the Mover's session on a `Window`: all rules on confirms, returns and poison are the Mover's.
Where giving back may be a message's end, it is on `OneByOne`, by a plan that spares those.
What the plan holds goes back at the end, in its order where the queue can keep it.

A pass is not taken up again: its error goes to the caller, and all that is unsettled goes back. As
long as the connection to the queue is open, by a nack, which costs nothing where looks cost
nothing; only what was on a connection that is lost is given back by the broker, which counts that
as a delivery. A pass that is stopped has a few seconds to finish what is under way, then it goes
back too: what is unconfirmed then, as while the broker blocks publishers, is in doubt. Its message
is in its queue, marked as redelivered, and the copy may be in its new place as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

import structlog

from redrive.amqp import Connection, Delivery, Publish, Refused, Returned
from redrive.amqp.lane import Connect, Lane
from redrive.amqp.supervision import run_until_stopped
from redrive.errors import BrokerError, ConnectionLost, ConsumerCancelled
from redrive.work.mover import (
    Counts,
    Hold,
    Instruction,
    Limits,
    MoverSession,
    Pace,
    Park,
    Plan,
    Prepare,
    Stay,
)
from redrive.work.one_by_one import AT_ONCE, OneByOne
from redrive.work.sparing import Sparing, assure_that_copies_can_be_made
from redrive.work.window import Window

log = structlog.get_logger()

# SIGTERM promises ten seconds: these are spent one after the other.
_DRAINS_WITHIN: Final = 4.0
"""Seconds that a pass has to finish what is under way once it should stop."""
_RETURNS_WITHIN: Final = 3.0
"""Seconds for giving everything back in its order; after that it goes back in any."""
_CLOSES_WITHIN: Final = 2.0
_RESCUED_WITHIN: Final = 1.0
"""Of the seconds for giving back, those for copies of what would not live through that."""
_FETCHED_WITHIN: Final = 0.4
"""Of these, those for a message that is on its way to us."""

_AGAIN: Final = "run it again: all that was not moved is in its queue"


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
    again: bool = False
    """Whether the last of them that was seen had been delivered before."""
    spared: int = 0
    """Messages at their delivery limit that stay as a copy; the Mover counts them as moved."""
    lost: Counter[str] = field(default_factory=Counter)
    """Why others of them could not be kept, and how many."""
    left_to_the_broker: bool = False
    """Whether the broker had to take back by itself what was unsettled: it counts a delivery."""

    unsure: int = 0
    """Messages that were moved, and are in their queue again unless the broker had read that."""
    interrupted: bool = False
    """Whether it was told to stop."""
    taken_by_others: int = 0
    """Messages that were gone when it came to them."""

    @property
    def moved(self) -> int:
        """Messages that are not in the queue any more."""
        return max(0, self.counts.moved - self.spared)

    @property
    def shortfall(self) -> str:
        """What it did not see and why, in words."""
        return (
            f"{self.missed} messages were not looked at: {self.cut_short}" if self.cut_short else ""
        )

    @property
    def missed(self) -> int:
        """How many it did not see."""
        return max(0, self.present - self.examined)

    @property
    def untouched(self) -> int:
        """How many of them were not even taken."""
        return max(0, self.present - self.counts.moved - self.went_back)


class OnePass:
    """Looks at the messages of one queue, once."""

    def __init__(  # noqa: PLR0913  (what is not named is as it is for a plain look)
        self,
        queue: str,
        plan: Plan,
        *,
        connect: Connect,
        limits: Limits | None = None,
        most: int | None = None,
        pace: Pace | None = None,
        classic: bool = False,
        removed_at: int | None = None,
        own_queues: Container[str] = (),
    ) -> None:
        """`most` messages are looked at; all that are there by default. `classic` if it is known to
        be such a queue: what those get back comes in another order. `removed_at`: a message that
        has come back so many times is removed when it is given back, and is to be spared that."""
        self.queue = queue
        self.passed = Passed()
        """What was seen so far."""
        self.prepare: Prepare | None = None
        """What to wait for before the messages of a batch are decided on."""
        self._plan = plan
        self._connect = connect
        self._limits = limits or Limits()
        self._most = most
        self._pace = pace
        self._classic = classic
        self._window: Window | OneByOne | None = None
        self._told_to_end = False
        self._sparing: Sparing | None = None
        if removed_at is not None:
            self._sparing = Sparing(
                plan, queue, removed_at, own_queues, self.passed, give_up=self.end
            )
            self._plan = self._sparing

    def end(self) -> None:
        """Look at no more messages; what is under way is finished, as at the end of all."""
        self._told_to_end = True
        if self._window is not None:
            self._window.end()

    # The session's plan is ours, which counts, and leaves unread what comes after the end.

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        self.passed.again = delivery.redelivered
        if self._window is None or self._window.has_ended:
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
        closed = False
        lane = Lane(self._connect, f"redrive publish from {self.queue}")
        try:
            channel = await source.channel()
            self.passed.present, self.passed.consumers = await channel.inspect_queue(self.queue)
            await channel.close()
            count = min(self.passed.present, self._most or self.passed.present)
            if count:
                if self._sparing is not None:
                    await assure_that_copies_can_be_made(self._connect, self.queue)
                await lane.open()
                window = self._opened(source, count)
                await self._look(window, source, lane, stopping or asyncio.Event())
                self._tell_of_the_rest(count - self.passed.examined, stopping)
            await _closed(lane)
            if not self.passed.left_to_the_broker:  # it has not answered to being closed
                await source.close()
                closed = True
        except (ConnectionLost, ConsumerCancelled) as error:
            error.advise(_AGAIN)  # theirs is meant for what connects again by itself
            raise
        finally:
            lane.abort()
            source.abort()
            if not closed:
                acked = 0 if self._window is None else self._window.acked
                self.passed.unsure = max(0, self.passed.counts.moved - acked)
        return self.passed

    def _tell_of_the_rest(self, missing: int, stopping: asyncio.Event | None) -> None:
        """Note why it has seen fewer messages than it meant to, unless it is known."""
        if stopping is not None and stopping.is_set():
            self.passed.interrupted = True
        elif not (self._told_to_end or self.passed.cut_short):
            self.passed.taken_by_others = missing

    def _opened(self, source: Connection, count: int) -> Window | OneByOne:
        if self._sparing is None:
            return Window(
                source, self.queue, count=count, limits=self._limits, classic=self._classic
            )
        return OneByOne(source, self.queue, count=count, limits=self._limits, pace=self._pace)

    async def _look(
        self,
        window: Window | OneByOne,
        source: Connection,
        lane: Lane,
        stopping: asyncio.Event,
    ) -> None:
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
            pace=self._pace if in_advance else None,
            prepare=self.prepare,
        )

        async def look() -> None:
            await window.open()
            await session.run(until=stopping)

        in_order = False
        try:
            in_order = await run_until_stopped(look, stopping, grace=_DRAINS_WITHIN)
        except Exception:
            await self._return_everything(window, source, lane, stopping)
            raise
        finally:
            self.passed.cut_short = window.cut_short
            self.passed.went_back = window.given_back
        if not in_order:
            await self._return_everything(window, source, lane, stopping)

    async def _return_everything(
        self, window: Window | OneByOne, source: Connection, lane: Lane, stopping: asyncio.Event
    ) -> None:
        """Give back what is unsettled, after the session ended before its end."""
        lane.abort()  # what has not gone out yet need not
        within = _RETURNS_WITHIN
        if isinstance(window, OneByOne):
            await self._rescue(window, stopping)
            within -= _RESCUED_WITHIN
        returned = await window.return_everything(within)
        closed = await _closed(source)
        self.passed.went_back = window.given_back
        self.passed.left_to_the_broker = not (returned and closed)

    async def _rescue(self, window: OneByOne, stopping: asyncio.Event) -> None:
        """Keep what would not live through being given back."""
        assert self._sparing is not None
        sparing = self._sparing

        def kept(delivery: Delivery) -> None:
            with contextlib.suppress(BrokerError):  # with its connection, the broker has removed it
                window.check()
                window.ack(delivery)

        async def rescue() -> None:
            with contextlib.suppress(TimeoutError):  # a broker that hangs has all the same to hear
                async with asyncio.timeout(_FETCHED_WITHIN):
                    await window.fetched()
            await sparing.rescue(window.under_way, self._connect, kept)

        await run_until_stopped(rescue, stopping, grace=_RESCUED_WITHIN)


async def _closed(end: Connection | Lane) -> bool:
    """Close in good order; whether the broker answered in time. One that blocks publishers does not
    hear them."""
    try:
        async with asyncio.timeout(_CLOSES_WITHIN):
            await end.close()
    except TimeoutError:
        return False
    return True
