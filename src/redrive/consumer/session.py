"""One life of a consumer between connecting and losing the broker, or stopping.

It consumes and publishes on two connections: with one, a socket that is not read, because memory is
full, would hide the confirms that let messages go. A third asks the questions, and takes what is
handled alone: each answer read on the first would let more messages in, whatever the budget.

Each handler is served by itself (`serving.py`). One whose queue cannot be used waits, longer and
longer, and is tried again; the log says which, why, and what to do, at once and then each minute.
The others go on. Only the loss of a connection, or a defect, ends the session.

A session that should stop gives a handler that is being opened a second more, or none in a hurry:
of a quorum queue without a leader the broker says nothing for a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from redrive.amqp import Connection
from redrive.amqp.lane import Connect
from redrive.amqp.supervision import supervise
from redrive.broker.apply import apply
from redrive.broker.live import SpareChannel
from redrive.broker.topology import describe
from redrive.consumer.gate import Gate
from redrive.consumer.logs import log
from redrive.consumer.looks import Looks
from redrive.consumer.sending import Sending
from redrive.consumer.serving import Known, Registered, Serving, Shared
from redrive.consumer.telling import Told
from redrive.errors import BrokerError, NotFound, the_reason
from redrive.settings import Settings

_LAST_ACKS_WITHIN: Final = 1.0
"""Seconds to have acks written, of a session that lost another connection than theirs."""
_OPENED_WITHIN: Final = 1.0
"""Seconds that a handler has to be opened, or closed, once all should end."""


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
        self._servings: list[Serving] = []
        self._all_open = asyncio.Event()
        self._hurries = asyncio.Event()
        self.sending: Sending | None = None

    async def run(self, until: asyncio.Event, on_serving: Callable[[int], None]) -> None:
        """Serve until the event is set, then drain. Raises the `BrokerError` that ended it.
        `on_serving` is told how many handlers wait, each time that one begins or ends."""
        source = await self._connect(f"{self._name} consume")
        sending = Sending(self._connect, self._name)
        aside: Connection | None = None
        try:
            await sending.open(self._copies_go_to())
            self.sending = sending
            aside = await self._connect(f"{self._name} aside")
            await self._assure_topology(aside)
            shared = Shared(
                settings=self._settings,
                source=source,
                aside=aside,
                sending=sending,
                gate=self._gate,
                known=self._known,
                budget=self._settings.broker.in_flight // (2 * len(self._registered)),
                hurries=self._hurries,
            )
            try:
                await self._serve(shared, until, on_serving)
            except BrokerError:
                await _write_acks(source)
                raise
            # Together: of one that does not answer the others' acks must not have to wait.
            await asyncio.gather(source.close(), sending.close(), aside.close())
        finally:
            self.sending = None
            sending.end()
            sending.abort()
            if aside is not None:
                aside.abort()
            source.abort()

    def hurry(self) -> None:
        """Once it should stop: wait for no handler any more."""
        self._hurries.set()

    def _copies_go_to(self) -> set[str]:
        names = self._settings.topology.names
        own = {each.queue.dead_letter_exchange for each in self._registered}
        dead = {exchange or names.dlq_exchange for exchange in own}
        return {*dead, names.route_delay, names.retry_exchange}

    async def _assure_topology(self, connection: Connection) -> None:
        """Make Redrive's own queues if nobody has yet."""
        topology, names = self._settings.topology, self._settings.topology.names
        spare = SpareChannel(connection)
        try:
            for exchange in (names.route_delay, names.return_exchange, names.dlq_exchange):
                await (await spare.open()).inspect_exchange(exchange)
        except NotFound:
            await apply(describe(topology, self._settings.queue), connection)
        finally:
            await spare.close()

    async def _serve(
        self, shared: Shared, until: asyncio.Event, on_serving: Callable[[int], None]
    ) -> None:
        """Serve every handler by itself until all have ended; in order, whatever ends one."""
        publishing = asyncio.create_task(shared.sending.run())
        looks = Looks(
            shared.aside,
            self._servings,
            self._settings.topology,
            self._known,
            all_open=self._all_open,
        )
        looking = asyncio.create_task(looks.run())
        stop = asyncio.create_task(until.wait())
        handlers = [
            asyncio.create_task(self._keep_serving(registered, shared, until, on_serving))
            for registered in self._registered
        ]
        served = asyncio.create_task(asyncio.wait(handlers, return_when=asyncio.FIRST_EXCEPTION))
        try:
            await asyncio.wait((publishing, served, stop), return_when=asyncio.FIRST_COMPLETED)
            shared.over.set()
            if until.is_set():
                self._gate.give_up()
                await asyncio.wait((publishing, served), return_when=asyncio.FIRST_COMPLETED)
            self._hurries.set()  # they have ended, or something is lost
            await asyncio.wait(handlers)
        finally:
            shared.over.set()  # also where it is cancelled: nothing is closed in order then
            for task in (publishing, looking, stop, served, *handlers):
                task.cancel()
            await asyncio.wait((publishing, looking, stop, served, *handlers))
        ended = [task for task in (publishing, looking, *handlers) if not task.cancelled()]
        if errors := [error for task in ended if (error := task.exception()) is not None]:
            raise the_reason(BaseExceptionGroup("what ended the session", errors))

    async def _keep_serving(
        self,
        registered: Registered,
        shared: Shared,
        until: asyncio.Event,
        on_serving: Callable[[int], None],
    ) -> None:
        """Serve a handler, again and again where the broker refuses what it needs."""
        trouble = Told()

        async def opened(serving: Serving) -> None:
            if trouble.lasts:  # it may be that somebody deleted what is Redrive's own
                await self._assure_topology(shared.aside)
            await serving.open()

        async def serve() -> None:
            serving = Serving(registered, shared)
            try:
                if not await self._is_done(opened(serving), shared.over):
                    return
                trouble.is_over()
                self._servings.append(serving)
                if len(self._servings) == len(self._registered):
                    self._all_open.set()
                on_serving(len(self._registered) - len(self._servings))
                await serving.run(until)
            finally:
                if serving in self._servings:
                    self._servings.remove(serving)
                    on_serving(len(self._registered) - len(self._servings))
                if not (shared.over.is_set() or shared.is_lost):
                    await self._is_done(serving.close(), shared.over)

        def waits(error: BrokerError, delay: timedelta) -> None:
            if shared.is_lost:
                raise error
            if trouble.is_news(str(error)) and not shared.over.is_set():
                log.warning(
                    "consumer.handler_waits",
                    handler=registered.name,
                    queue=registered.queue.name or registered.queue.exchange,
                    error=str(error),
                    remedy=error.remedy,
                    retry_in_s=round(delay.total_seconds(), 3),
                )

        await supervise(serve, on_lost=waits, stopping=shared.over)

    async def _is_done(self, step: Coroutine[Any, Any, None], over: asyncio.Event) -> bool:
        """Take a step, and say whether it was taken to its end: it has little time once all should
        end, and none in a hurry."""

        async def no_time_is_left() -> None:
            await over.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurries.wait(), _OPENED_WITHIN)

        taking, late = asyncio.create_task(step), asyncio.create_task(no_time_is_left())
        try:
            await asyncio.wait((taking, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            taking.cancel()
            late.cancel()
            await asyncio.wait((taking, late))
        if taking.cancelled():
            return False
        taking.result()
        return True


async def _write_acks(source: Connection) -> None:
    """Have what was settled reach the broker: it closes the connection after that."""
    if source.is_open:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_ACKS_WITHIN):
                await source.close()
