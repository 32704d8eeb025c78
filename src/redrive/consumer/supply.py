"""What one queue of a handler delivers, within a budget of bytes.

While the budget is spent nothing is read, and a broker that has more to write resets the
connection: on 3.10.8 after a minute, and after half of one where 250 KB/s were read, not where it
was 500. What was in hand would come again, and be handled twice. So a consumer that has its budget
spent for some seconds, and may have more on its way, is followed by another one:

- From then on what arrives by the first is dropped unread, and the socket is read. The second has
  the prefetch that fits. It is there before the first is cancelled: a queue that is deleted with
  its last consumer stays.
- What the first has brought is worked on and settled by it; what the second brings is not begun
  with before all that was. Meanwhile there may be twice the budget in memory.
- When the last of it is settled, the first gives back what it dropped, by one nack, which would
  name those too. That comes with the mark of a message that a process had before.

A prefetch that was lowered stays so until the queue is consumed anew, by another `Supply`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from redrive.amqp import Consumer, Delivery
from redrive.consumer.logs import log
from redrive.errors import BrokerError

_LOOK_EVERY: Final = 1.0
_LOOKS: Final = 5
"""Seconds between two looks, and at how many in a row a spent budget is too much."""
_BEGUN_WITH_LOOK_EVERY: Final = 0.02


class Supply:
    """One queue, consumed by one consumer after another; mostly it stays with the first."""

    def __init__(
        self,
        consumer: Consumer,
        prefetch: int,
        consume: Callable[[str, int], Awaitable[Consumer]],
    ) -> None:
        """`consume` consumes a queue with a prefetch, on a channel of its own."""
        self.consumer = consumer
        """Of what is `ready`, and of what arrives."""
        self.ready: deque[Delivery] = deque()
        """What nobody has begun with."""
        self.most = prefetch
        """What the prefetch should be lowered to."""
        self._prefetch = prefetch
        self._consume = consume
        self._next: Consumer | None = None
        self._before: list[Consumer] = []
        self._done: list[Delivery] = []
        self._looks = 0
        self._answered = 0  # at the first of them
        self._ends = False
        self._loop = asyncio.get_running_loop()

    @property
    def queue(self) -> str:
        return self.consumer.queue

    # What arrives

    async def take_in(self, wake: Callable[[], None]) -> None:
        """Until it is stopped; raises what ended it otherwise."""
        while True:
            while batch := await self.consumer.next_batch():
                self.ready.extend(batch)
                wake()
            if not await self._goes_on():
                return

    async def _goes_on(self) -> bool:
        """Go on with the next consumer, if there is one, once all that this one brought has begun:
        who begins with a delivery knows where to settle it."""
        while self.ready and self._next is not None:
            self.consumer.check()
            await asyncio.sleep(_BEGUN_WITH_LOOK_EVERY)
        if self._next is None:
            return False
        self._flush()
        self._before.append(self.consumer)
        self.consumer, self._next, self._answered = self._next, None, 0
        return True

    async def watch(self, lowered: Callable[[int], None]) -> None:
        """See to it that what is consumed fits the budget, for ever. `lowered` is told to what."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await self._close_the_settled()
            if self._is_too_much():
                self.most = self.consumer.fitting
                self._tell()
                lowered(self.most)
            if self.most < self._prefetch and not self.consumer.is_cancelled:
                await self._change()

    def _is_too_much(self) -> bool:
        """Whether the budget was spent at each of the last looks, more may be on its way, and not
        even as much as fits it was settled meanwhile."""
        consumer = self.consumer
        settled = consumer.answered - self._answered
        is_over = consumer.is_over_budget and not consumer.is_cancelled
        if is_over and settled < consumer.fitting:
            self._looks += 1
        else:
            self._looks, self._answered = 0, consumer.answered
        return self._looks >= _LOOKS

    def _tell(self) -> None:
        log.warning(
            "consumer.prefetch_lowered",
            queue=self.queue,
            prefetch=self._prefetch,
            lowered_to=self.most,
            because="its messages are large and its handler slow: more do not fit in memory",
            remedy=f"give the handler prefetch={self.most} and no more concurrency than that,"
            " or raise [broker] in_flight",
        )

    async def _change(self) -> None:
        before = self.consumer
        self._looks = 0
        before.leave()
        new = await self._consume(self.queue, self.most)
        if self._ends:
            self._before.append(new)
            await new.cancel(patiently=True)
            return
        self._prefetch, self._next = self.most, new
        await before.cancel(patiently=True)

    async def _close_the_settled(self) -> None:
        for each in self._before[:]:
            each.check()
            if not each.unsettled_bytes:
                self._before.remove(each)
                await each.give_back()
                await each.close()

    # What is settled

    def ack(self, delivery: Delivery) -> None:
        """Ack a delivery of the consumer of now."""
        if not self._done:
            self._loop.call_soon(self._flush)
        self._done.append(delivery)

    def _flush(self) -> None:
        done, self._done = self._done, []
        self.consumer.ack(*done)
        self.consumer.flush(everything=True)

    def write_acks(self) -> None:
        """Send every ack that is due, and write it before the turn of the loop ends."""
        for each in self._before:
            each.flush(everything=True)
        done, self._done = self._done, []
        self.consumer.ack(*done)
        self.consumer.flush_now()

    # The end

    async def stop(self) -> None:
        """Take nothing more. What has arrived is still there to begin with."""
        self._ends = True
        for consumer in (self.consumer, self._next):
            if consumer is not None:
                with suppress(BrokerError):  # then nothing comes by it any more
                    await consumer.cancel(take_the_rest=True)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to begin with."""
        return not self.ready and self._next is None

    def begin_no_more(self) -> list[tuple[Delivery, Consumer]]:
        """Nobody begins with anything any more: what has arrived, for the caller to leave, and
        where it is answered."""
        left = [(delivery, self.consumer) for delivery in self.ready]
        self.ready.clear()
        if self._next is not None:
            left += [(delivery, self._next) for delivery in self._next.take()]
            self._before.append(self._next)
            self._next = None
        return left

    async def give_back(self) -> None:
        """Give back what was left, as the last of all."""
        for consumer in (*self._before, self.consumer):
            await consumer.give_back()
