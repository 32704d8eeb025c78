"""What queues have room for before they push out others, for who sends letters to many of them for
long: looked at before anything is claimed for a queue, and again while it is filled.

What it guarantees, where there is a management API that answers:
- Nothing goes to a queue with a limit for which there was no place when it was last looked at, less
  what went there since.
- Who looks has nothing under way: what is claimed and not confirmed yet would be missed.

It is not told of what others bring there between two looks. Without the management API nothing is
known of limits, and all goes as if there were none; that is said once. Of a limit that is known
already, the rest is asked of the queue itself; bytes, which only that API counts, leave no room
then.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog

from redrive.amqp import Connection
from redrive.amqp.lane import Connect
from redrive.broker.live import can_exist
from redrive.broker.management import Management
from redrive.broker.room import LengthLimit, Room
from redrive.errors import ManagementError
from redrive.work.queue_site import QueueSite, limits_of
from redrive.work.rooms import Rooms

log = structlog.get_logger()

_HOLDS: Final = timedelta(seconds=1)
"""How long a look at a queue with a limit is good: others bring messages there as well."""
_WITHOUT_LIMIT_HOLDS: Final = timedelta(seconds=30)
"""And that a queue has none."""
_FEW: Final = 20
"""Queues that are asked for one by one; of more, it costs less to list all."""
_REST: Final = 10
"""A look is good for so many times as long as it took, at least: bytes are counted slowly."""


@dataclass(slots=True)
class _Seen:
    """What is known of a queue."""

    room: Room | None
    """None: nothing bounds it, or nobody tells."""
    until: float
    """When it is too old, by the clock of this process."""
    touched: bool = False
    """Whether something was sent there since."""


class RoomAhead:
    """What one sender knows of the queues that it sends to."""

    def __init__(self, connect: Connect, management: Management | None) -> None:
        self._connect = connect
        self._management = management
        self._connection: Connection | None = None
        self._limits: dict[str, LengthLimit] = {}
        self._seen: dict[str, _Seen] = {}
        self._new: set[str] = set()  # looked at, and not asked of since
        self._listed_until = 0.0  # until when all queues with a limit are in `_limits`
        self._silent = False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    # What is known

    def unknown(self, queues: Collection[str]) -> set[str]:
        """Those of the queues that have to be looked at before anything goes there. What was just
        looked at is known, however long that took."""
        if self._management is None:
            return set()
        now = time.monotonic()
        old = {queue for queue in queues if queue not in self._new and self._is_old(queue, now)}
        if not old:
            self._new.clear()
        return old

    def _is_old(self, queue: str, now: float) -> bool:
        seen = self._seen.get(queue)
        if seen is not None and (seen.until > now or seen.room is not None):
            return seen.until <= now
        return queue in self._limits or self._listed_until <= now

    def weighs(self, queue: str) -> bool:
        """Whether it matters how large a message is."""
        room = self._room(queue)
        return room is not None and room.weighs

    def take(self, queue: str, body: int, properties: int) -> bool:
        """Whether a message of these sizes fits in; if so, its place is taken."""
        room = self._room(queue)
        if room is None:
            return True
        seen = self._seen[queue]
        if not room.take_sized(body, properties):
            if seen.touched:
                seen.until = 0.0
            return False
        seen.touched = True
        return True

    def why_full(self, queue: str) -> str | None:
        """What is said of a queue that had no place for a letter when it was looked at; None if
        something went there since, so that it has to be looked at again."""
        room = self._room(queue)
        if room is None or self._seen[queue].touched:
            return None
        return room.says

    def _room(self, queue: str) -> Room | None:
        seen = self._seen.get(queue)
        return None if seen is None else seen.room

    # Looking

    async def look(self, queues: Collection[str]) -> None:
        """Find out what fits into these queues, all at the same time. Raises `BrokerError` only if
        the broker is lost."""
        began = time.monotonic()
        await self._learn_limits(queues)
        limits = {queue: self._limits[queue] for queue in queues if queue in self._limits}
        if limits:
            await self._connect_anew()
        rooms = Rooms(limits, self._ask)
        await rooms.ask(limits)
        for queue in queues:
            room = rooms.of(queue)
            holds = _WITHOUT_LIMIT_HOLDS if room is None else _HOLDS
            self._seen[queue] = _Seen(room, _good_until(began, holds))
        self._new |= set(queues)
        self._forget(time.monotonic())

    def _forget(self, now: float) -> None:
        """What was not asked for again: names of queues may come and go."""
        for queue in [queue for queue, seen in self._seen.items() if seen.until <= now]:
            if queue not in self._limits:
                del self._seen[queue]

    async def _learn_limits(self, queues: Collection[str]) -> None:
        """Those that are known stay known where nobody tells."""
        assert self._management is not None
        asked = {queue for queue in queues if can_exist(queue)}
        try:
            if len(asked) > _FEW:
                began = time.monotonic()
                self._limits = await limits_of(self._management)
                self._listed_until = _good_until(began, _WITHOUT_LIMIT_HOLDS)
            else:
                found = await limits_of(self._management, asked)
                known = {queue: self._limits[queue] for queue in self._limits.keys() - asked}
                self._limits = known | found
            self._silent = False
        except ManagementError as error:
            self._say(error)

    async def _ask(self, queue: str, limit: LengthLimit) -> Room:
        assert self._connection is not None
        site = QueueSite(self._connection, self._management, self._connect)
        try:
            return await site.room_of(queue, limit)
        except ManagementError as error:
            self._say(error)
            return Room(queue, limit, limit.messages or 0, None, site.version)

    async def _connect_anew(self) -> None:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect("redrive room")

    def _say(self, error: ManagementError) -> None:
        if not self._silent:  # one line for an outage, not one for every look
            self._silent = True
            log.warning("room.unknown", error=str(error), remedy=error.remedy)


def _good_until(began: float, holds: timedelta) -> float:
    """Until when a look that began then, and ends now, is good."""
    now = time.monotonic()
    return now + max(holds, _REST * timedelta(seconds=now - began)).total_seconds()
