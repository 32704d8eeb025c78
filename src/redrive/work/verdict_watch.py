"""Silence as a verdict: what was sent and never came back was consumed, if somebody could have.

The clock of a sending starts when its destination is seen idle after the confirm: with a consumer,
and without a message that waits. A backlog, or a queue without a consumer, starts no clock, however
long it lasts. When the time is over it is looked at again: a consumer may have taken messages ahead
and gone away, and then they wait as before. While any waits there, nothing is settled; where nobody
consumes them, the clock starts anew. A destination that is gone leaves what was sent there to a
person.

That nothing waits is believed of a queue with a consumer. Of one without, the broker says so too
where its leader does not answer (`broker/live.py`): it counts as silence only if the management API
shows that it is no quorum queue, or that it was measured since and had nothing, not even in hand.
Else the clock starts anew, as if messages waited.

What a consumer has in hand all the time looks like what it has handled. If it fails later, it comes
back, which counts for more than silence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

import structlog

from redrive.amqp import Connection
from redrive.broker.live import SpareChannel, can_exist, live_queue
from redrive.broker.management import Management
from redrive.domain.letter import Attempt, Letter
from redrive.domain.verdict import Verdict, has_died_in, on_silence
from redrive.errors import BrokerError, ManagementError, NotFound, ResourceLocked
from redrive.events import Events, LetterChanged
from redrive.store.verdicts import Settled, Verdicts

log = structlog.get_logger()

_AT_ONCE: Final = 500
_REST: Final = 20
"""How many times as long as a look took, until the next one."""
_MEASURED_WITHIN: Final = 15.0
"""Seconds: a quorum queue is measured every 5, and shown every 5, with the broker's defaults."""
_SHOWN_EVERY: Final = 1.0
_COLUMNS: Final = (
    *("name", "type", "durable", "exclusive", "auto_delete", "arguments"),
    *("messages", "consumers", "reductions"),
)


class _Seen(Enum):
    """How a destination was found."""

    ATTENDED = auto()
    """Nothing waits, and somebody consumes."""
    EMPTY = auto()
    """Nothing waits, and nobody consumes; or nobody answered for it."""
    BACKLOG = auto()
    """Messages wait, and somebody consumes them."""
    ABANDONED = auto()
    """Messages wait, and nobody consumes them."""
    GONE = auto()
    UNKNOWN = auto()
    """It is down, not for us to look at, or the look failed."""


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
            await self._leave_to_person(queue, looked_at)
        elif seen is _Seen.ATTENDED:
            await self._verdicts.count_silence(
                self._vhost, queue, seen_idle_at=looked_at, verdict_after=self._verdict_after
            )

    async def _see(self, queue: str) -> _Seen:
        """Raises `BrokerError` only if the broker is lost: one look that fails ends no others."""
        connection = await self._connected()
        try:
            return await _seen(connection, queue)
        except BrokerError as error:
            if not connection.is_open:
                raise
            log.warning("verdict.no_look", queue=queue, error=str(error), remedy=error.remedy)
            return _Seen.UNKNOWN

    async def _leave_to_person(self, queue: str, looked_at: datetime) -> None:
        reason = f"its destination {queue!r} is gone, and the message may be with it"
        self._tell(
            await self._verdicts.leave_to_person(self._vhost, queue, reason, looked_at=looked_at)
        )

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect("redrive verdicts")
        return self._connection

    # Settling

    async def _settle(self) -> None:
        empty = []
        for queue in await self._verdicts.silent_queues(self._vhost):
            looked_at = await self._verdicts.now()
            seen = await self._see(queue)
            if seen is _Seen.ATTENDED:
                await self._settle_silence_of(queue)
            elif seen is _Seen.EMPTY:
                empty.append(queue)
            elif seen is _Seen.ABANDONED:
                await self._verdicts.count_no_more(self._vhost, queue)
            elif seen is _Seen.GONE:
                await self._leave_to_person(queue, looked_at)
        sure = await self._surely_empty(empty)
        for queue in empty:
            if queue in sure:
                await self._settle_silence_of(queue)
            else:
                await self._verdicts.count_no_more(self._vhost, queue)
        await self._settle_what_went_to(None)

    async def _surely_empty(self, queues: Collection[str]) -> set[str]:
        if not queues or self._management is None:
            return set()
        try:
            return await surely_empty(queues, self._management)
        except ManagementError as error:
            log.warning("verdict.management_away", error=str(error), remedy=error.remedy)
            return set()

    async def _settle_silence_of(self, queue: str) -> None:
        if self._management is not None:
            await self._learn(self._management, queue)
        await self._settle_what_went_to(queue)

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


async def _seen(connection: Connection, queue: str) -> _Seen:
    spare = SpareChannel(connection)
    try:
        found = await spare.count(queue) if can_exist(queue) else None
    except ResourceLocked:
        return _Seen.ATTENDED  # its owner is connected, and nobody else may look
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


@dataclass(slots=True)
class _Measured:
    """A quorum queue as the management API has shown it since the first question: a queue does some
    work to be measured, so its `reductions` tell one measure from the next."""

    work: object
    news: int = 0
    holds: bool = True

    def show(self, row: dict[str, Any]) -> None:
        self.news += row.get("reductions") != self.work
        self.work = row.get("reductions")
        self.holds = bool(row.get("messages") or row.get("consumers"))

    @property
    def is_known(self) -> bool:
        """Whether the last measure was made after the first question: one new one may have been
        under way then."""
        return self.news > 1


async def surely_empty(queues: Collection[str], management: Management) -> set[str]:
    """Of queues that the broker says are empty, and without consumers, those that are: no quorum
    queues, or their leaders measured them since, and they had nothing. Raises `ManagementError`."""
    sure: set[str] = set()
    asked: dict[str, _Measured] = {}
    for row in await management.queues(*_COLUMNS):
        if row["name"] in queues:
            if live_queue(row).kind == "quorum":
                asked[row["name"]] = _Measured(row.get("reductions"))
            else:
                sure.add(row["name"])
    until = time.monotonic() + _MEASURED_WITHIN
    while not all(each.is_known for each in asked.values()) and time.monotonic() < until:
        await _look_again(asked, management)
    if asked:
        await _look_again(asked, management)  # the figures of one measure come one by one
    return sure | {queue for queue, each in asked.items() if each.is_known and not each.holds}


async def _look_again(asked: dict[str, _Measured], management: Management) -> None:
    await asyncio.sleep(_SHOWN_EVERY)
    shown = {row["name"]: row for row in await management.queues(*_COLUMNS)}
    for queue in list(asked):
        if queue in shown:
            asked[queue].show(shown[queue])
        else:
            del asked[queue]  # somebody deleted it


def dead_letters(queue: dict[str, Any]) -> bool:
    """Whether a queue, as the management API tells it, has a dead letter exchange."""
    arguments = queue.get("arguments") or {}
    policy = queue.get("effective_policy_definition") or {}
    return "x-dead-letter-exchange" in arguments or "dead-letter-exchange" in policy
