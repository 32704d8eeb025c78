"""A consumer: deliveries in batches as they arrive, and their settlement.

A channel has one consumer, so its delivery tags are consecutive and acks can go out as ranges.
Memory is bounded by a `Budget`, which consumers may share: while more than that is unsettled, and
more of this consumer than its share, the socket is not read, unless the prefetch lets no more come.
So a connection with a budgeted consumer must not be the one whose confirms settle the deliveries:
they would never be read. Publish on another connection.

What is held stays with the broker as unsettled and costs no memory here; it goes back by one nack
for all of it, after the consumer was cancelled: so it is not delivered to us again, and queues that
can keep its order do.

When the connection or channel ends, `next_batch` raises its error, and every delivery that was not
settled on the wire is void: the broker delivers it again, here or elsewhere.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from redrive.amqp import frames
from redrive.amqp.budget import Budget
from redrive.amqp.delivery import Delivery
from redrive.amqp.settlement import Settlement
from redrive.errors import BrokerError

if TYPE_CHECKING:
    from redrive.amqp.channel import Channel

_STRAGGLERS_AFTER: Final = 0.05
"""Seconds between two looks at acks that wait for a gap to close; after the second they go out."""


class Consumer:
    """Deliveries of one queue. Made by `Channel.consume`."""

    def __init__(
        self, channel: Channel, queue: str, tag: str, *, prefetch: int, budget: Budget
    ) -> None:
        self.queue = queue
        self._channel = channel
        self._tag = tag
        self._budget = budget
        self._held = 0
        self._over = False
        self._arrived: list[Delivery] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: BrokerError | None = None
        self._leaving = False
        self._cancelled = False
        self._cancelling: asyncio.Future[None] | None = None  # the broker's answer to our cancel
        self._closed = False
        self._unread = 0  # the last delivery that came too late
        self._kept = 0  # the last delivery that is held
        self._delivered = 0  # the last delivery of all
        self._settlement = Settlement(most_waiting=prefetch // 2)
        self._prefetch = prefetch
        self._stragglers: asyncio.TimerHandle | None = None
        budget.join(self)

    # The wire's side

    def deliver(self, deliveries: list[Delivery]) -> bool:
        """Take deliveries; whether they are the first since the owner last looked."""
        self._delivered = deliveries[-1].tag
        if self._cancelled:
            # They came after the owner asked to stop: they go back to the queue unread, by one nack
            # for all of them. With dozens of single ones, a stop was seen to leave copies of what
            # had been moved and acked in a quorum queue.
            self._unread = deliveries[-1].tag
            return False
        if self._leaving:
            self._kept = deliveries[-1].tag
            self._settlement.hold(deliveries[0].tag)
            return False
        size = sum([delivery.size for delivery in deliveries])
        self._held += size
        if not self._closed:
            self._budget.take(size)
        if self._budget.is_spent:
            self.weigh()
        first = not self._arrived
        self._arrived += deliveries
        return first

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self, error: BrokerError, *, closed: bool = True) -> None:
        """No delivery follows. If the channel is closed, nothing can be settled any more either,
        and what arrived is void; after the broker's own cancel it is still the owner's."""
        self._error = self._error or error
        self._cancelled = True
        if not closed:
            self.weigh()
            self.wake()
            return
        self._close()
        self._arrived.clear()
        if self._stragglers is not None:
            self._stragglers.cancel()
        self.wake()

    def _close(self) -> None:
        """Nothing can be settled any more."""
        if self._closed:
            return
        self._closed = True
        self._budget.part(self, self._held)
        self.weigh()  # or the other channels of the connection would wait for ever

    # The owner's side

    @property
    def unsettled_bytes(self) -> int:
        return self._held

    @property
    def fitting(self) -> int:
        """How many deliveries like those in hand its share of the budget has room for."""
        return self._budget.fitting(self._held, self.unanswered)

    @property
    def fitting_beside(self) -> int:
        """How many like those the share of another one has room for, that joins while this one
        keeps what it has."""
        return self._budget.fitting(self._held, self.unanswered, joining=1)

    @property
    def has_ample_room(self) -> bool:
        """Whether twice what it has would fit its share of the budget."""
        return 2 * self._held <= self._budget.share

    @property
    def unanswered(self) -> int:
        """How many deliveries the broker has had no answer to."""
        return self._delivered - self.answered

    @property
    def answered(self) -> int:
        """How many deliveries were answered."""
        return self._settlement.answered

    @property
    def is_full(self) -> bool:
        """Whether as many are unanswered as the prefetch lets be, so that none is on its way."""
        return self.unanswered >= self._prefetch

    @property
    def is_over_budget(self) -> bool:
        """Whether nothing is read until something is settled, unless an answer is awaited."""
        return self._over

    @property
    def is_cancelled(self) -> bool:
        """Whether it was asked to stop, or the broker has stopped it."""
        return self._cancelled or self._cancelling is not None

    def check(self) -> None:
        """Raise if what was delivered is void by now."""
        if self._closed and self._error is not None:
            raise self._error

    async def next_batch(self) -> list[Delivery]:
        """Wait for deliveries and take all that are there. Empty once cancelled or left."""
        if not self._arrived:
            await self.arrival()
        batch, self._arrived = self._arrived, []
        return batch

    async def arrival(self) -> None:
        """Wait until there are deliveries to take, or none will be handed out any more."""
        while not self._arrived:
            if self._error is not None:
                raise self._error
            if self._cancelled or self._leaving:
                return
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def ack(self, *deliveries: Delivery) -> None:
        """Settle deliveries as done. It goes out with the next `flush`."""
        self._settlement.ready([delivery.tag for delivery in deliveries])
        self._release(sum([delivery.size for delivery in deliveries]))

    def requeue(self, delivery: Delivery) -> None:
        """Give a delivery back to its queue, by nack: on 4.3 that costs it no delivery count."""
        self._answer(
            delivery, frames.nack(self._channel.number, delivery.tag, multiple=False, requeue=True)
        )

    def hold(self, delivery: Delivery) -> None:
        """Keep a delivery unsettled until `give_back`. Its content need not be kept for that."""
        self._kept = max(self._kept, delivery.tag)
        self._settlement.hold(delivery.tag)
        self._release(delivery.size)

    def unload(self, delivery: Delivery) -> None:
        """Forget the content of a delivery that is to be answered later."""
        self._release(delivery.unload())

    def leave(self) -> None:
        """Hold all that is still to arrive, without its content: whatever is asked of the broker
        meanwhile, it is not in memory. Nobody is handed any of it."""
        self._leaving = True
        self.weigh()
        self.wake()

    def reject(self, delivery: Delivery) -> None:
        """Reject a delivery for good: it goes the way of its queue's dead letter exchange."""
        self._answer(delivery, frames.reject(self._channel.number, delivery.tag, requeue=False))

    def _answer(self, delivery: Delivery, frame: bytes) -> None:
        if not self._closed:
            self._channel.wire.write(frame)
            self._channel.commit()
        self._settlement.gone(delivery.tag)
        self._release(delivery.size)
        if self._budget.is_spent:
            self.weigh()

    def _release(self, size: int) -> None:
        self._held -= size
        if not self._closed:
            self._budget.release(size)
        if self._over:
            self.weigh()  # it may have no more than its share by now

    def weigh(self) -> None:
        """Have nothing read while the budget is spent, and more than its share of it by this one,
        and more may come that has to be kept."""
        over = self._budget.is_spent and self._held > self._budget.share
        over = over and not (self.is_full or self._leaving or self._cancelled or self._closed)
        if over is not self._over:
            self._over = over
            self._channel.wire.over_budget(self, over=over)

    def flush(self, *, everything: bool = False) -> None:
        """Send the acks that are due; or all of them, also those that wait for a gap to close."""
        if self._closed:
            return
        self._send_acks(self._settlement.flush(everything=everything))

    def flush_now(self) -> None:
        """Send every ack, and write it before the turn of the loop ends."""
        self.flush(everything=True)
        self._channel.flush()

    def _send_acks(self, acks: list[tuple[int, bool]]) -> None:
        number, write = self._channel.number, self._channel.wire.write
        for tag, multiple in acks:
            write(frames.ack(number, tag, multiple=multiple))
        if acks:
            self._channel.commit()
        if self._unread and not (self._held or self._kept or self._settlement.waiting):
            # Everything before is settled: what this names are the unread ones, and no other.
            write(frames.nack(number, self._unread, multiple=True, requeue=True))
            self._channel.commit()
            self._settlement.answered_up_to(self._unread)
            self._unread = 0
        if self._budget.is_spent:
            self.weigh()  # what was answered makes room for others
        if self._settlement.waiting and self._stragglers is None:
            loop = asyncio.get_running_loop()
            self._stragglers = loop.call_later(_STRAGGLERS_AFTER, self._flush_stragglers)

    async def give_back(self) -> None:
        """Give back what is held and what nobody has taken, once the consumer is cancelled and all
        else is settled."""
        for delivery in self._arrived:
            self.hold(delivery)
        self._arrived.clear()
        self.flush(everything=True)
        last = max(self._kept, self._unread)
        if self._kept and not self._closed:
            self._channel.wire.write(
                frames.nack(self._channel.number, last, multiple=True, requeue=True)
            )
            self._channel.commit()
            self._settlement.answered_up_to(last)
            self._kept = self._unread = 0

    def return_everything(self) -> None:
        """Give back all that was delivered and is not settled, read or unread, by one nack. Nothing
        can be settled afterwards."""
        self.flush(everything=True)
        if not self._closed:
            # The tag 0 names all that is outstanding on the channel.
            self._channel.wire.write(
                frames.nack(self._channel.number, 0, multiple=True, requeue=True)
            )
            self._channel.commit()
        self._close()

    def _flush_stragglers(self) -> None:
        self._stragglers = None
        if not self._closed:
            self._send_acks(self._settlement.stragglers())

    async def cancel(self, *, take_the_rest: bool = False, patiently: bool = False) -> None:
        """Stop consuming. What arrived is still the owner's; what is under way goes back, or is
        the owner's too, who then reads on until `next_batch` is empty. `patiently`: see
        `Channel.call`.

        It is said to the broker in the next turn of the loop or later. By itself the consumer acks
        nothing until it is answered: that would let another message come.
        """
        if self._cancelling is None:
            if self._cancelled:
                return
            if self._stragglers is not None:
                self._stragglers.cancel()
                self._stragglers = None
            self._cancelled = not take_the_rest
            self._cancelling = asyncio.ensure_future(
                self._channel.cancel(self._tag, patiently=patiently)
            )
            self._cancelling.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Whoever waits may be cancelled, and the channel's next call must wait all the same: a
        # broker may answer that one first.
        await asyncio.shield(self._cancelling)
        self._cancelled = True
        self.weigh()
        self.flush()
        self.wake()
