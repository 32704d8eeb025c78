"""What one queue of a handler delivers, within a budget of bytes.

While the budget is spent nothing is read, and a broker that has more to write resets the
connection (see redrive.amqp.strain). What was in hand would come again, and be handled twice. So a
consumer that has its budget spent for some seconds, and may have more on its way, is followed by
another one:

- From then on what arrives by the first is dropped unread, and the socket is read. The second has
  the prefetch that fits. It is there before the first is cancelled: a queue that is deleted with
  its last consumer stays.
- What the first has brought is worked on, and settled by it. Until then it is in memory beside
  what the second brings.
- When the last of it is settled, the first gives back what it dropped, by one nack, which would
  name those too. That comes with the mark of a message that a process had before.

That the first is cancelled is waited for by nobody. The broker's answer may lie behind what the
second brings, which is not read while the budget is spent, and that ends only when it is worked on.

A prefetch that was lowered stays so until the queue is consumed anew, by another `Supply`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from redrive.amqp import Consumer, Delivery, strain
from redrive.amqp.strain import Strain
from redrive.consumer.logs import log


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
        """Of what arrives."""
        self.ready: deque[Delivery] = deque()
        """What nobody has begun with."""
        self.by_former: dict[Delivery, Consumer] = {}
        """What of that came by consumers before this one, and by which."""
        self.most = prefetch
        """What the prefetch should be lowered to."""
        self._prefetch = prefetch
        self._consume = consume
        self._former: list[tuple[Consumer, asyncio.Future[None]]] = []  # and when it is cancelled
        self._changed = asyncio.Event()
        self._changed.set()
        self._done: list[Delivery] = []
        self._strain = Strain(consumer)
        self._ends = False
        self._loop = asyncio.get_running_loop()

    @property
    def queue(self) -> str:
        return self.consumer.queue

    # What arrives

    async def take_in(self, wake: Callable[[], None]) -> None:
        """Until it is stopped; raises what ended it otherwise."""
        while True:
            consumer = self.consumer
            if batch := await consumer.next_batch():
                if consumer is not self.consumer:
                    self.by_former.update(dict.fromkeys(batch, consumer))
                self.ready.extend(batch)
                wake()
                continue
            await self._changed.wait()
            if consumer is self.consumer:
                return

    def source_of(self, delivery: Delivery) -> Consumer:
        """Where a delivery is answered that is `ready` no more."""
        return self.by_former.pop(delivery, self.consumer)

    def put_first(self, delivery: Delivery, source: Consumer) -> None:
        """Have a delivery `ready` again, before the others."""
        if source is not self.consumer:
            self.by_former[delivery] = source
        self.ready.appendleft(delivery)

    async def watch(self, lowered: Callable[[int], None]) -> None:
        """See to it that what is consumed fits the budget, for ever. `lowered` is told to what."""
        while True:
            await asyncio.sleep(strain.LOOK_EVERY)
            await self._give_back_by_former()
            if self._strain.is_too_much():
                self.most = self.consumer.fitting
                self._tell()
                lowered(self.most)
            if self.most < self._prefetch and not self.consumer.is_cancelled:
                await self._change()

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
        self._changed.clear()
        try:
            before.leave()
            new = await self._consume(self.queue, self.most)
            if self._ends:
                self._cancel(new)
                return
            self._flush()
            for delivery in self.ready:
                self.by_former.setdefault(delivery, before)
            self.consumer, self._prefetch, self._strain = new, self.most, Strain(new)
            self._cancel(before)
        finally:
            self._changed.set()

    def _cancel(self, consumer: Consumer) -> None:
        cancelled = asyncio.ensure_future(consumer.cancel(patiently=True))
        cancelled.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._former.append((consumer, cancelled))

    async def _give_back_by_former(self) -> None:
        """Have former consumers give back what they dropped, if all else of them is settled."""
        for each in self._former[:]:
            consumer, cancelled = each
            consumer.check()
            if cancelled.done() and not consumer.unsettled_bytes:
                self._former.remove(each)
                await consumer.give_back()

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
        for each, _ in self._former:
            each.flush(everything=True)
        done, self._done = self._done, []
        self.consumer.ack(*done)
        self.consumer.flush_now()

    # The end

    async def stop(self) -> None:
        """Take nothing more. What has arrived is still there to begin with."""
        self._ends = True
        # Together: what is asked of one of them impatiently has the answers to all read.
        await asyncio.gather(
            self.consumer.cancel(take_the_rest=True),
            *[asyncio.shield(cancelled) for _, cancelled in self._former],
            return_exceptions=True,  # nothing comes by one that is lost
        )

    def begin_no_more(self) -> list[tuple[Delivery, Consumer]]:
        """Nobody begins with anything any more: what has arrived, for the caller to leave, and
        where it is answered."""
        left = [(delivery, self.source_of(delivery)) for delivery in self.ready]
        self.ready.clear()
        return left

    async def give_back(self) -> None:
        """Give back what was left, as the last of all."""
        for consumer in (*[former for former, _ in self._former], self.consumer):
            await consumer.give_back()
