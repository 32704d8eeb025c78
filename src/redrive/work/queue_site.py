"""The broker as those see it who look into queues: which queues there are, and what they are like.

By the management API where there is one; it is needed for patterns only. Without it, a queue that
is named is there or not, and its limits are unknown; of its type the broker tells whether it is
classic, and is asked where that matters.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from redrive.amqp import Connection
from redrive.amqp.fields import octets
from redrive.amqp.lane import Connect
from redrive.broker.live import NOTHING, SpareChannel, count_surely, live_queue
from redrive.broker.looking import NACK_IS_FREE, QueueFacts, Version, read_version
from redrive.broker.management import Management
from redrive.broker.policies import Policies
from redrive.broker.queue_kind import is_classic
from redrive.broker.room import LengthLimit, Room
from redrive.broker.topology import DELIVERY_LIMIT
from redrive.errors import (
    AccessRefused,
    BrokerError,
    ChannelClosed,
    ManagementError,
    OrderRefused,
)
from redrive.work.mover import Limits, Pace, Plan
from redrive.work.one_pass import OnePass
from redrive.work.rooms import Rooms

_COLUMNS = (
    *("name", "type", "durable", "exclusive", "auto_delete", "arguments", "policy"),
    *("operator_policy", "effective_policy_definition", "owner_pid_details"),
)
CHECK_THE_NAME: Final = "check the name and the vhost"
_STATISTICS_WITHIN: Final = 8.0
"""Seconds within which the management API counts what the queue had: it is 5 behind by default."""
_BYTES_WITHIN: Final = 1.0
"""Seconds after which it has counted their bytes too."""
_LOOK_EVERY: Final = 0.2
_LONGEST_NAME: Final = 255
"""Bytes."""
NOBODY_TELLS_OF_ROOM: Final = (
    "the management API alone tells whether a queue has a length limit and drops its oldest"
    " messages to make room: whether the new place does so is not known"
)


def check_name(queue: str) -> None:
    """Raise if no queue can be called so."""
    size = len(octets(queue))
    if size > _LONGEST_NAME:
        raise OrderRefused(
            f"a queue's name has at most {_LONGEST_NAME} bytes, and that of the target has {size}",
            remedy="choose a shorter one",
        )


@dataclass(frozen=True, slots=True)
class QueueSite:
    """A broker, for as long as its connection is open."""

    connection: Connection
    management: Management | None
    connect: Connect
    """Opens further connections to the same broker."""
    own_queues: Container[str] = ()
    """Redrive's own: a death in one of them is no failure."""
    waiting_queues: Container[str] = ()
    """All of them but the dead letter queue: what waits there is not dead, so no pattern means
    them."""

    @property
    def version(self) -> Version:
        return read_version(self.connection.server_properties.get("version"))

    async def listed(self) -> list[QueueFacts]:
        """Every queue of the vhost. Raises `ManagementError`: only that API lists queues."""
        if self.management is None:
            raise ManagementError(
                "a pattern needs the management API, which alone lists queues",
                remedy="set [broker] management_url, or name the queues",
            )
        policies = await Policies.read(self.management)
        found = await self.management.queues(*_COLUMNS)
        return [self._facts(policies.as_it_may_be(each)) for each in found]

    def _facts(self, as_it_may_be: Iterable[dict[str, Any]]) -> QueueFacts:
        """Of what the queue may be, what forgives least."""

        def limit(facts: QueueFacts) -> float:
            known = facts.delivery_limit(self.version)
            return math.inf if known is None else known

        return min(map(QueueFacts.from_management, as_it_may_be), key=limit)

    async def named(self, queue: str) -> QueueFacts | None:
        """A queue by its name; None if there is none. What nobody can tell of it is unknown.

        Raises the broker's refusal if the queue is exclusive to another connection, or down.
        """
        if await self.count(queue) is None:
            return None
        if self.management is not None:
            found = await self.management.queue(queue)
            if found is not None:
                policies = await Policies.read(self.management)
                return self._facts(policies.as_it_may_be(found))
        asks = self.version < NACK_IS_FREE and await is_classic(self.connect, queue)
        return QueueFacts(name=queue, kind="classic" if asks else None)

    async def existing(self, queue: str) -> QueueFacts:
        """The same of a queue that must be there."""
        facts = await self.named(queue)
        if facts is None:
            raise BrokerError(f"there is no queue {queue!r}", remedy=CHECK_THE_NAME)
        return facts

    def pass_over(
        self,
        facts: QueueFacts,
        plan: Plan,
        *,
        limits: Limits | None,
        most: int | None = None,
        pace: Pace | None = None,
    ) -> OnePass:
        """A look at each message of a queue that costs none of them its place."""
        return OnePass(
            facts.name,
            plan,
            connect=self.connect,
            limits=limits,
            most=most,
            pace=pace,
            classic=facts.kind == "classic",
            removed_at=facts.removed_at(self.version),
            own_queues=self.own_queues,
        )

    async def with_consumers(self, facts: QueueFacts) -> QueueFacts:
        """The same with who consumes it now, as far as anybody tells: a list of queues does not."""
        if facts.consumers or self.management is None:
            return facts
        try:
            found = await self.management.queue(facts.name)
        except ManagementError:
            return facts
        if found is None:
            return facts
        return replace(facts, consumers=QueueFacts.from_management(found).consumers)

    # Room in the queues that messages are brought to

    async def room(
        self, queue: str, kind: str | None = None, *, foresee: bool = False
    ) -> Room | None:
        """What fits into a queue before it pushes out others; None if nothing bounds that, or
        nobody tells. Of one that is still to be made, as one of this type. `foresee` also what it
        would refuse, which it says by itself when messages come."""
        if self.management is None:
            return None
        found = await self.management.queue(queue)
        if found is None:
            made = {"arguments": {}, "durable": True, "auto_delete": False}
            found = {"name": queue, "type": kind or "classic", **made}
        limit = (await _length_limits(self.management, [found], foresee=foresee)).get(queue)
        return None if limit is None else await self.room_of(queue, limit)

    async def rooms(self, *, foresee: bool = False) -> Rooms:
        """The same of every queue that has a limit, of each when it is asked for."""
        limits = {}
        if self.management is not None:
            found = await self.management.queues(*_COLUMNS)
            limits = await _length_limits(self.management, found, foresee=foresee)
        return Rooms(limits, self.room_of)

    def told_of_room(self, moved: int) -> list[str]:
        """What is to be said where so many messages were moved, and nobody knows of room."""
        return [NOBODY_TELLS_OF_ROOM] if moved > 0 and self.management is None else []

    async def room_of(self, queue: str, limit: LengthLimit) -> Room:
        """What fits into a queue whose limit is known."""
        ready = await self._ready(queue, surely=limit.kind == "quorum")
        size: int | None = 0
        if limit.size is not None and ready:
            size = await self._size(queue, ready)
        return Room(queue, limit, ready, size, self.version)

    async def _ready(self, queue: str, *, surely: bool) -> int:
        assert self.management is not None
        try:
            found = await (self._count_surely(queue) if surely else self.count(queue))
            return (found or NOTHING)[0]
        except ChannelClosed:  # it tells its owner only, or nobody
            shown = await self.management.queue(queue) or {}
            return int(shown.get("messages_ready") or 0)

    async def _count_surely(self, queue: str) -> tuple[int, int] | None:
        try:
            return await count_surely(self.connection, queue, self.management)
        except ManagementError:  # of a limit that is known, the queue itself tells the rest
            return await count_surely(self.connection, queue)

    async def _size(self, queue: str, ready: int) -> int | None:
        """How many bytes are ready, once the statistics know of as many messages; None if they do
        not, as where messages come and go. 4.3 counts bytes a moment after messages."""
        assert self.management is not None
        loop = asyncio.get_running_loop()
        until, since = loop.time() + _STATISTICS_WITHIN, 0.0
        while loop.time() < until:
            found = await self.management.queue(queue) or {}
            if found.get("messages_ready") != ready:
                since = 0.0
            elif not since:
                since = loop.time()
            elif loop.time() - since > _BYTES_WITHIN:
                size = found.get("message_bytes_ready")
                return size if isinstance(size, int) else None
            await asyncio.sleep(_LOOK_EVERY)
        return None

    async def count(self, queue: str) -> tuple[int, int] | None:
        """Ready messages and consumers; None if there is no such queue."""
        spare = SpareChannel(self.connection)
        try:
            return await spare.count(queue)
        finally:
            await spare.close()

    async def is_missing(self, target: str) -> bool:
        """Whether a queue is known not to be there. RabbitMQ 4.3 tells only who has a right on it;
        who may write to it by an exchange alone finds out by the first message."""
        try:
            return await self.count(target) is None
        except AccessRefused:
            return False

    async def make(self, queue: str, kind: str) -> None:
        """Make a queue that keeps what it gets."""
        arguments: dict[str, str | int] = {"x-queue-type": kind}
        if kind == "quorum":
            arguments["x-delivery-limit"] = DELIVERY_LIMIT
        channel = await self.connection.channel()
        await channel.declare_queue(queue, arguments=dict(arguments))
        await channel.close()


async def limits_of(
    management: Management, queues: Collection[str] | None = None
) -> dict[str, LengthLimit]:
    """Of these queues, by default all, those that push out others when they are full. Raises
    `ManagementError`."""
    if queues is None:
        found = await management.queues(*_COLUMNS)
    else:
        asked = await asyncio.gather(*(management.queue(each) for each in queues))
        found = [each for each in asked if each is not None]
    return await _length_limits(management, found, foresee=False)


async def _length_limits(
    management: Management, queues: Iterable[dict[str, Any]], *, foresee: bool
) -> dict[str, LengthLimit]:
    policies = await Policies.read(management)
    limits = {found["name"]: _length_limit(policies.as_it_may_be(found)) for found in queues}
    return {
        queue: limit
        for queue, limit in limits.items()
        if limit is not None and (foresee or not limit.refuses)
    }


def _length_limit(as_it_may_be: Iterable[dict[str, Any]]) -> LengthLimit | None:
    """Of the limits that a queue may have, the lowest that pushes out; else that refuses."""
    limits = [LengthLimit.of(live_queue(each)) for each in as_it_may_be]
    known = [limit for limit in limits if limit is not None]
    worst = [limit for limit in known if not limit.refuses] or known
    if not worst:
        return None
    messages = [limit.messages for limit in worst if limit.messages is not None]
    sizes = [limit.size for limit in worst if limit.size is not None]
    return replace(worst[-1], messages=min(messages, default=None), size=min(sizes, default=None))
