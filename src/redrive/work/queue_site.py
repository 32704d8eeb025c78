"""The broker as those see it who look into queues: which queues there are, and what they are like.

By the management API where there is one; it is needed for patterns only. Without it, a queue that
is named is there or not, and its limits are unknown; of its type the broker tells whether it is
classic, and is asked where that matters.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from redrive.amqp import Connection
from redrive.amqp.lane import Connect
from redrive.broker.live import SpareChannel
from redrive.broker.looking import NACK_IS_FREE, QueueFacts, Version, read_version
from redrive.broker.management import Management
from redrive.broker.queue_kind import is_classic
from redrive.broker.topology import DELIVERY_LIMIT
from redrive.errors import AccessRefused, ManagementError, NotFound
from redrive.work.mover import Limits, Pace, Plan
from redrive.work.one_pass import OnePass

_COLUMNS = (
    *("name", "type", "durable", "exclusive", "auto_delete", "arguments", "policy"),
    *("operator_policy", "effective_policy_definition", "owner_pid_details"),
)


@dataclass(frozen=True, slots=True)
class QueueSite:
    """A broker, for as long as its connection is open."""

    connection: Connection
    management: Management | None
    connect: Connect
    """Opens further connections to the same broker."""
    own_queues: Collection[str] = ()
    """Redrive's own: a death in one of them is no failure."""
    waiting_queues: Collection[str] = ()
    """Those of them in which messages wait for their retry: no pattern means them."""

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
        found = await self.management.queues(*_COLUMNS)
        return [QueueFacts.from_management(each) for each in found]

    async def named(self, queue: str) -> QueueFacts | None:
        """A queue by its name; None if there is none. What nobody can tell of it is unknown.

        Raises the broker's refusal if the queue is exclusive to another connection, or down.
        """
        if await self.count(queue) is None:
            return None
        found: dict[str, Any] | None = None
        if self.management is not None:
            found = await self.management.queue(queue)
        if found is not None:
            return QueueFacts.from_management(found)
        asks = self.version < NACK_IS_FREE and await is_classic(self.connect, queue)
        return QueueFacts(name=queue, kind="classic" if asks else None)

    async def existing(self, queue: str) -> QueueFacts:
        """The same of a queue that must be there."""
        facts = await self.named(queue)
        if facts is None:
            raise NotFound(404, f"no queue {queue!r}")
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
