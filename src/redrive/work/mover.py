"""The Mover: consume, publish, confirm, settle. Everything that moves messages moves them here.

What it guarantees:
- A delivery is acked only after the broker confirmed the copy. Killed between any two steps, the
  message is where it was, or twice, never nowhere.
- Every publish is mandatory; what no queue takes, or a full queue refuses, goes back to the plan
  for a second thought and otherwise stays in its queue. While it waits for room it is kept, and
  not given back: each return counts towards a queue's delivery limit.
- A message that cannot be sent (`Unpublishable`, or the broker closed the channel on it twice) is
  treated as the plan's owner says: parked by a reject, where its queue has a dead letter exchange
  for that, or left in its queue. The messages behind it go through.
- At most `prefetch` messages are in flight, and no more bytes than the budget has. A Mover whose
  budget is spent by what waits takes fewer at a time, before the broker resets a connection that
  is not read (`succession.py`): what waits in hand stays there, and is not delivered again.
- What a plan holds stays unsettled, costs no memory, and goes back to its queue at the end, unseen
  by anybody in between.

It consumes and publishes on two connections: with one, a paused socket would hide the confirms
that would let it be read again. Losing either ends the session; `supervise` starts another.

A `Mover` moves until it is stopped. `one_pass.py` runs the same session over what a queue holds
now, once: sweep, move and peek do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import structlog

from redrive.amqp import Budget, Delivery, Publish, Refused, Returned
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import Connect, Lane, LaneOutcome, Poison
from redrive.amqp.supervision import supervise
from redrive.domain.backoff import Backoff
from redrive.errors import BrokerError, Unpublishable, the_reason
from redrive.work.meter import Meter
from redrive.work.succession import Succession

log = structlog.get_logger()

_LAST_ACKS: Final = 5.0
"""Seconds for the acks of a session that is lost otherwise."""
_BREATH: Final = 1 << 18
"""Bytes published between two looks at whether the broker still takes them."""
_ANY: Final = 1 << 62
_ASK_AGAIN: Final = timedelta(seconds=15)
"""Between two questions whether what may not be rejected now may be by then."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Leave the delivery in its queue: give it back after a wait, during which it is held, without
    its content."""

    reason: str
    wait: timedelta = timedelta(seconds=1)


async def _nothing_else() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Park:
    """Reject the delivery: it goes, unchanged, where its queue's dead letters go. As long as that
    is found not to be safe, it stays."""

    reason: str
    instead: Callable[[], Awaitable[Stay | None]] = _nothing_else


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the delivery in its queue, and do not look at it again: it goes back at the end.

    A reason says that something is wrong with it; without one, it was simply not meant.
    """

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Later:
    """Publish it after a wait, unless there is something else to do with it by then. A stop before
    that gives the delivery back."""

    publish: Publish
    reason: str
    wait: timedelta
    instead: Callable[[], Instruction | None] = lambda: None


Instruction = Publish | Park | Stay | Hold | Later
Pace = Callable[[int], Awaitable[None]]
"""Waits as long as is due after so many publishes."""
Prepare = Callable[[Sequence[Delivery]], Awaitable[None]]
"""Finds out what deciding on deliveries takes, for a plan that has to ask somebody."""


class Source(Protocol):
    """Where deliveries come from, and where they are settled: a consumer, or several in a row."""

    async def next_batch(self) -> list[Delivery]:
        """Wait for deliveries; empty when no more will come."""

    def check(self) -> None:
        """Raise if what was delivered is void by now."""

    def ack(self, *deliveries: Delivery) -> None: ...
    def requeue(self, delivery: Delivery) -> None: ...
    def reject(self, delivery: Delivery) -> None: ...
    def hold(self, delivery: Delivery) -> None: ...
    def unload(self, delivery: Delivery) -> None:
        """Forget the content of a delivery that is to be answered later."""

    def flush(self) -> None: ...
    async def cancel(self) -> None: ...
    async def give_back(self) -> None:
        """Give back what is held, once all else is settled."""


class Plan(Protocol):
    """What to do with each delivery. `decide` is the hot path: no waiting, no I/O."""

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        """Where a delivery goes. `user` is whom the broker knows us as."""

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Instruction:
        """What to do after no queue took the copy, or a full one refused it."""

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay | Hold:
        """What to do with a message that cannot be sent. Park only where dead letters are kept."""


@dataclass(slots=True)
class Counts:
    """What a Mover did since it was made."""

    moved: int = 0
    parked: int = 0
    stayed: int = 0
    held: int = 0
    redelivered: int = 0
    sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be in flight at a time. Whoever is given the same limits shares the budget."""

    prefetch: int = 1000
    budget: Budget = field(default_factory=lambda: Budget(64_000_000))
    widest: int = 65_535
    """The most that a pass makes of the prefetch where it holds much. A prefetch has 16 bits."""


class Mover:
    """Moves the messages of one queue as a plan says, until stopped."""

    def __init__(  # noqa: PLR0913  (what it works with, each by its name)
        self,
        queue: str,
        plan: Plan,
        *,
        connect: Connect,
        limits: Limits | None = None,
        backoff: Backoff | None = None,
        prepare: Prepare | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`prepare` is awaited for each batch before its first message is decided on."""
        self.counts = Counts()
        self.queue = queue
        self._meter = meter or Meter()
        self._plan = plan
        self._connect = connect
        self._limits = limits or Limits()
        self._backoff = backoff
        self._prepare = prepare
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
        self._meter.lost()
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
        self._meter.on_ready()

    async def _session(self) -> None:
        self.counts.sessions += 1
        source = await self._connect(f"redrive consume {self.queue}")
        lane = Lane(self._connect, f"redrive publish from {self.queue}")
        try:
            await lane.open()
            consumers = Succession(
                source,
                self.queue,
                prefetch=self._limits.prefetch,
                budget=self._limits.budget,
                logger=self._log,
            )
            await consumers.open()
            self._on_ready()
            try:
                await self._move(consumers, lane)
            except BrokerError:
                self._meter.left_in_doubt(lane.unanswered)
                if source.is_open:  # or what is not acked is void
                    await self._ack_first(consumers)
                raise
            await lane.close()
            await source.close()
        finally:
            lane.abort()
            source.abort()

    async def _move(self, consumers: Succession, lane: Lane) -> None:
        session = MoverSession(
            self._plan,
            consumers,
            lane,
            self.counts,
            self._log,
            prepare=self._prepare,
            meter=self._meter,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(consumers.watch())
                await session.run(until=self._stopping)
                watch.cancel()
        except BaseExceptionGroup as group:
            raise the_reason(group) from group

    async def _ack_first(self, consumers: Succession) -> None:
        """Ack what was confirmed before a session ends that lost something else than its source.
        Acks that wait for others would be forgotten, and their messages moved a second time."""
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(_LAST_ACKS):
                await consumers.end()


class MoverSession:
    """One life of a Mover between connecting and losing the broker, or stopping."""

    def __init__(  # noqa: PLR0913  (the last are for a pass only)
        self,
        plan: Plan,
        consumer: Source,
        lane: Lane,
        counts: Counts,
        logger: structlog.stdlib.BoundLogger,
        *,
        most: int | None = None,
        pace: Pace | None = None,
        prepare: Prepare | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`most` publishes are under way at a time, and only one until the first is confirmed: a
        target that takes nothing is found out by one message. Without it, the prefetch is all
        that bounds them. `pace` slows down what is published; `prepare` is awaited for each
        batch before its first message is decided on."""
        self._plan = plan
        self._consumer = consumer
        self._lane = lane
        self._counts = counts
        self._log = logger
        self._most = most
        self._pace = pace
        self._prepare = prepare
        self._meter = meter or Meter()
        self._in_flight = 0
        self._sent = 0
        self._room = asyncio.Event()  # fewer than the most are in flight
        self._said = ""
        self._landed = asyncio.Event()  # nothing is in flight
        self._stopping = asyncio.Event()

    async def run(self, *, until: asyncio.Event) -> None:
        """Move until the event is set or no more will come, then drain.

        Raises the `BrokerError` that ended it.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                intake = tasks.create_task(self._take_in())
                settle = tasks.create_task(self._settle())
                told = tasks.create_task(until.wait())
                await asyncio.wait((told, intake), return_when=asyncio.FIRST_COMPLETED)
                told.cancel()
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
        await self._consumer.give_back()

    # Deliveries come in

    async def _take_in(self) -> None:
        while batch := await self._consumer.next_batch():
            started = 0
            if self._prepare is not None:
                await self._prepare(batch)
            while started < len(batch):
                await self._lane.ready()
                most = await self._may_start()
                self._consumer.check()  # the wait may have been long, and what we hold void
                if self._pace is None:
                    started = self._start(batch, started, most)
                    if self._most is None and started < len(batch):
                        await asyncio.sleep(0)  # or nobody would hear that the broker is blocked
                    continue
                if self._stopping.is_set():  # at this pace the rest would take long
                    for delivery in batch[started:]:
                        self._consumer.hold(delivery)
                    return
                before = self._sent
                started = self._start(batch, started, 1)
                await self._pace(self._sent - before)

    async def _may_start(self) -> int:
        """Wait until there is room for more; how many deliveries may be looked at."""
        if self._most is None:
            return _ANY
        most = self._most if self._counts.moved else 1
        while self._in_flight >= most:
            self._room.clear()
            await self._room.wait()
            most = self._most if self._counts.moved else 1
        return most - self._in_flight

    def _start(self, batch: list[Delivery], position: int, most: int) -> int:
        """Send deliveries on their way, from a position on, for one breath; where it stopped."""
        decide, user = self._plan.decide, self._lane.user
        publishes: list[Publish] = []
        others: list[tuple[Delivery, Park | Stay | Hold | Later]] = []
        first, taken = position, 0
        end = min(len(batch), position + most)
        while position < end and taken < _BREATH:
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
        self._sent += len(publishes)
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
        self._meter.sent(publishes)
        for publish, error in self._lane.publish_all(publishes):
            delivery = publish.context
            assert isinstance(delivery, Delivery)
            self._leave(delivery, self._plan.poisoned(delivery, str(error)))

    def _leave(self, delivery: Delivery, instruction: Park | Stay | Hold | Later) -> None:
        if isinstance(instruction, Park):
            self._tasks.create_task(self._park(delivery, instruction))
        elif isinstance(instruction, Hold):
            self._hold(delivery, instruction)
        elif isinstance(instruction, Later):
            self._tasks.create_task(self._publish_later(delivery, instruction))
        else:
            self._tasks.create_task(self._give_back_later(delivery, instruction))

    # Outcomes come back

    async def _settle(self) -> None:
        lane, consumer, counts = self._lane, self._consumer, self._counts
        while True:
            outcomes = await lane.next_outcomes()
            confirmed = [publish for publish, outcome in outcomes if outcome is CONFIRMED]
            moved = [publish.context for publish in confirmed]
            self._meter.confirmed(confirmed)
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

    def _poisoned(self, delivery: Delivery, error: Exception) -> Park | Stay | Hold:
        if isinstance(error, Unpublishable):
            return self._plan.poisoned(delivery, str(error))
        self._log.exception("mover.decision_failed", routing_key=delivery.routing_key)
        return self._plan.poisoned(delivery, f"{type(error).__name__}: {error}")

    async def _park(self, delivery: Delivery, park: Park) -> None:
        time = asyncio.get_running_loop().time
        began = time()
        stay = await park.instead()
        if stay is not None:
            self._say_stays(delivery, stay.reason)
            self._consumer.unload(delivery)
        while stay is not None:
            await self._wait(_ASK_AGAIN)
            held = timedelta(seconds=time() - began)  # the questions may take longer than the waits
            if held > stay.wait or self._stopping.is_set():
                self._give_back(delivery)
                return
            stay = await park.instead()
        self._log.warning("mover.parked", reason=park.reason, routing_key=delivery.routing_key)
        self._consumer.reject(delivery)
        self._counts.parked += 1
        self._land(1)

    def _hold(self, delivery: Delivery, hold: Hold) -> None:
        if hold.reason:
            self._say_stays(delivery, hold.reason)
        self._consumer.hold(delivery)
        self._counts.held += 1
        self._land(1)

    def _say_stays(self, delivery: Delivery, reason: str) -> None:
        if reason != self._said:  # once, not for every message and every time it comes back
            self._said = reason
            self._log.warning("mover.stays", reason=reason, routing_key=delivery.routing_key)

    async def _publish_later(self, delivery: Delivery, later: Later) -> None:
        self._say_stays(delivery, later.reason)
        await self._wait(later.wait)
        if self._stopping.is_set():
            self._give_back(delivery)
        else:
            self._follow(delivery, later.instead() or later.publish)

    async def _give_back_later(self, delivery: Delivery, stay: Stay) -> None:
        self._say_stays(delivery, stay.reason)
        self._consumer.unload(delivery)
        await self._wait(stay.wait)
        self._give_back(delivery)

    async def _wait(self, wait: timedelta) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait.total_seconds())

    def _give_back(self, delivery: Delivery) -> None:
        self._consumer.requeue(delivery)
        self._counts.stayed += 1
        self._land(1)

    def _land(self, count: int) -> None:
        self._in_flight -= count
        self._room.set()
        if not self._in_flight:
            self._landed.set()
