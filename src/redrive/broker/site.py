"""A broker at hand: its connection, its management API, and what Redrive wants there.

Commands are handed one and need not know the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from redrive.amqp import Connection
from redrive.broker.apply import Applied, apply
from redrive.broker.delete import Deleted, Permission, delete
from redrive.broker.drift import Drift
from redrive.broker.enroll import Enroller
from redrive.broker.ladder import with_ladder
from redrive.broker.live import NOTHING, count_surely, examine, left_over
from redrive.broker.management import Management
from redrive.broker.own_queues import OwnQueues, own_queues
from redrive.broker.queues_beside import beside_listed, beside_named
from redrive.broker.topology import Binding, Topology, describe, with_tiers_beyond
from redrive.errors import AccessRefused, ManagementError, NotFound
from redrive.settings import Settings


@dataclass(frozen=True, slots=True)
class Site:
    """What the topology commands work on."""

    settings: Settings
    connection: Connection
    management: Management | None

    @property
    def topology(self) -> Topology:
        return describe(self.settings.topology, self.settings.queue)

    async def without_silent_management(self) -> tuple[Site, ManagementError | None]:
        """This site, or one without management where it does not answer; and why."""
        try:
            if self.management is not None:
                await self.management.version()
        except ManagementError as error:
            return replace(self, management=None), error
        return self, None

    async def drift(self) -> Drift:
        """How the broker differs, and what tiers are left over."""
        drift = await examine(self.topology, self.connection, self.management)
        surplus = await left_over(self.settings.topology, self.connection)
        return Drift((*drift.findings, *surplus), drift.exact)

    async def apply(self) -> Applied:
        return await apply(self.topology, self.connection, self.management)

    @property
    def _own(self) -> OwnQueues:
        return own_queues(self.settings.topology, self.settings.queue)

    def not_ours(self, names: Collection[str]) -> set[str]:
        """Which of these are no queue or exchange of Redrive's."""
        parts = [part for part in self._with_all().parts() if not isinstance(part, Binding)]
        known = {part.name for part in parts}
        return {name for name in names if name not in known and name not in self._own}

    def _with_all(self) -> Topology:
        """The topology, with the ladder, and with the tiers that the settings no longer have."""
        settings = self.settings.topology
        return with_ladder(with_tiers_beyond(self.topology, settings), settings)

    async def delete(self, permission: Permission) -> Deleted:
        """Without names, the description and the SDK's queues; a left-over tier only by name."""
        names, settings = permission.names, self.settings.topology
        every = with_ladder(self.topology, settings)
        topology = self._with_all().only(names) if names else every
        if self.management is not None:
            beside = await beside_listed(self._own, self.management, names)
        else:
            beside = beside_named(self._own, settings, names)
        topology = replace(topology, queues=(*topology.queues, *beside))
        return await delete(topology, self.connection, self.management, permission)

    async def waiting(self) -> dict[str, int]:
        """Queues in which messages wait that come back to theirs, and how many. Those that the user
        may not look at are left out."""
        names = self.settings.topology.names
        not_theirs = (names.dlq_queue, names.receipts_queue)
        queues = [each.name for each in self._with_all().queues if each.name not in not_theirs]
        found = await asyncio.gather(*map(self._ready, queues))
        return {queue: ready for queue, ready in zip(queues, found, strict=True) if ready}

    async def _ready(self, queue: str) -> int:
        with suppress(AccessRefused, NotFound):  # NotFound: its node is down
            return (await count_surely(self.connection, queue, self.management) or NOTHING)[0]
        return 0

    def enroller(self) -> Enroller:
        names = self.settings.topology.names
        if self.management is None:
            raise ManagementError(
                "queues are enrolled by a policy of the broker, which only the management API sets",
                remedy="set [broker] management_url, or give the queue the argument"
                f" x-dead-letter-exchange: {names.retry_exchange}",
            )
        return Enroller(self.topology, names, self.connection, self.management)
