"""The collector: dead letter queues are emptied into the store. Commit, then ack.

    consume → understand → store a batch → ack

What it guarantees:
- A delivery is acked only after the transaction that stored it has committed. Killed between any
  two steps, the message is in its queue or in the store; where it is in both, the store recognises
  the second copy and marks it.
- While the store is away nothing is acked and nothing more is taken than is in flight already: the
  broker keeps the messages. The batch in hand is tried again until it is in, or the broker is gone.
- No message stops the line. One whose headers make no sense becomes a letter that says so; one that
  the store refuses is stored with its bytes only; one that it refuses even so is held, unacked, and
  the log says which.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog

from redrive.amqp import Connection, Consumer, Delivery
from redrive.amqp.supervision import supervise
from redrive.domain.backoff import Backoff
from redrive.domain.letter import Arrival, Collected
from redrive.errors import BrokerError, StoreError, StoreRefused, the_reason
from redrive.events import Events, LetterCollected
from redrive.work.lane import Connect
from redrive.work.mover import Limits
from redrive.work.system_state import SystemWatch
from redrive.work.understand import Understanding, bare, utc_now

log = structlog.get_logger()

_BATCH: Final = 500
_BATCH_BYTES: Final = 8_000_000
"""A transaction holds no more than one of these, or one message that is larger."""

Batch = tuple[list[Delivery], list[Arrival]]


class LetterStore(Protocol):
    """Where letters go."""

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]: ...


@dataclass(slots=True)
class Counts:
    """What a collector did since it was made."""

    acked: int = 0
    held: int = 0
    sessions: int = 0


class Collector:
    """Collects one queue into the store, until stopped."""

    def __init__(
        self,
        queue: str,
        letters: LetterStore,
        understanding: Understanding,
        *,
        connect: Connect,
        limits: Limits | None = None,
        events: Events | None = None,
    ) -> None:
        self.queue = queue
        self.counts = Counts()
        self._letters = letters
        self._understanding = understanding
        self._connect = connect
        self._limits = limits or Limits()
        self._events = events or Events()
        self._system = SystemWatch()
        self._stopping = asyncio.Event()
        self._outage = ""
        self._log = log.bind(queue=queue)

    def stop(self) -> None:
        """Ask for an orderly end: what is being stored is finished, then `run` returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Collect until `stop`, through every loss of the broker and the store."""
        await supervise(self._session, on_lost=self._on_lost, stopping=self._stopping)

    def _on_lost(self, error: BrokerError, delay: timedelta) -> None:
        if str(error) == self._outage:
            return  # said already: one line for an outage, not one for every try
        self._outage = str(error)
        self._log.warning(
            "collector.lost",
            error=str(error),
            remedy=error.remedy,
            retry_in_s=round(delay.total_seconds(), 3),
        )

    async def _session(self) -> None:
        self.counts.sessions += 1
        async with self._consuming() as consumer:
            self._log.info("collector.back" if self._outage else "collector.ready")
            self._outage = ""
            try:
                async with asyncio.TaskGroup() as tasks:
                    # One batch is understood while the one before is stored.
                    ready: asyncio.Queue[Batch | None] = asyncio.Queue(maxsize=1)
                    tasks.create_task(self._understand(consumer, ready))
                    tasks.create_task(self._keep(consumer, ready))
                    tasks.create_task(self._cancel_when_stopped(consumer))
            except BaseExceptionGroup as group:
                raise the_reason(group) from group

    @asynccontextmanager
    async def _consuming(self) -> AsyncIterator[Consumer]:
        connection: Connection = await self._connect(f"redrive collect {self.queue}")
        try:
            channel = await connection.channel()
            yield await channel.consume(
                self.queue, prefetch=self._limits.prefetch, budget=self._limits.budget
            )
            await connection.close()
        finally:
            connection.abort()

    async def _cancel_when_stopped(self, consumer: Consumer) -> None:
        await self._stopping.wait()
        await consumer.cancel()

    # Deliveries come in

    async def _understand(self, consumer: Consumer, ready: asyncio.Queue[Batch | None]) -> None:
        while batch := await consumer.next_batch():
            for some in _cut(batch):
                await ready.put((some, self._arrivals(some)))
        await ready.put(None)

    def _arrivals(self, deliveries: Sequence[Delivery]) -> list[Arrival]:
        state, now, draw = self._system.state(), utc_now(), random.getrandbits
        read = self._understanding.arrival
        return [
            read(delivery, self.queue, now=now, random=draw(74), state=state)
            for delivery in deliveries
        ]

    # Letters go out

    async def _keep(self, consumer: Consumer, ready: asyncio.Queue[Batch | None]) -> None:
        given_up = False  # told to stop while the store was away: the broker keeps the messages
        while (batch := await ready.get()) is not None:
            if given_up:
                continue
            deliveries, arrivals = batch
            stored = await self._store(consumer, arrivals)
            if stored is None:
                given_up = True
            else:
                self._settle(consumer, deliveries, stored)

    def _settle(
        self,
        consumer: Consumer,
        deliveries: Sequence[Delivery],
        stored: Sequence[Collected | None],
    ) -> None:
        done = [each for each, kept in zip(deliveries, stored, strict=True) if kept is not None]
        consumer.ack(*done)
        consumer.flush()
        self.counts.acked += len(done)
        for kept in stored:
            if kept is not None:
                self._tell(kept)

    def _tell(self, kept: Collected) -> None:
        letter = kept.letter
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
        self._events.tell(LetterCollected(kept.fate, letter))

    async def _store(
        self,
        consumer: Consumer,
        arrivals: Sequence[Arrival],
        *,
        again: bool = False,
        bytes_only: bool = False,
    ) -> list[Collected | None] | None:
        """Store a batch, however long the store is away; None if told to stop meanwhile."""
        failures, backoff = 0, Backoff()
        while True:
            try:
                kept = await self._letters.add(arrivals, again=again)
            except StoreRefused as error:
                if len(arrivals) > 1:
                    return await self._one_by_one(consumer, arrivals)
                if bytes_only:
                    self._hold(arrivals[0], error)
                    return [None]
                bare_one = self._bare(arrivals[0], error)
                return await self._store(consumer, [bare_one], again=True, bytes_only=True)
            except StoreError as error:
                failures += 1
                delay = backoff.delay(failures, random.random())  # noqa: S311  # spreads load
                self._on_store_away(error, delay, first=failures == 1)
            else:
                if failures:
                    self._log.info("collector.store_back")
                return list(kept)
            again = True  # the answer to a commit may be what was lost
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay.total_seconds())
            if self._stopping.is_set():
                return None
            consumer.check()  # the broker may have taken the deliveries back meanwhile

    def _on_store_away(self, error: StoreError, delay: timedelta, *, first: bool) -> None:
        if first:
            self._log.warning(
                "collector.store_away",
                error=str(error),
                remedy=error.remedy,
                retry_in_s=round(delay.total_seconds(), 3),
            )

    async def _one_by_one(
        self, consumer: Consumer, arrivals: Sequence[Arrival]
    ) -> list[Collected | None]:
        """After the store refused a batch: find the one that it does not take."""
        found: list[Collected | None] = []
        for arrival in arrivals:
            kept = await self._store(consumer, [arrival], again=True)
            if kept is None:  # time to stop: the rest stays with the broker
                return found + [None] * (len(arrivals) - len(found))
            found += kept
        return found

    def _bare(self, arrival: Arrival, error: StoreRefused) -> Arrival:
        letter = arrival.letter
        return bare(
            arrival.envelope,
            letter.id,
            letter.created_at,
            self._system.state(),
            f"the store refused what was read of the message: {error}",
        )

    def _hold(self, arrival: Arrival, refusal: StoreRefused) -> None:
        """Leave a message that the store does not take at all with the broker."""
        self.counts.held += 1
        self._log.error(
            "collector.held",
            error=str(refusal),
            routing_key=arrival.letter.routing_key,
            size=arrival.letter.size,
            remedy="the message stays in its queue: move it elsewhere, or raise the limit",
        )


def _cut(batch: Sequence[Delivery]) -> list[list[Delivery]]:
    """A batch in parts that fit a transaction."""
    parts: list[list[Delivery]] = [[]]
    size = 0
    for delivery in batch:
        if parts[-1] and (len(parts[-1]) >= _BATCH or size + delivery.size > _BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(delivery)
        size += delivery.size
    return parts
