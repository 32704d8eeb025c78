"""A broker at hand: its connection, its management API, and what Redrive wants there.

Commands are handed one and need not know the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from redrive.amqp import Connection
from redrive.broker.apply import Applied, apply
from redrive.broker.delete import Deleted, Permission, delete
from redrive.broker.drift import Drift
from redrive.broker.enroll import Enroller
from redrive.broker.live import examine, left_over
from redrive.broker.management import Management
from redrive.broker.topology import Topology, describe, with_tiers_beyond
from redrive.errors import ManagementError
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

    def deletable(self) -> Topology:
        """The topology, with the tiers that the settings no longer have."""
        return with_tiers_beyond(self.topology, self.settings.topology)

    async def delete(self, permission: Permission) -> Deleted:
        """Without names, the description; a left-over tier only by name."""
        names = permission.names
        topology = self.deletable().only(names) if names else self.topology
        return await delete(topology, self.connection, self.management, permission)

    def enroller(self) -> Enroller:
        names = self.settings.topology.names
        if self.management is None:
            raise ManagementError(
                "queues are enrolled by a policy of the broker, which only the management API sets",
                remedy="set [broker] management_url, or give the queue the argument"
                f" x-dead-letter-exchange: {names.retry_exchange}",
            )
        return Enroller(self.topology, names, self.connection, self.management)
