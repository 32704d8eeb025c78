"""The collector: dead letter queues are emptied into the store. Commit, then ack.

    consume → understand → store a batch → ack

What it guarantees:
- A delivery is acked only after the transaction that stored it has committed. Killed between any
  two steps, the message is in its queue or in the store; where it is in both, the store recognises
  the second copy and marks it.
- A store that is slower than the broker makes no copies: before the broker resets a connection that
  is hardly read, the queue is consumed anew, with a prefetch that fits the budget; and
  after each minute in which twice as much would have fit, with twice that, up to the usual one.
- While the store is away nothing is acked and nothing more is taken than is in flight already: the
  broker keeps the messages. The batch in hand is tried again for half a minute; then all goes back,
  and nothing is taken until the store answers.
- No message stops the line. One whose headers make no sense becomes a letter that says so; one that
  the store refuses is stored with its bytes only; one that it refuses even so is held, unacked, and
  the log says which. See `keeper.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog

from redrive.amqp import Connection, Consumer, Delivery, strain
from redrive.amqp.lane import Connect
from redrive.amqp.strain import Fit
from redrive.amqp.supervision import supervise
from redrive.domain import metrics
from redrive.domain.ids import rising
from redrive.domain.letter import Arrival, Collected
from redrive.errors import BrokerError, NotFound, the_reason
from redrive.events import Events, LetterCollected
from redrive.tally import Tally
from redrive.work.keeper import Keeper, LetterStore
from redrive.work.mover import Limits
from redrive.work.pile import Pile
from redrive.work.redact import NO_REDACTION, Redaction
from redrive.work.system_state import system_watch
from redrive.work.understand import Understanding, utc_now

log = structlog.get_logger()

NO_STREAMS: Final = (
    "a stream keeps what is read, so it cannot be emptied into the store: take it off [collector]"
    " queues, and dead-letter to a quorum queue"
)
_OFFSET: Final = b"x-stream-offset"
_SLICE: Final = 10
"""Messages understood at a stretch: what the store answers meanwhile waits no longer than that."""
_NO_QUEUE: Final = "make the queue, or take it off [collector] queues; it is tried again"


@dataclass(slots=True)
class Counts:
    """What a collector did since it was made."""

    acked: int = 0
    held: int = 0
    """Messages that the store does not take at all."""
    sessions: int = 0


class Collector:
    """Collects one queue into the store, until stopped."""

    def __init__(  # noqa: PLR0913  (what it works with, each by its name)
        self,
        queue: str,
        letters: LetterStore,
        understanding: Understanding,
        *,
        connect: Connect,
        limits: Limits | None = None,
        events: Events | None = None,
        redaction: Redaction = NO_REDACTION,
        tally: Tally | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """`redaction` says what the log must not have. `on_ready` hears of every time that it
        begins to consume."""
        self.queue = queue
        self.counts = Counts()
        self._understanding = understanding
        self._connect = connect
        self._limits = limits or Limits()
        self._prefetch = self._limits.prefetch
        self._events = events or Events()
        self._redaction = redaction
        self._tally = tally or Tally()
        self._on_ready = on_ready or (lambda: None)
        self._system = system_watch()
        self._stopping = asyncio.Event()
        self._last_id = utc_now(), 0  # its time and random bits
        self._outage = ""
        self._log = log.bind(queue=queue)
        self._letters = letters
        self._keeper = Keeper(letters, self._stopping, self._system, self._log)

    def stop(self) -> None:
        """Ask for an orderly end: what is being stored is finished, then `run` returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Collect until `stop`, through every loss of the broker and the store."""
        await supervise(self._session, on_lost=self._on_lost, stopping=self._stopping)

    def _on_lost(self, error: BrokerError, delay: timedelta) -> None:
        self._tally.count(metrics.RECONNECTS, "collector")
        if str(error) == self._outage:
            return  # said already: one line for an outage, not one for every try
        self._prefetch = self._limits.prefetch
        self._outage = str(error)
        self._log.warning(
            "collector.lost",
            error=str(error),
            remedy=_NO_QUEUE if isinstance(error, NotFound) else error.remedy,
            retry_in_s=round(delay.total_seconds(), 3),
        )

    async def _session(self) -> None:
        # Nothing is taken before the store is known to answer: what is returned at every try would
        # use up its queue's delivery limit.
        while await self._keeper.store_answers():
            self.counts.sessions += 1
            async with self._consuming() as consumer:
                self._log.info("collector.back" if self._outage else "collector.ready")
                self._outage = ""
                self._on_ready()
                with self._tally.level(metrics.COLLECTING):
                    await self._collect(consumer)

    async def _collect(self, consumer: Consumer) -> None:
        """Collect until told to stop, or until the store has been away for too long."""
        try:
            async with asyncio.TaskGroup() as tasks:
                # Messages are understood while those before them are stored.
                pile, given_up = Pile(), asyncio.Event()
                tasks.create_task(self._understand(consumer, pile))
                stopped = tasks.create_task(self._cancel_when_stopped(consumer))
                fitted = tasks.create_task(self._cancel_to_fit(consumer))
                async with asyncio.TaskGroup() as writers:
                    for _ in range(self._letters.writers):
                        writers.create_task(self._keep(consumer, pile, given_up))
                stopped.cancel()
                fitted.cancel()
            if given_up.is_set():  # the store is away: the broker keeps the messages
                consumer.return_everything()
            else:  # what is held, by nack: who closes may use up its queue's delivery limit
                await consumer.give_back()
        except BaseExceptionGroup as group:
            raise the_reason(group) from group

    @asynccontextmanager
    async def _consuming(self) -> AsyncIterator[Consumer]:
        connection: Connection = await self._connect(f"redrive collect {self.queue}")
        try:
            channel = await connection.channel()
            yield await channel.consume(
                self.queue, prefetch=self._prefetch, budget=self._limits.budget
            )
            await connection.close()
        finally:
            connection.abort()

    async def _cancel_when_stopped(self, consumer: Consumer) -> None:
        await self._stopping.wait()
        await consumer.cancel()

    async def _cancel_to_fit(self, consumer: Consumer) -> None:
        """End the session if more is on its way than fits: the next one takes less at a time. Or if
        less was taken, and for a while there was room: the next one takes twice that."""
        before = self._prefetch
        fit = Fit(consumer, before, most=self._limits.prefetch)
        while self._prefetch == before:
            await asyncio.sleep(strain.LOOK_EVERY)
            self._prefetch = fit.look()
        if self._prefetch < before:
            await self._take_less(consumer, before)
        else:
            await self._take_more(consumer, before)

    async def _take_less(self, consumer: Consumer, before: int) -> None:
        """What is in hand is stored and acked; what was not read goes back."""
        self._log.warning(
            "collector.prefetch_lowered",
            prefetch=before,
            lowered_to=self._prefetch,
            because="its messages are large and the store is slow: more do not fit in memory",
            remedy="make the store faster, or raise [broker] in_flight",
        )
        await consumer.cancel()

    async def _take_more(self, consumer: Consumer, before: int) -> None:
        """Nothing goes back: what is on its way fits, and is stored and acked too."""
        self._log.info("collector.prefetch_raised", prefetch=before, raised_to=self._prefetch)
        await consumer.cancel(take_the_rest=True)

    # Deliveries come in

    async def _understand(self, consumer: Consumer, pile: Pile) -> None:
        first = True
        while batch := await consumer.next_batch():
            if first and _OFFSET in batch[0].properties:
                self._log.error("collector.stream", remedy=NO_STREAMS)
            first = False
            for start in range(0, len(batch), _SLICE):
                some = batch[start : start + _SLICE]
                pile.add(some, self._arrivals(some))
                await asyncio.sleep(0)  # the store's answers come in between
        pile.close()

    def _arrivals(self, deliveries: Sequence[Delivery]) -> list[Arrival]:
        """In the order of their ids, too: so letters are listed as they came. (With several writers
        a later batch may be there before an earlier one.)"""
        state, read = self._system.state(), self._understanding.arrival
        draws = [random.getrandbits(74) for _ in deliveries]
        now, bits = rising(utc_now(), draws, self._last_id)
        self._last_id = now, bits[-1]
        return [
            read(delivery, self.queue, now=now, random=each, state=state)
            for delivery, each in zip(deliveries, bits, strict=True)
        ]

    # Letters go out

    async def _keep(self, consumer: Consumer, pile: Pile, given_up: asyncio.Event) -> None:
        """Store batches until there are no more; once one writer has given up, all have."""
        while batch := await pile.take():
            if given_up.is_set():
                continue
            deliveries, arrivals = batch
            stored, gave_up = await self._keeper.keep(arrivals, consumer.check)
            self._settle(consumer, deliveries[: len(stored)], stored)
            if gave_up:
                given_up.set()
                await consumer.cancel()

    def _settle(
        self,
        consumer: Consumer,
        deliveries: Sequence[Delivery],
        stored: Sequence[Collected | None],
    ) -> None:
        done: list[Delivery] = []
        for delivery, kept in zip(deliveries, stored, strict=True):
            if kept is not None:
                done.append(delivery)
            else:  # the store refuses it: it stays with the broker, and acks do not wait for it
                consumer.hold(delivery)
        consumer.ack(*done)
        consumer.flush()
        self.counts.acked += len(done)
        self._tally.count(metrics.COLLECTED, number=len(done))
        self.counts.held = self._keeper.refused
        for kept in stored:
            if kept is not None:
                self._tell(kept)

    def _tell(self, kept: Collected) -> None:
        letter = self._redaction.letter(kept.letter)
        self._log.info(
            "letter.collected",
            letter=letter.id,
            fate=kept.fate.value,
            group=letter.fingerprint,
            origin=letter.queue,
            routing_key=letter.routing_key,
            error_type=letter.error_type,
            error_reason=letter.error_reason[:200],
            retries=letter.retry_count,
        )
        self._events.tell(LetterCollected(kept.fate, kept.letter))
