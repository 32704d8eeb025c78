"""The Mover: consume, publish, confirm, settle. Everything that moves messages moves them here.

What it guarantees:
- A delivery is acked only after the broker confirmed the copy. Killed between any two steps, the
  message is where it was, or twice, never nowhere.
- Every publish is mandatory; what no queue takes, or a full queue refuses, goes back to the plan
  for a second thought and otherwise stays in its queue.
- A message that cannot be sent (`Unpublishable`, or the broker closed the channel on it twice) is
  treated as the plan's owner says: parked by a reject, where its queue has a dead letter exchange
  for that, or left in its queue. The messages behind it go through.
- At most `prefetch` messages and `budget` bytes are in flight.

It consumes and publishes on two connections: with one, a paused socket would hide the confirms
that would let it be read again. Losing either ends the session; `supervise` starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog

from redrive.amqp import Consumer, Delivery, Publish, Refused, Returned
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.supervision import supervise
from redrive.domain.backoff import Backoff
from redrive.errors import BrokerError, Unpublishable, the_reason
from redrive.work.lane import Connect, Lane, LaneOutcome, Poison

log = structlog.get_logger()

_BREATH: Final = 1 << 18
"""Bytes published between two looks at whether the broker still takes them."""


@dataclass(frozen=True, slots=True)
class Park:
    """Reject the delivery: it goes, unchanged, where its queue's dead letters go."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stay:
    """Leave the delivery in its queue: give it back after a wait, during which it is held."""

    reason: str
    wait: timedelta = timedelta(seconds=1)


Instruction = Publish | Park | Stay


class Plan(Protocol):
    """What to do with each delivery. `decide` is the hot path: no waiting, no I/O."""

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        """Where a delivery goes. `user` is whom the broker knows us as."""

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        """What to do after no queue took the copy, or a full one refused it."""

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay:
        """What to do with a message that cannot be sent. Park only where dead letters are kept."""


@dataclass(slots=True)
class Counts:
    """What a Mover did since it was made."""

    moved: int = 0
    parked: int = 0
    stayed: int = 0
    redelivered: int = 0
    sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be in flight at a time."""

    prefetch: int = 1000
    budget: int = 64_000_000


class Mover:
    """Moves the messages of one queue as a plan says, until stopped."""

    def __init__(
        self,
        queue: str,
        plan: Plan,
        *,
        connect: Connect,
        limits: Limits | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.counts = Counts()
        self.queue = queue
        self._plan = plan
        self._connect = connect
        self._limits = limits or Limits()
        self._backoff = backoff
        self._stopping = asyncio.Event()
        self._log = log.bind(queue=queue)
        self._outage = ""  # why there is no session, if there is none

    def stop(self) -> None:
        """Ask for an orderly end: what is in flight is finished, then `run` returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Move messages until `stop`, through every loss of the broker."""
        await supervise(
            self._session,
            on_lost=self._on_lost,
            stopping=self._stopping,
            backoff=self._backoff,
        )

    def _on_lost(self, error: BrokerError, delay: timedelta) -> None:
        if str(error) == self._outage:
            return  # said already: one line for an outage, not one for every try
        self._outage = str(error)
        self._log.warning(
            "mover.lost",
            error=str(error),
            remedy=error.remedy,
            retry_in_s=round(delay.total_seconds(), 3),
        )

    def _on_ready(self) -> None:
        self._log.info("mover.back" if self._outage else "mover.ready")
        self._outage = ""

    async def _session(self) -> None:
        self.counts.sessions += 1
        source = await self._connect(f"redrive consume {self.queue}")
        lane = Lane(self._connect, f"redrive publish from {self.queue}")
        try:
            await lane.open()
            channel = await source.channel()
            consumer = await channel.consume(
                self.queue, prefetch=self._limits.prefetch, budget=self._limits.budget
            )
            self._on_ready()
            await MoverSession(self._plan, consumer, lane, self.counts, self._log).run(
                until=self._stopping
            )
            await lane.close()
            await source.close()
        finally:
            lane.abort()
            source.abort()


class MoverSession:
    """One life of a Mover between connecting and losing the broker, or stopping."""

    def __init__(
        self,
        plan: Plan,
        consumer: Consumer,
        lane: Lane,
        counts: Counts,
        logger: structlog.stdlib.BoundLogger,
    ) -> None:
        self._plan = plan
        self._consumer = consumer
        self._lane = lane
        self._counts = counts
        self._log = logger
        self._in_flight = 0
        self._said = ""
        self._landed = asyncio.Event()  # nothing is in flight
        self._stopping = asyncio.Event()

    async def run(self, *, until: asyncio.Event) -> None:
        """Move until the event is set, then drain. Raises the `BrokerError` that ended it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                intake = tasks.create_task(self._take_in())
                settle = tasks.create_task(self._settle())
                await until.wait()
                await self._drain(intake)
                settle.cancel()
        except BaseExceptionGroup as group:
            raise the_reason(group) from group

    async def _drain(self, intake: asyncio.Task[None]) -> None:
        self._stopping.set()
        await self._consumer.cancel()
        await intake
        if self._in_flight:
            self._landed.clear()
            await self._landed.wait()
        self._consumer.flush()

    # Deliveries come in

    async def _take_in(self) -> None:
        while batch := await self._consumer.next_batch():
            started = 0
            while started < len(batch):
                await self._lane.ready()
                self._consumer.check()  # the wait may have been long, and what we hold void
                started = self._start(batch, started)

    def _start(self, batch: list[Delivery], position: int) -> int:
        """Send deliveries on their way, from a position on, for one breath; where it stopped."""
        decide, user = self._plan.decide, self._lane.user
        publishes: list[Publish] = []
        others: list[tuple[Delivery, Park | Stay]] = []
        first, taken = position, 0
        while position < len(batch) and taken < _BREATH:
            delivery = batch[position]
            position += 1
            taken += len(delivery.body)
            if delivery.redelivered:
                self._counts.redelivered += 1
            try:
                instruction = decide(delivery, user)
            except Exception as error:  # one message must not stop the line  # noqa: BLE001
                instruction = self._poisoned(delivery, error)
            if isinstance(instruction, Publish):
                instruction.context = delivery
                publishes.append(instruction)
            else:
                others.append((delivery, instruction))
        self._in_flight += position - first
        self._publish(publishes)
        for delivery, instruction in others:
            self._leave(delivery, instruction)
        return position

    def _follow(self, delivery: Delivery, instruction: Instruction) -> None:
        if isinstance(instruction, Publish):
            instruction.context = delivery
            self._publish((instruction,))
        else:
            self._leave(delivery, instruction)

    def _publish(self, publishes: Sequence[Publish]) -> None:
        for publish, error in self._lane.publish_all(publishes):
            delivery = publish.context
            assert isinstance(delivery, Delivery)
            self._leave(delivery, self._plan.poisoned(delivery, str(error)))

    def _leave(self, delivery: Delivery, instruction: Park | Stay) -> None:
        if isinstance(instruction, Park):
            self._park(delivery, instruction)
        else:
            self._tasks.create_task(self._give_back(delivery, instruction))

    # Outcomes come back

    async def _settle(self) -> None:
        lane, consumer, counts = self._lane, self._consumer, self._counts
        while True:
            outcomes = await lane.next_outcomes()
            moved = [publish.context for publish, outcome in outcomes if outcome is CONFIRMED]
            if len(moved) < len(outcomes):
                for publish, outcome in outcomes:
                    if outcome is not CONFIRMED:
                        self._on_trouble(publish, outcome)
            consumer.ack(*moved)  # type: ignore[arg-type]  # the context is the delivery: _follow
            consumer.flush()
            counts.moved += len(moved)
            self._land(len(moved))

    def _on_trouble(self, publish: Publish, outcome: LaneOutcome) -> None:
        delivery = publish.context
        assert isinstance(delivery, Delivery)
        if isinstance(outcome, Poison):
            self._follow(delivery, self._plan.poisoned(delivery, str(outcome.error)))
        elif isinstance(outcome, (Returned, Refused)):
            self._tasks.create_task(self._reconsider(delivery, publish, outcome))

    async def _reconsider(
        self, delivery: Delivery, publish: Publish, outcome: Returned | Refused
    ) -> None:
        try:
            instruction = await self._plan.reconsider(delivery, publish, outcome)
        except BrokerError:
            raise  # a plan that asks the broker may lose it as well: the session ends
        except Exception as error:  # one message must not stop the line  # noqa: BLE001
            instruction = self._poisoned(delivery, error)
        self._follow(delivery, instruction)

    def _poisoned(self, delivery: Delivery, error: Exception) -> Park | Stay:
        if isinstance(error, Unpublishable):
            return self._plan.poisoned(delivery, str(error))
        self._log.exception("mover.decision_failed", routing_key=delivery.routing_key)
        return self._plan.poisoned(delivery, f"{type(error).__name__}: {error}")

    def _park(self, delivery: Delivery, park: Park) -> None:
        self._log.warning("mover.parked", reason=park.reason, routing_key=delivery.routing_key)
        self._consumer.reject(delivery)
        self._counts.parked += 1
        self._land(1)

    async def _give_back(self, delivery: Delivery, stay: Stay) -> None:
        if stay.reason != self._said:  # once, not for every message and every time it comes back
            self._said = stay.reason
            self._log.warning("mover.stays", reason=stay.reason, routing_key=delivery.routing_key)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), stay.wait.total_seconds())
        self._consumer.requeue(delivery)
        self._counts.stayed += 1
        self._land(1)

    def _land(self, count: int) -> None:
        self._in_flight -= count
        if not self._in_flight:
            self._landed.set()
