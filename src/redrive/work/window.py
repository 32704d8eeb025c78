"""What a pass takes from a queue: so many messages, each once, held as long as need be.

A queue gives back what is held only at the end, so a pass may hold all of it. It does so with
consumers in a row, each on a channel of its own: when half of what one may have is held, it takes
no more, and the next begins where it ended. Two limits of the broker shape this: a prefetch has
16 bits, and a broker finds a delivery to ack by walking over those that are held before it, in the
channel and, of a classic queue, in the queue again. All is settled in transactions, as they answer
together what was confirmed together: a classic queue walks once for it, and a quorum queue has one
entry of it in its log.

Deliveries that come when the pass has what it wanted are held with the others, unread. What is held
goes back when all consumers have been cancelled, so nothing is seen twice.

`Window` is a `Source` for a Mover's session. It ends by itself: when it has taken what it may, when
the queue has nothing ready any more (somebody else takes messages too), when the broker gives us
nothing although there is something (one consumer has the queue for itself), when no channel is left
to hold more, or shortly before the broker would take back what it has had no answer to for too
long. Then what was handed out and not looked at yet is to be held as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass
from typing import Final

from redrive.amqp import Channel, Connection, Consumer, Delivery
from redrive.errors import BrokerError
from redrive.work.giving_back import HELD_TOO_LONG, LONGEST, LOOK_EVERY, shown
from redrive.work.mover import Limits

_LULL: Final = 0.1
"""Seconds without a delivery after which the broker is asked whether there is anything left."""
_GIVEN_NOTHING: Final = 300
"""Lulls in a row, with messages ready and room for them, after which no more is expected."""
_NOTHING_ON_ITS_WAY: Final = 30
"""Lulls in a row, with no message ready, after which none is on its way from a busy broker."""
_MOST_CHANNELS: Final = 1500
_RESTS_WITHIN: Final = 1.0
"""Seconds within which a quorum queue has sent what it gives to a consumer that has room for it."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Where deliveries came from, and the earliest time at which they may have come."""

    consumer: Consumer
    at: float


class Window:
    """The first `count` messages of a queue. Made and used by one pass."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        *,
        count: int,
        limits: Limits,
        classic: bool,
    ) -> None:
        """`classic` if the queue is known to be one."""
        self._connection = connection
        self._queue = queue
        self._count = count
        self._classic = classic
        # Each consumer but the last one holds half of what it may have, or more.
        channels = max(1, min(_MOST_CHANNELS, connection.free_channels))
        narrowest = 2 * -(-count // channels)
        self._prefetch = min(max(limits.prefetch, narrowest), count, limits.widest)
        self._budget = limits.budget
        self._consumers: list[tuple[Channel, Consumer]] = []
        self._of: dict[Delivery, _Taken] = {}  # what was handed out and is not settled
        self._acked: set[Consumer] = set()  # of which not all acks have been sent
        self._held_by_current = 0
        self._enough = 0  # how many the current consumer may hold: the last one, all it gets
        self._moving_on = False
        self._cancelled = False
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._looked = self._loop.time()  # when all that had come was handed out
        self._held_since = math.inf
        self._age: asyncio.TimerHandle | None = None
        self.taken = 0
        """How many messages were handed out."""
        self.given_back = 0
        """How many went back, read or not."""
        self.cut_short = ""
        """Why it ended before it had what it wanted, if it did."""

    async def open(self) -> None:
        self._looked = self._loop.time()
        self._watch_age()
        await self._open_next()

    def _watch_age(self) -> None:
        """End before the broker takes back the oldest delivery that it has no answer to."""
        if self._ended.is_set():
            return
        now = self._loop.time()
        oldest = self._oldest(now)
        if now - oldest < LONGEST:
            self._age = self._loop.call_at(oldest + LONGEST, self._watch_age)
            return
        self.cut_short = HELD_TOO_LONG
        self._ended.set()

    def _oldest(self, now: float) -> float:
        if not any(consumer.unanswered for _, consumer in self._consumers):
            return now
        under_way = next((taken.at for taken in self._of.values()), math.inf)
        return min(self._held_since, under_way, self._looked)

    async def _open_next(self) -> None:
        channel = await self._connection.channel()
        await channel.transact()
        # Never more than is still wanted: what is taken for nothing is given back, and was seen.
        wanted = max(1, self._count - self.taken)
        prefetch = min(self._prefetch, wanted)
        self._enough = wanted if prefetch == wanted else -(-prefetch // 2)
        try:
            await channel.consume(self._queue, prefetch=prefetch, budget=self._budget)
        finally:
            if channel.consumer is not None:  # also if we were cancelled: it may have deliveries
                self._consumers.append((channel, channel.consumer))
        self._held_by_current, self._moving_on = 0, False

    @property
    def _current(self) -> Consumer:
        return self._consumers[-1][1]

    def end(self) -> None:
        """Hand out nothing more."""
        self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether what was handed out and not looked at yet should be held unseen."""
        return self._ended.is_set()

    # What a session asks for

    async def next_batch(self) -> list[Delivery]:
        lulls = 0
        while not self._ended.is_set() and self.taken < self._count:
            if self._is_closing and self._current.is_full:
                await self._move_on()
            try:
                async with asyncio.timeout(_LULL):
                    batch = await self._current.next_batch()
            except TimeoutError:
                if any(consumer.is_over_budget for _, consumer in self._consumers):
                    continue  # what is in flight has to land first
                lulls += 1
                if self._is_closing:
                    if await self._is_at_rest(lulls):  # somebody else has taken the rest
                        await self._move_on()
                elif await self._is_over(lulls):
                    break
                continue
            if batch:
                return self._hand_out(batch)
            if self._ended.is_set() or not self._moving_on:  # cancelled: the session is stopping
                break
            if not self._connection.free_channels:
                self.cut_short = "the broker lets a connection have no more channels to hold more"
                break
            await self._open_next()
        return []

    @property
    def _is_closing(self) -> bool:
        """Whether the current consumer has enough and is to be cancelled, once it is full.

        Until then its acks wait: each would let a message come. A quorum queue that gives one to
        a consumer that was just cancelled takes it back, and RabbitMQ 3.10 puts it behind all
        others.
        """
        return (
            self._held_by_current >= self._enough
            and not self._moving_on
            and self.taken < self._count
            and not self._ended.is_set()
        )

    async def _is_at_rest(self, lulls: int) -> bool:
        """Whether nothing is on its way to the current consumer after so many lulls in a row.

        A broker that is late answers late: its lulls do not count.
        """
        ready = await self._ready()
        return ready is not None and lulls >= (_GIVEN_NOTHING if ready else _NOTHING_ON_ITS_WAY)

    async def _move_on(self) -> None:
        await self._current.cancel(take_the_rest=True)
        self._moving_on = True  # not before: until the broker has answered, acks wait

    def _hand_out(self, batch: list[Delivery]) -> list[Delivery]:
        wanted = self._count - self.taken
        for surplus in batch[wanted:]:
            self._current.hold(surplus)
        batch = batch[:wanted]
        self.taken += len(batch)
        self._of.update(dict.fromkeys(batch, _Taken(self._current, self._looked)))
        self._looked = self._loop.time()
        return batch

    async def _is_over(self, lulls: int) -> bool:
        """Whether nothing more is to be expected after so many lulls in a row."""
        ready = await self._ready()
        if ready is None:
            return False
        if not ready:
            return lulls > 1  # the first time, something may have been on its way
        if self._current.is_full:
            return False  # there is no room: what is in flight has to land first
        if lulls > _GIVEN_NOTHING:
            self.cut_short = "the broker gives them to another consumer only"
            return True
        return False

    async def _ready(self) -> int | None:
        """How many messages wait in the queue; None if some came before the broker has answered.

        Its answer lies behind all that is on its way: who insisted on it would have all that read,
        whatever the budget.
        """
        channel, current = self._consumers[-1]
        asked = asyncio.ensure_future(channel.inspect_queue(self._queue, patiently=True))
        came = asyncio.ensure_future(current.arrival())
        try:
            await asyncio.wait((asked, came), return_when=asyncio.FIRST_COMPLETED)
            if not came.done():
                return asked.result()[0]
            came.result()
            return None
        finally:
            asked.cancel()
            came.cancel()
            await asyncio.gather(asked, came, return_exceptions=True)

    @property
    def acked(self) -> int:
        """How many messages the broker is known to have taken out of the queue."""
        return sum(channel.committed for channel, _ in self._consumers)

    def check(self) -> None:
        for _, consumer in self._consumers:
            consumer.check()

    def ack(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            consumer = self._of.pop(delivery).consumer
            consumer.ack(delivery)
            self._acked.add(consumer)

    def requeue(self, delivery: Delivery) -> None:
        self._of.pop(delivery).consumer.requeue(delivery)

    def reject(self, delivery: Delivery) -> None:
        self._of.pop(delivery).consumer.reject(delivery)

    def unload(self, delivery: Delivery) -> None:
        self._of[delivery].consumer.unload(delivery)

    def hold(self, delivery: Delivery) -> None:
        taken = self._of.pop(delivery)
        consumer = taken.consumer
        consumer.hold(delivery)
        self._held_since = min(self._held_since, taken.at)
        if consumer is self._current:
            self._held_by_current += 1

    def flush(self) -> None:
        waits = {self._current} if self._is_closing or self._is_ending else set()
        for consumer in self._acked - waits:
            consumer.flush()
        self._acked &= waits

    @property
    def _is_ending(self) -> bool:
        """Whether the current consumer is the last one, and is about to be cancelled."""
        return self._ended.is_set() and not self._cancelled

    async def cancel(self) -> None:
        self._end()
        await self._come_to_rest()
        await self._current.cancel()
        self._cancelled = True

    async def _come_to_rest(self) -> None:
        """Wait until nothing is on its way to the current consumer, for a second at most.

        As above: a quorum queue takes back what it gives to a consumer that is just cancelled, and
        RabbitMQ 4.3 puts it before all that we give back later. A classic queue sorts it. What
        comes meanwhile is left unread: to hear the broker's answers, we read whatever the budget.
        """
        if self._classic or not self._consumers or self._current.is_cancelled:
            return
        channel, current = self._consumers[-1]
        current.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RESTS_WITHIN):
                while not current.is_full:
                    if not (await channel.inspect_queue(self._queue))[0]:
                        break
                    await asyncio.sleep(LOOK_EVERY)

    def _end(self) -> None:
        self._ended.set()
        if self._age is not None:
            self._age.cancel()

    async def give_back(self) -> None:
        await self._come_to_rest()  # one that was about to be opened at `cancel` is open now
        for _, consumer in self._consumers:
            await consumer.cancel()
        # A classic queue sorts what it gets back: newest first, it has the least to walk over.
        consumers = self._consumers[::-1] if self._classic else self._consumers
        shows = True
        for channel, consumer in consumers:
            shows = await self._give_back(channel, consumer, wait=shows)

    async def return_everything(self, within: float) -> bool:
        """Give back all that is not settled, whatever was to become of it: in its order for so many
        seconds, then in any. Whether all of it could be said to the broker."""
        self._end()
        try:
            async with asyncio.timeout(within):
                return await self._return_in_order()
        except TimeoutError:
            for _, consumer in self._consumers:
                consumer.return_everything()
            return all(channel.error is None for channel, _ in self._consumers)

    async def _return_in_order(self) -> bool:
        consumers = self._consumers[::-1] if self._classic else self._consumers
        shows, returned = True, True
        with contextlib.suppress(BrokerError):
            await self._come_to_rest()
        for _, consumer in consumers:  # or one that still consumes would get what others give back
            with contextlib.suppress(BrokerError):
                await consumer.cancel()
        for channel, consumer in consumers:
            try:
                shows = await self._give_back(channel, consumer, wait=shows, everything=True)
            except BrokerError:  # with its channel, the broker has taken back what it held
                returned = returned and not consumer.unanswered
        return returned

    async def _give_back(
        self, channel: Channel, consumer: Consumer, *, wait: bool, everything: bool = False
    ) -> bool:
        """Give back what a consumer holds, and wait until the queue shows it; whether it did.

        While many answers to a quorum queue are under way, as when commits follow each other fast,
        a channel keeps some to itself, and closed too early it forgets them: what was moved would
        come back. They are in force once the nack that follows them is. Nor can the next nack
        overtake this one.
        """
        consumer.flush(everything=True)
        ready, _ = await channel.inspect_queue(self._queue)
        held = consumer.unanswered
        self.given_back += held
        if everything:
            consumer.return_everything()
        else:
            await consumer.give_back()
        if not held:
            return wait
        return await shown(channel, self._queue, ready + held, wait=wait)
