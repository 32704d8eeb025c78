"""The return path: a topic exchange to which every origin queue is bound by its own name.

A queue is bound when it is enrolled, or here, when a message comes back unroutable: the queue is
looked for on a spare channel and bound if it is there. Calls are made one at a time and remembered
for a moment, so that a thousand messages of one queue ask once. Whatever the broker answers, and
whatever a queue is called, the channel is closed again.

Where the return exchange itself is missing, that is said once, and messages wait for it as they do
for a queue that is down: a mistake in the topology makes no message dead. Where an exchange may not
be written to, that is said once in a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from redrive.amqp import Connection
from redrive.broker.live import SpareChannel, can_exist, is_down
from redrive.broker.topology import return_key
from redrive.errors import AccessRefused, ChannelClosed, NotFound, RedriveError, ResourceLocked

log = structlog.get_logger()

_REMEMBERED: Final = 1.0
"""Seconds for which an answer holds."""
_SAID_EVERY: Final = 300.0
_NO_EXCHANGE: Final = "no exchange"
_APPLY: Final = "run 'redrive topology apply'"


class Unreachable(RedriveError):
    """The origin queue cannot take the message back."""


class Down(Unreachable):
    """It cannot for now: the queue exists, and the node that has it does not answer, or the way
    there is missing. Nothing of that is the message's, so it waits."""


def _unreachable(queue: str, error: ChannelClosed) -> Unreachable:
    if isinstance(error, NotFound):
        if is_down(error):
            return Down(f"its queue {queue!r} is down: {error.text}")
        return Unreachable(f"its queue {queue!r} is gone")
    if isinstance(error, AccessRefused):
        return Unreachable(f"its queue {queue!r} may not be bound: {error.text}")
    return Unreachable(f"its queue {queue!r} cannot be used: {error.text}")


class ReturnPath:
    """Restores bindings of origin queues to the return exchange."""

    def __init__(self, exchange: str, connect: Callable[[str], Awaitable[Connection]]) -> None:
        self._exchange = exchange
        self._connect = connect
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._answers: dict[tuple[str, bool], tuple[float, bool | Unreachable]] = {}
        self._exchange_is_missing = False  # and that was said
        self._said_forbidden: dict[str, float] = {}  # when

    async def restore(self, queue: str) -> bool:
        """Bind a queue again. False if only its owner may; `Unreachable` if it cannot be had."""
        answer = await self._answer(queue, bind=True)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    async def has_exchange(self, exchange: str) -> bool:
        """Whether an exchange is there, as far as we may know."""
        if not can_exist(exchange):
            return False
        async with self._lock:
            spare = SpareChannel(await self._connected())
            try:
                await (await spare.open()).inspect_exchange(exchange)
            except NotFound:
                return False
            except ChannelClosed:
                return True
            finally:
                await spare.close()
        return True

    async def look(self, queue: str) -> Unreachable | None:
        """Why a queue cannot be had, without binding it; None if it can, as far as is known."""
        answer = await self._answer(queue, bind=False)
        return answer if isinstance(answer, Unreachable) else None

    async def _answer(self, queue: str, *, bind: bool) -> bool | Unreachable:
        """The answer of a moment ago, or a new one."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            at, answer = self._answers.get((queue, bind), (float("-inf"), False))
            if loop.time() - at > _REMEMBERED:
                answer = await self._ask(queue, bind=bind)
                self._answers = {
                    asked: known
                    for asked, known in self._answers.items()
                    if loop.time() - known[0] <= _REMEMBERED
                }
                self._answers[queue, bind] = (loop.time(), answer)
        return answer

    async def _ask(self, queue: str, *, bind: bool) -> bool | Unreachable:
        if not can_exist(queue):
            return Unreachable(f"its queue {queue!r} cannot exist: a name is 1 to 255 bytes UTF-8")
        spare = SpareChannel(await self._connected())
        try:
            channel = await spare.open()
            if bind:  # first, for who may not bind would be refused before it is missed
                await channel.inspect_exchange(self._exchange)
                self._exchange_is_missing = False
            await channel.inspect_queue(queue)
            if bind:
                await channel.bind_queue(queue, self._exchange, return_key(queue))
        except ResourceLocked:
            return False
        except ChannelClosed as error:
            if isinstance(error, AccessRefused) and not bind:
                return False  # one that is bound takes messages also from who may not look at it
            if isinstance(error, NotFound) and _NO_EXCHANGE in error.text:
                return self._no_exchange()
            return _unreachable(queue, error)
        finally:
            await spare.close()
        return True

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect("redrive return path")
        return self._connection

    def _no_exchange(self) -> Down:
        """What every queue is bound to is not there."""
        if not self._exchange_is_missing:  # said once, not for every message
            self._exchange_is_missing = True
            log.error("return_path.exchange_missing", exchange=self._exchange, remedy=_APPLY)
        return Down(f"the exchange {self._exchange!r} is missing: {_APPLY}")

    def say_forbidden(self, exchange: str, reason: str) -> None:
        """Log that we may not write to an exchange of Redrive's or of the broker's own."""
        now = time.monotonic()
        if now - self._said_forbidden.get(exchange, float("-inf")) < _SAID_EVERY:
            return
        self._said_forbidden[exchange] = now
        name = exchange or "amq.default"
        remedy = f"grant the user the permission to write to {name}"
        log.error("return_path.exchange_forbidden", exchange=name, reason=reason, remedy=remedy)

    def abort(self) -> None:
        """Hang up: nothing on this connection is worth waiting for."""
        if self._connection is not None:
            self._connection.abort()
