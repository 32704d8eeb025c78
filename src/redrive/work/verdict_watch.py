"""Silence as a verdict: what was sent and never came back was consumed, if somebody could have.

The clock of a sending starts when its destination is seen idle after the confirm: with a consumer,
and without a message that waits. A backlog, or a queue without a consumer, starts no clock, however
long it lasts. When the time is over it is looked at again: a consumer may have taken messages ahead
and gone away, and then they wait as before. While any waits there, nothing is settled; where nobody
consumes them, the clock starts anew. A destination that is gone leaves what was sent there to a
person.

What a consumer has in hand all the time looks like what it has handled. If it fails later, it comes
back, which counts for more than silence.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final

import structlog

from redrive.amqp import Connection
from redrive.broker.live import SpareChannel, can_exist
from redrive.broker.management import Management
from redrive.domain.letter import Attempt, Letter
from redrive.domain.verdict import Verdict, has_died_in, on_silence
from redrive.errors import AccessRefused, ManagementError, NotFound, ResourceLocked
from redrive.events import Events, LetterChanged
from redrive.store.verdicts import Settled, Verdicts

log = structlog.get_logger()

_AT_ONCE: Final = 500
_REST: Final = 20
"""How many times as long as a look took, until the next one."""


class _Seen(Enum):
    """How a destination was found."""

    ATTENDED = auto()
    """Nothing waits, and somebody consumes."""
    EMPTY = auto()
    """Nothing waits, and nobody consumes."""
    BACKLOG = auto()
    """Messages wait, and somebody consumes them."""
    ABANDONED = auto()
    """Messages wait, and nobody consumes them."""
    GONE = auto()
    UNKNOWN = auto()
    """It is down, or not for us to look at."""


class VerdictWatch:
    """Looks at destinations, and settles what has been silent for long enough."""

    def __init__(  # noqa: PLR0913  (what it works with, each by its name)
        self,
        vhost: str,
        verdicts: Verdicts,
        connect: Callable[[str], Awaitable[Connection]],
        management: Management | None,
        *,
        lease: timedelta,
        verdict_after: timedelta,
        events: Events | None = None,
    ) -> None:
        self._vhost = vhost
        self._verdicts = verdicts
        self._connect = connect
        self._management = management
        self._lease = lease
        self._verdict_after = verdict_after
        self._events = events or Events()
        self._connection: Connection | None = None
        self._next_look = 0.0
        self._dead_letters: dict[str, bool] = {}  # what the management API said of a queue

    async def in_turn(self) -> None:
        """A round, unless it is too early: with very many letters outstanding a look takes its
        time, and the next one is put off accordingly."""
        if time.monotonic() >= self._next_look:
            await self.round()

    async def round(self) -> None:
        """End leases, start clocks, settle what is due. Raises what store and broker raise."""
        began = time.monotonic()
        found = await self._verdicts.survey(self._vhost, self._lease)
        looked = time.monotonic()
        self._next_look = looked + _REST * (looked - began)
        if found.leases:
            await self._end_leases()
        if found.awaited:
            for queue in await self._verdicts.awaited(self._vhost):
                await self._look(queue)
        if found.silent:
            await self._settle()

    async def _end_leases(self) -> None:
        ended = await self._verdicts.end_leases(self._lease, verdict_after=self._verdict_after)
        if ended:
            log.warning("lease.ended", letters=ended, result="in_doubt")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    # Looking

    async def _look(self, queue: str) -> None:
        looked_at = await self._verdicts.now()
        seen = await self._see(queue)
        if seen is _Seen.GONE:
            await self._leave_to_person(queue)
        elif seen is _Seen.ATTENDED:
            await self._verdicts.count_silence(
                self._vhost, queue, seen_idle_at=looked_at, verdict_after=self._verdict_after
            )

    async def _see(self, queue: str) -> _Seen:
        spare = SpareChannel(await self._connected())
        try:
            found = await spare.count(queue) if can_exist(queue) else None
        except ResourceLocked:
            return _Seen.ATTENDED  # its owner is connected, and nobody else may look
        except AccessRefused as error:
            log.warning("verdict.no_look", queue=queue, error=str(error), remedy=error.remedy)
            return _Seen.UNKNOWN
        except NotFound:
            return _Seen.UNKNOWN  # its node is down, which passes
        finally:
            await spare.close()
        if found is None:
            return _Seen.GONE
        ready, consumers = found
        if ready:
            return _Seen.BACKLOG if consumers else _Seen.ABANDONED
        return _Seen.ATTENDED if consumers else _Seen.EMPTY

    async def _leave_to_person(self, queue: str) -> None:
        reason = f"its destination {queue!r} is gone, and the message may be with it"
        self._tell(await self._verdicts.leave_to_person(self._vhost, queue, reason))

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect("redrive verdicts")
        return self._connection

    # Settling

    async def _settle(self) -> None:
        for queue in await self._verdicts.silent_queues(self._vhost):
            seen = await self._see(queue)
            if seen in (_Seen.ATTENDED, _Seen.EMPTY):
                if self._management is not None:
                    await self._learn(self._management, queue)
                await self._settle_what_went_to(queue)
            elif seen is _Seen.ABANDONED:
                await self._verdicts.count_no_more(self._vhost, queue)
            elif seen is _Seen.GONE:
                await self._leave_to_person(queue)
        await self._settle_what_went_to(None)

    async def _settle_what_went_to(self, queue: str | None) -> None:
        """To a queue, or None: to an exchange, of which nobody knows what it reached."""
        while True:
            settled = await self._verdicts.settle_silent(self._vhost, queue, self._verdict)
            self._tell(settled)
            if len(settled) < _AT_ONCE:
                return

    def _verdict(self, letter: Letter, attempt: Attempt) -> Verdict:
        queue = attempt.queue
        known = queue is not None and (
            has_died_in(letter, queue) or self._dead_letters.get(queue, False)
        )
        return on_silence(attempt, dead_letters=known)

    def _tell(self, settled: list[Settled]) -> None:
        for each in settled:
            self._events.tell(LetterChanged(each.letter, each.letter.status, each.reason))
            log.info(
                "letter.verdict",
                letter=each.letter.id,
                queue=each.letter.queue,
                state=each.letter.status.word,
                resolution=each.letter.resolution,
                reason=each.reason,
            )

    async def _learn(self, management: Management, queue: str) -> None:
        """Whether a queue dead-letters what fails in it: policies change, so it is asked anew."""
        try:
            found = await management.queue(queue)
        except ManagementError as error:
            log.warning("verdict.management_away", error=str(error), remedy=error.remedy)
            return
        self._dead_letters[queue] = found is not None and dead_letters(found)


def dead_letters(queue: dict[str, Any]) -> bool:
    """Whether a queue, as the management API tells it, has a dead letter exchange."""
    arguments = queue.get("arguments") or {}
    policy = queue.get("effective_policy_definition") or {}
    return "x-dead-letter-exchange" in arguments or "dead-letter-exchange" in policy
