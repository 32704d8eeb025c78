"""One handler being served: its queue declared and consumed, its workers at work.

Every handler of a session is served by itself, on channels of its own. A queue that cannot be
declared or consumed, or that goes away, ends the serving of its own handler and of no other; the
session tries again.

Whatever ends it, it ends in order. Nothing more is taken; what runs has some seconds; and nobody is
ended while a copy is on its way, but after a second: ended at once, it would leave both the copy
and the message. Told to stop, it also begins with what has arrived, for some seconds. Nobody's
handler is waited for once it should hurry, or the broker is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.amqp import Budget, Channel, Connection, Consumer
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
from redrive.consumer.supply import Supply
from redrive.consumer.threads import Threads
from redrive.consumer.wishes import MOST_PREFETCH
from redrive.errors import BrokerError, the_reason
from redrive.settings import Settings

_BEGIN_WITHIN: Final = 4.0
"""Seconds in which a consumer that should stop still begins with what it has."""
_END_WITHIN: Final = 8.0
"""Seconds after which it ends whatever still runs; SIGTERM promises ten."""
_LET_GO_WITHIN: Final = 0.3
"""Seconds that handlers have to end once they are cancelled."""
_SETTLED_WITHIN: Final = 1.0
"""Seconds that the broker then has to confirm copies that are on their way."""
_PUT_BACK_WITHIN: Final = 8.8
"""Seconds after which it gives back what it has no confirmed copy of. What is left is for closing:
after nine seconds a session is ended by force (`amqp/supervision.py`)."""
_PUT_BACK_ALONE_WITHIN: Final = 8.5
"""Seconds for what was handled alone, which is put back first: the others need some too."""
_LOOK_EVERY: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A handler and what was said about it."""

    name: str
    handler: Handler
    queue: Queue
    limits: Limits
    concurrency: int
    prefetch: int
    threads: Threads


@dataclass(slots=True)
class Known:
    """What outlives a session."""

    chosen: dict[str, str] = field(default_factory=dict)
    """The names that the broker chose for queues, by handler and exchange."""
    used_as_they_are: set[str] = field(default_factory=set)
    """The queues of which that was told."""
    no_retrier_told: bool = False
    dropping: set[tuple[str, str]] = field(default_factory=set)
    """Queues, and the dead letter exchange of each that is missing: told already."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """What the handlers of a session have in common."""

    settings: Settings
    source: Connection
    aside: Connection
    sending: Sending
    gate: Gate
    known: Known
    budget: int
    """Bytes that each queue may have in memory."""
    hurries: asyncio.Event
    """Set when no handler is waited for any more."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when all handlers should end."""

    @property
    def is_lost(self) -> bool:
        """Whether one of the connections is gone, and the session with it."""
        return not (self.can_settle and self.aside.is_open)

    @property
    def can_settle(self) -> bool:
        """Whether a copy can still be confirmed, and its message be acked."""
        return self.source.is_open and not self.sending.lost


class Serving:
    """Serves one handler, once."""

    def __init__(self, registered: Registered, shared: Shared) -> None:
        self._registered = registered
        self._shared = shared
        self._declaring = Declaring(
            shared.aside, shared.settings.topology, shared.known.used_as_they_are
        )
        self._channels: list[Channel] = []
        self._parts: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._ends = False
        self.declared: Declared
        self.intake: Intake
        self._alone: Alone

    # The beginning

    async def open(self) -> None:
        """Declare and consume the handler's queue. Raises the `BrokerError` that prevents it; then,
        too, it has to be closed."""
        registered, shared = self._registered, self._shared
        self.declared = declared = await self._declare()
        settling = self._settling(declared)
        place = (declared.name, shared.source.address.vhost)
        tiers = len(shared.settings.topology.tiers)
        runner = Runner(
            registered.handler, registered.limits, tiers=tiers, threads=registered.threads
        )
        runner.ends = lambda: self._ends
        channel = await self._channel(shared.aside)
        alone = Alone(channel, declared.alone, runner, settling, shared.gate, place=place)
        sources = await self._consume(declared)
        self._alone = alone
        self.intake = intake = Intake(
            sources, runner, settling, shared.gate, place=place, on_set_alone=alone.nudge
        )
        log.info("consumer.ready", queue=declared.name, handler=registered.name)
        workers = [intake.work() for _ in range(registered.concurrency)]
        parts = [*intake.parts(), alone.run(), *workers]
        self._parts = [asyncio.create_task(self._part(part)) for part in parts]

    async def _declare(self) -> Declared:
        queue, name = self._registered.queue, self._registered.name
        chosen, whose = self._shared.known.chosen, f"{name} {queue.exchange}"
        declared = await self._declaring.queue(queue, name, before=chosen.get(whose, ""))
        if queue.name == "":
            chosen[whose] = declared.name
        return declared

    async def _channel(self, connection: Connection) -> Channel:
        # Patiently, as with the consumer below: who is tried again and again would have the others'
        # messages read, whatever their budget.
        channel = await connection.channel(patiently=True)
        self._channels.append(channel)
        return channel

    async def _consume(self, declared: Declared) -> Sources:
        """Consume a handler's queue and the one beside it, of which no more is taken than can be
        handled at a time: what a crash finds there is handled alone."""
        source = self._shared.source
        own_channel, again_channel = await self._channel(source), await self._channel(source)
        own = await own_channel.consume(
            declared.name,
            prefetch=self._registered.prefetch,
            budget=Budget(self._shared.budget),
            patiently=True,
        )
        # Not patiently: nobody handles yet what the first one brings.
        prefetch = min(self._registered.concurrency, MOST_PREFETCH)
        again = await again_channel.consume(
            declared.again, prefetch=prefetch, budget=Budget(self._shared.budget)
        )
        return Sources(
            Supply(own, self._registered.prefetch, self._consume_anew),
            Supply(again, prefetch, self._consume_anew),
        )

    async def _consume_anew(self, queue: str, prefetch: int) -> Consumer:
        channel = await self._channel(self._shared.source)
        budget = Budget(self._shared.budget)
        return await channel.consume(queue, prefetch=prefetch, budget=budget, patiently=True)

    def _settling(self, declared: Declared) -> Settling:
        topology, sending = self._shared.settings.topology, self._shared.sending
        copies = Copies(
            declared,
            topology,
            user=sending.user,
            dead_letter_exchange=self._registered.queue.dead_letter_exchange,
        )
        return Settling(
            copies,
            sending,
            receipts=Receipts(topology.names.receipts_queue, declared.name),
            declared=declared,
            declares=self._declaring,
            stopping=self._stopping,
        )

    async def _part(self, part: Coroutine[Any, Any, None]) -> None:
        """A part of the serving, which ends with it."""
        try:
            await part
        except asyncio.CancelledError as error:
            if self._ends:
                raise
            raise BrokerError(
                "a task of the consumer was cancelled, and not by it",
                remedy="look for a handler that keeps the task it runs in, and cancels it",
            ) from error

    # Its course

    async def run(self, until: asyncio.Event) -> None:
        """Serve until the event is set, or what ends it is raised."""
        over = asyncio.ensure_future(self._shared.over.wait())
        try:
            await asyncio.wait((*self._parts, over), return_when=asyncio.FIRST_COMPLETED)
            began = asyncio.get_running_loop().time()
            self._stopping.set()
            if not self._shared.is_lost:
                await self._drain(began, begins=until.is_set())
            await self._end(began)
        finally:
            over.cancel()
            self._ends = True
            self.intake.say_set_aside()
            await _cancel([part for part in self._parts if not part.done()])
        if errors := self._errors():
            raise the_reason(BaseExceptionGroup("", errors)) from None

    def _errors(self) -> list[BaseException]:
        done = [part for part in self._parts if part.done() and not part.cancelled()]
        return [error for part in done if (error := part.exception()) is not None]

    async def close(self) -> None:
        """Close what was opened, so that it can be opened anew."""
        if self._parts:
            self.intake.forget()
        for channel in self._channels:
            with suppress(BrokerError):
                await channel.close()
        with suppress(BrokerError):
            await self._declaring.close()

    # The end

    async def _drain(self, began: float, *, begins: bool) -> None:
        self._alone.stop()
        await self.intake.stop_taking()
        name, had, back = self._registered.name, self._handled + self.intake.waiting, 0
        if not (begins and await self._idle_by(began + _BEGIN_WITHIN)):
            back = self.intake.waiting
            self.intake.begin_no_more()
            if not await self._idle_by(began + _END_WITHIN):
                handled = self._handled
                back += handled
                log.warning("consumer.ends_while_handling", handler=name, messages=handled)
                self._ends = True
                await self._alone.give_back(began + _PUT_BACK_ALONE_WITHIN)
        if begins:
            log.info("consumer.drained", handler=name, settled=had - back, given_back=back)

    @property
    def _handled(self) -> int:
        """How many messages are being handled."""
        return self.intake.running + self._alone.running

    async def _end(self, began: float) -> None:
        """End what runs, and give back what is left. In this order: or another process could have a
        message that is still handled here. Who waits for a confirm is given a moment more: ended at
        once, it would leave both the copy and the message."""
        self._ends = True
        self.intake.begin_no_more()  # also who swallows being cancelled goes on with no other
        settle = self._settling_now()
        await _cancel([part for part in self._parts if part not in settle])
        await self._settled_by(began + _PUT_BACK_ALONE_WITHIN)
        settle |= self._settling_now()
        await _cancel([part for part in self._parts if part in settle])
        self.intake.write_acks()
        if await self._takes_no_more():
            await self.intake.give_back(began + _PUT_BACK_WITHIN)

    async def _takes_no_more(self) -> bool:
        """Have the queues consumed no more, also where there was no time to drain: what is given
        back would come straight back. Whether that is so, and anything can be given back."""
        if self._shared.can_settle:
            with suppress(TimeoutError):  # then all goes back when the connection is closed
                async with asyncio.timeout(_SETTLED_WITHIN):
                    await self.intake.stop_taking()
                    return self._shared.can_settle
        return False

    def _settling_now(self) -> set[asyncio.Task[Any] | None]:
        return self.intake.settling | self._alone.settling

    async def _settled_by(self, deadline: float) -> None:
        clock = asyncio.get_running_loop().time
        deadline = min(deadline, clock() + _SETTLED_WITHIN)
        while self._settling_now() and self._shared.can_settle:
            if clock() > deadline:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def _idle_by(self, deadline: float) -> bool:
        """Wait until nothing runs and nothing is left to begin with; whether that is so."""
        clock = asyncio.get_running_loop().time
        while not (self.intake.idle and self._alone.idle):
            if self._shared.hurries.is_set() or self._shared.is_lost or clock() > deadline:
                return False
            await asyncio.sleep(_LOOK_EVERY)
        return True


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_LET_GO_WITHIN)
