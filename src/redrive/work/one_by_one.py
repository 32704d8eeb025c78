"""What a careful pass takes from a queue: one message after the other, each seen by the plan.

A consumer is given messages in advance, and what the plan has not seen by the end goes back unseen.
Where giving back may be a message's end, that would be so for messages that nobody knows of. So
these are fetched one at a time: slower, a round trip each, and none is taken that is not decided
upon. What is held goes back at the end, in its order.

A channel passes on up to 32 answers to a quorum queue at a time, and keeps further ones to itself,
in no order, until the queue has taken those; closed before, it forgets them. What was fetched is
answered by an answer for each message. So there are never more under way at once.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from redrive.amqp import Channel, Connection, Delivery
from redrive.work.giving_back import HELD_TOO_LONG, LONGEST, shown
from redrive.work.mover import Limits, Pace

AT_ONCE: Final = 30
"""So many messages are answered at a time, at most."""


class OneByOne:
    """The first `count` messages of a queue. Made and used by one pass."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        *,
        count: int,
        limits: Limits,
        pace: Pace | None = None,
    ) -> None:
        """`pace` waits before each message but the first, so that none waits when it was taken."""
        self._connection = connection
        self._queue = queue
        self._count = count
        self._budget = limits.budget.size
        self._pace = pace
        self._channel: Channel | None = None
        self._held: list[int] = []  # tags
        self._held_since = math.inf
        self._under_way: dict[Delivery, float] = {}  # when each came, neither settled nor held
        self._fetching: asyncio.Future[list[Delivery]] | None = None
        self._unsettled = 0  # bytes
        self._room = asyncio.Event()
        self._ended = False
        self._acked = 0
        self.taken = 0
        self.acked = 0
        """How many acks the broker is known to have read: it answered a later call."""
        self.given_back = 0
        self.cut_short = ""

    async def open(self) -> None:
        self._channel = await self._connection.channel()

    @property
    def _open(self) -> Channel:
        assert self._channel is not None
        return self._channel

    def end(self) -> None:
        """Take nothing more."""
        self._ended = True

    @property
    def has_ended(self) -> bool:
        """Whether what was taken and not looked at yet should be held unseen."""
        return self._ended

    async def next_batch(self) -> list[Delivery]:
        while self._unsettled > self._budget:
            self._room.clear()
            await self._room.wait()
        if self._pace is not None and self.taken:
            await self._pace(1)
        now = asyncio.get_running_loop().time()
        if now - min(self._held_since, *self._under_way.values(), now) > LONGEST:
            self.cut_short = HELD_TOO_LONG
            return []
        if self._ended or self.taken >= self._count:
            return []
        # Who waits for it may be cancelled. What comes is under way all the same.
        self._fetching = asyncio.ensure_future(self._fetch(now))
        self._fetching.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._fetching)

    async def _fetch(self, now: float) -> list[Delivery]:
        acked = self._acked
        delivery = await self._open.get(self._queue)
        self.acked = acked
        if delivery is None:
            return []
        self.taken += 1
        self._under_way[delivery] = now
        self._unsettled += delivery.size
        return [delivery]

    async def fetched(self) -> None:
        """Wait until nothing is on its way to us."""
        if self._fetching is not None:
            await asyncio.wait((self._fetching,))

    @property
    def under_way(self) -> list[Delivery]:
        """What was taken, and is neither settled nor held."""
        return list(self._under_way)

    def check(self) -> None:
        if self._open.error is not None:
            raise self._open.error

    def ack(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            self._open.ack(delivery.tag)
            self._acked += 1
            self._release(delivery)

    def requeue(self, delivery: Delivery) -> None:
        self._open.nack(delivery.tag, requeue=True)
        self._release(delivery)

    def reject(self, delivery: Delivery) -> None:
        self._open.reject(delivery.tag, requeue=False)
        self._release(delivery)

    def hold(self, delivery: Delivery) -> None:
        self._held.append(delivery.tag)
        self._held_since = min(self._held_since, self._under_way[delivery])
        self._release(delivery)

    def unload(self, delivery: Delivery) -> None:
        self._unsettled -= delivery.unload()
        self._room.set()

    def _release(self, delivery: Delivery) -> None:
        del self._under_way[delivery]
        self._unsettled -= delivery.size
        self._room.set()

    def flush(self) -> None:
        """Nothing waits to be sent."""

    async def cancel(self) -> None:
        self.end()

    async def give_back(self) -> None:
        shows = True
        self._held.sort()
        for first in range(0, len(self._held), AT_ONCE):
            tags = self._held[first : first + AT_ONCE]
            ready, _ = await self._open.inspect_queue(self._queue)
            self.acked = self._acked
            # All that were taken before and are not held are settled: it names these only.
            self._open.nack(tags[-1], multiple=True, requeue=True)
            self.given_back += len(tags)
            shows = await shown(self._open, self._queue, ready + len(tags), wait=shows)

    async def return_everything(self, within: float) -> bool:
        """Give back all that is not settled; whether it could be said to the broker."""
        if self._channel is None:
            return True
        if self._channel.error is not None:
            return False
        # The tag 0 names all that is outstanding on the channel.
        self._channel.nack(0, multiple=True, requeue=True)
        self.given_back += len(self._held) + len(self._under_way)
        try:
            async with asyncio.timeout(within):
                await self._channel.inspect_queue(self._queue)
        except TimeoutError:
            return False
        self.acked = self._acked
        return True
