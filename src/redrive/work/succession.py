"""What one queue delivers to a Mover, by one consumer after another: mostly by the first.

What waits in hand, as for a dead letter exchange that is missing, or while the broker blocks
publishers, keeps its body. Once the budget is spent by that nothing is read, and the broker would
reset the connection (see redrive.amqp.strain): each message that was on its way, or in hand, would
count a delivery more, every minute, and a queue with a delivery limit drops it in the end. So:

- A consumer under strain is followed by one with a prefetch that fits beside what is in hand. That
  one is full before it is over budget, so its socket is read.
- What the former has brought stays in hand, and is settled by it, on its own channel: that costs
  those messages nothing. What arrives after that is dropped unread.
- When the last of it is settled, the former gives back what it dropped, by one nack, which would
  name the others too. Those messages come again, once, with the broker's mark.
- After a calm, which begins when nothing of that is in memory any more, the queue is consumed with
  twice the prefetch, up to the usual one. Nothing is dropped for that.

A `Succession` is a `Source` for a Mover's session. `watch` has to run beside that.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Final

import structlog

from redrive.amqp import Budget, Channel, Connection, Consumer, Delivery, strain
from redrive.amqp.strain import Fit

_PASSED_ON: Final = 1.0
"""Seconds after which a channel has passed on its answers to a quorum queue. One that is closed at
once may forget some."""


@dataclass(slots=True)
class _Former:
    """A consumer that was followed by another one."""

    channel: Channel
    consumer: Consumer
    gave_back: bool = False


class Succession:
    """The consumers of one queue, on one connection. Made and used by one session."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        *,
        prefetch: int,
        budget: Budget,
        logger: structlog.stdlib.BoundLogger,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._most = self._prefetch = prefetch
        self._budget = budget
        self._log = logger
        self._former: list[_Former] = []
        self._reading: deque[Consumer] = deque()  # those that may have something to hand out
        self._of: dict[Delivery, Consumer] = {}  # what is in hand, and by whom it came
        self._changing = asyncio.Lock()  # the consumer is being followed by another, or cancelled

    async def open(self) -> None:
        """Begin to consume."""
        self._channel = await self._connection.channel()
        self._current = await self._channel.consume(
            self._queue, prefetch=self._prefetch, budget=self._budget
        )
        self._fit = Fit(self._current, self._prefetch, most=self._most, stays=True)
        self._reading.append(self._current)

    # One follows another

    async def watch(self) -> None:
        """See to it that what is consumed fits the budget, for ever."""
        while True:
            await asyncio.sleep(strain.LOOK_EVERY)
            await self._part_with_former()
            waits = any(each.consumer.unsettled_bytes for each in self._former)
            prefetch = self._fit.look(may_take_more=not waits)
            if prefetch != self._prefetch:
                async with self._changing:
                    await self._follow(prefetch)

    async def _follow(self, prefetch: int) -> None:
        if self._current.is_cancelled:
            return  # it is the end
        former = _Former(self._channel, self._current)
        if prefetch < self._prefetch:
            self._say_lowered(prefetch)
            former.consumer.leave()
        else:
            self._log.info("mover.prefetch_raised", prefetch=self._prefetch, raised_to=prefetch)
        await former.consumer.cancel(take_the_rest=True)
        self._former.append(former)
        self._prefetch = prefetch
        await self.open()

    def _say_lowered(self, prefetch: int) -> None:
        self._log.warning(
            "mover.prefetch_lowered",
            prefetch=self._prefetch,
            lowered_to=prefetch,
            because="its messages are large and do not go on: more do not fit in memory",
            remedy="see what 'mover.stays' says they wait for, or raise [broker] in_flight",
        )

    async def _part_with_former(self) -> None:
        """Have those of which nothing is in hand give back what they dropped.

        Their channels are closed one look later, see `_PASSED_ON`.
        """
        if not self._former:
            return
        busy = {*self._of.values(), *self._reading}
        for each in self._former[:]:
            each.consumer.check()
            if each.gave_back:
                self._former.remove(each)
                await each.channel.close()
            elif each.consumer not in busy:
                await each.consumer.give_back()
                each.gave_back = True

    # What arrives

    async def next_batch(self) -> list[Delivery]:
        while True:
            consumer = self._reading[0]
            if batch := await consumer.next_batch():
                self._of.update(dict.fromkeys(batch, consumer))
                return batch
            async with self._changing:  # the one that follows it is there then, if one does
                if len(self._reading) == 1:
                    return []
            self._reading.popleft()

    def check(self) -> None:
        for each in self._former:
            each.consumer.check()
        self._current.check()

    # What is settled

    def ack(self, *deliveries: Delivery) -> None:
        of = self._of
        if not self._former:
            for delivery in deliveries:
                del of[delivery]
            self._current.ack(*deliveries)
            return
        by: defaultdict[Consumer, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by[of.pop(delivery)].append(delivery)
        for consumer, its_own in by.items():
            consumer.ack(*its_own)

    def requeue(self, delivery: Delivery) -> None:
        self._of.pop(delivery).requeue(delivery)

    def reject(self, delivery: Delivery) -> None:
        self._of.pop(delivery).reject(delivery)

    def hold(self, delivery: Delivery) -> None:
        self._of.pop(delivery).hold(delivery)

    def unload(self, delivery: Delivery) -> None:
        self._of[delivery].unload(delivery)

    def flush(self, *, everything: bool = False) -> None:
        for each in self._former:
            each.consumer.flush(everything=everything)
        self._current.flush(everything=everything)

    # The end

    async def cancel(self) -> None:
        async with self._changing:
            await self._current.cancel()

    async def end(self) -> None:
        """Take nothing more, and ack all that may be, before the connection is given up. What is
        not acked then, the broker delivers again."""
        await self._current.cancel()
        self.flush(everything=True)
        await asyncio.sleep(_PASSED_ON)

    async def give_back(self) -> None:
        for each in self._former:
            await each.consumer.give_back()
        await self._current.give_back()
