"""One life of a consumer between connecting and losing the broker, or stopping.

It consumes and publishes on two connections: with one, a socket that is not read, because memory is
full, would hide the confirms that let messages go. A third asks the questions, and takes what is
handled alone: each answer read on the first would let more messages in, whatever the budget.

When it should stop, nothing more is taken; what has arrived is handled for some seconds, what has
begun gets some more, and what is left goes back to its queue. Nobody is waited for once it should
hurry, but for confirms of copies on their way, a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.amqp import Connection
from redrive.amqp.lane import Connect, Lane
from redrive.broker.apply import apply
from redrive.broker.live import SpareChannel
from redrive.broker.topology import describe
from redrive.consumer.alone import Alone
from redrive.consumer.copies import Copies
from redrive.consumer.gate import Gate
from redrive.consumer.intake import Intake, Sources
from redrive.consumer.logs import log
from redrive.consumer.queues import Declared, Declaring, Queue
from redrive.consumer.receipts import Receipts
from redrive.consumer.running import Handler, Limits, Runner
from redrive.consumer.sending import Sending
from redrive.consumer.settling import Settling
from redrive.consumer.wishes import MOST_PREFETCH
from redrive.errors import BrokerError, NotFound, the_reason
from redrive.settings import Settings

_BEGIN_WITHIN: Final = 4.0
"""Seconds in which a consumer that should stop still begins with what it has."""
_END_WITHIN: Final = 8.0
"""Seconds after which it ends whatever still runs; SIGTERM promises ten."""
_LET_GO_WITHIN: Final = 0.3
"""Seconds that handlers have to end once they are cancelled."""
_SETTLED_WITHIN: Final = 1.0
"""Seconds that the broker then has to confirm copies that are on their way."""
_PUT_BACK_WITHIN: Final = 9.2
"""Seconds after which it gives back what it has no confirmed copy of; what is left of the ten is
for closing."""
_PUT_BACK_ALONE_WITHIN: Final = 8.8
"""Seconds for what was handled alone, which is put back first: the others need some too."""
_LOOK_EVERY: Final = 0.02
_LOOK_FOR_A_RETRIER_EVERY: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A handler and what was said about it."""

    name: str
    handler: Handler
    queue: Queue
    limits: Limits
    concurrency: int
    prefetch: int


@dataclass(slots=True)
class Known:
    """What outlives a session."""

    chosen: dict[str, str] = field(default_factory=dict)
    """The names that the broker chose for queues, by handler and exchange."""
    used_as_they_are: set[str] = field(default_factory=set)
    """The queues of which that was told."""
    no_retrier_told: bool = False


class Session:
    """Serves handlers on connections of its own."""

    def __init__(
        self,
        registered: Sequence[Registered],
        settings: Settings,
        *,
        connect: Connect,
        name: str,
        known: Known,
    ) -> None:
        self._known = known
        self._registered = registered
        self._settings = settings
        self._connect = connect
        self._name = name
        self._gate = Gate()
        self._intakes: list[Intake] = []
        self._alone: list[Alone] = []
        self._stopping = asyncio.Event()
        self._ends = False
        self._hurries = False
        self.sending: Sending | None = None

    async def run(self, until: asyncio.Event, on_ready: Callable[[], None]) -> None:
        """Serve until the event is set, then drain. Raises the `BrokerError` that ended it."""
        source = await self._connect(f"{self._name} consume")
        lane = Lane(self._connect, f"{self._name} publish")
        aside: Connection | None = None
        try:
            await lane.open()
            self.sending = Sending(lane)
            aside = await self._connect(f"{self._name} aside")
            await self._assure_topology(aside)
            await self._serve(source, aside, self.sending, until, on_ready)
            await lane.close()
            await aside.close()
            await source.close()
        finally:
            for intake in self._intakes:
                intake.say_set_aside()
            if self.sending is not None:
                self.sending.end()
            self.sending = None
            lane.abort()
            if aside is not None:
                aside.abort()
            source.abort()

    def hurry(self) -> None:
        """Once it should stop: wait for no handler any more."""
        self._hurries = True

    async def _assure_topology(self, connection: Connection) -> None:
        """Make Redrive's own queues if nobody has yet."""
        topology = self._settings.topology
        spare = SpareChannel(connection)
        try:
            for exchange in (topology.names.route_delay, topology.names.return_exchange):
                await (await spare.open()).inspect_exchange(exchange)
        except NotFound:
            await apply(describe(topology, self._settings.queue), connection)
        finally:
            await spare.close()

    async def _serve(
        self,
        source: Connection,
        aside: Connection,
        sending: Sending,
        until: asyncio.Event,
        on_ready: Callable[[], None],
    ) -> None:
        try:
            async with asyncio.TaskGroup() as tasks, self._ending():
                beside = [
                    tasks.create_task(self._part(part))
                    for part in (sending.run(), self._look_for_a_retrier(aside))
                ]
                running: list[asyncio.Task[None]] = []
                for registered in self._registered:
                    workers = await self._open(registered, source, aside, sending)
                    running += [tasks.create_task(self._part(worker)) for worker in workers]
                on_ready()
                await until.wait()
                began = asyncio.get_running_loop().time()
                await self._drain(began)
                await self._end(running, began)
                for task in beside:
                    task.cancel()
        except BaseExceptionGroup as group:
            raise the_reason(group) from group

    async def _look_for_a_retrier(self, connection: Connection) -> None:
        """Say it, once, if retries have waited and nobody brings them back."""
        topology, spare = self._settings.topology, SpareChannel(connection)
        while not self._known.no_retrier_told:
            await asyncio.sleep(_LOOK_FOR_A_RETRIER_EVERY)
            for queue in topology.of_each_tier(topology.names.delayed_queue):
                found = None
                with suppress(BrokerError):  # a lost connection is the others' to tell
                    found = await spare.count(queue)
                messages, consumers = found or (0, 0)
                if messages and not consumers and not self._known.no_retrier_told:
                    self._known.no_retrier_told = True
                    log.warning(
                        "consumer.no_retrier",
                        queue=queue,
                        messages=messages,
                        remedy="start 'redrive run', which brings retries back to their queues",
                    )

    @asynccontextmanager
    async def _ending(self) -> AsyncIterator[None]:
        """Know, when something in the block fails or is cancelled, that the session ends by it."""
        try:
            yield
        except BaseException:
            self._ends = True
            raise

    async def _part(self, part: Coroutine[Any, Any, None]) -> None:
        """A part of the session, which ends with it."""
        async with self._ending():
            try:
                await part
            except asyncio.CancelledError as error:
                if self._ends:
                    raise
                raise BrokerError(
                    "a task of the consumer was cancelled, and not by it",
                    remedy="look for a handler that keeps the task it runs in, and cancels it",
                ) from error

    async def _open(
        self, registered: Registered, source: Connection, aside: Connection, sending: Sending
    ) -> Sequence[Coroutine[Any, Any, None]]:
        """Declare and consume a handler's queue; what has to run for it."""
        topology = self._settings.topology
        declaring = Declaring(aside, topology, self._known.used_as_they_are)
        whose = f"{registered.name} {registered.queue.exchange}"
        before = self._known.chosen.get(whose, "")
        declared = await declaring.queue(registered.queue, registered.name, before=before)
        if registered.queue.name == "":
            self._known.chosen[whose] = declared.name
        settling = self._settling(registered, declared, declaring, sending)
        place = (declared.name, source.address.vhost)
        runner = Runner(registered.handler, registered.limits, tiers=len(topology.tiers))
        runner.ends = lambda: self._ends
        channel = await aside.channel()
        alone = Alone(channel, declared.alone, runner, settling, self._gate, place=place)
        sources = await self._consume(registered, declared, source)
        intake = Intake(
            sources, runner, settling, self._gate, place=place, on_set_alone=alone.nudge
        )
        self._intakes.append(intake)
        self._alone.append(alone)
        log.info("consumer.ready", queue=declared.name, handler=registered.name)
        workers = [intake.work() for _ in range(registered.concurrency)]
        return [intake.take_in(), intake.take_in_again(), alone.run(), *workers]

    async def _consume(
        self, registered: Registered, declared: Declared, source: Connection
    ) -> Sources:
        """Consume a handler's queue and the one beside it, of which no more is taken than can be
        handled at a time: what a crash finds there is handled alone."""
        budget = self._settings.broker.in_flight // (2 * len(self._registered))
        own = await (await source.channel()).consume(
            declared.name, prefetch=registered.prefetch, budget=budget
        )
        prefetch = min(registered.concurrency, MOST_PREFETCH)
        again = await (await source.channel()).consume(
            declared.again, prefetch=prefetch, budget=budget
        )
        return Sources(own, again)

    def _settling(
        self, registered: Registered, declared: Declared, declaring: Declaring, sending: Sending
    ) -> Settling:
        copies = Copies(
            declared,
            self._settings.topology,
            user=sending.user,
            dead_letter_exchange=registered.queue.dead_letter_exchange,
        )
        return Settling(
            copies,
            sending,
            receipts=Receipts(self._settings.topology.names.receipts_queue, declared.name),
            declared=declared,
            make_ladder=declaring.ladder,
            stopping=self._stopping,
        )

    async def _drain(self, began: float) -> None:
        self._stopping.set()
        self._gate.give_up()
        for alone in self._alone:
            alone.stop()
        for intake in self._intakes:
            await intake.stop_taking()
        had, back = self._handled() + self._waiting(), 0
        if not await self._idle_by(began + _BEGIN_WITHIN):
            back = self._waiting()
            for intake in self._intakes:
                intake.begin_no_more()
            if not await self._idle_by(began + _END_WITHIN):
                handled = self._handled()
                back += handled
                log.warning("consumer.ends_while_handling", messages=handled)
                self._ends = True
                deadline = began + _PUT_BACK_ALONE_WITHIN
                await asyncio.gather(*[alone.give_back(deadline) for alone in self._alone])
        log.info("consumer.drained", settled=had - back, given_back=back)

    def _handled(self) -> int:
        """How many messages are being handled."""
        return self._gate.running + self._gate.alone

    def _waiting(self) -> int:
        """How many have arrived, and nobody has begun with them."""
        return sum(intake.waiting for intake in self._intakes)

    async def _end(self, running: Sequence[asyncio.Task[None]], began: float) -> None:
        """End what runs, and give back what is left. In this order: or another process could have a
        message that is still handled here. Who waits for a confirm is given a moment more: ended at
        once, it would leave both the copy and the message."""
        self._ends = True
        settle = self._settling_now()
        for task in (dropped := [task for task in running if task not in settle]):
            task.cancel()
        await asyncio.wait(dropped, timeout=_LET_GO_WITHIN)
        await self._settled_by(began + _PUT_BACK_ALONE_WITHIN)
        settle |= self._settling_now()
        for task in (late := [task for task in running if task in settle]):
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_LET_GO_WITHIN)
        deadline = began + _PUT_BACK_WITHIN
        await asyncio.gather(*[intake.give_back(deadline) for intake in self._intakes])

    def _settling_now(self) -> set[asyncio.Task[Any] | None]:
        parts: list[Intake | Alone] = [*self._intakes, *self._alone]
        return {task for part in parts for task in part.settling}

    async def _settled_by(self, deadline: float) -> None:
        clock = asyncio.get_running_loop().time
        deadline = min(deadline, clock() + _SETTLED_WITHIN)
        while self._settling_now():
            if clock() > deadline:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def _idle_by(self, deadline: float) -> bool:
        """Wait until nothing runs and nothing is left to begin with; whether that is so."""
        clock = asyncio.get_running_loop().time
        parts: list[Gate | Intake | Alone] = [self._gate, *self._intakes, *self._alone]
        while not all(part.idle for part in parts):
            if self._hurries or clock() > deadline:
                return False
            await asyncio.sleep(_LOOK_EVERY)
        return True
