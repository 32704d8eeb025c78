"""Whether the system is well enough to send more: for the strategy `conditional`, and before a
replay. The circuit breaker of the destination is looked at beside these.

Guarantees: every condition is looked at, and each that does not hold is a sentence for people. A
store that does not answer counts as one that has no connection to spare.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from redrive.errors import StoreError
from redrive.work.system_state import SystemWatch

MOST_CPU: Final = 0.80
MOST_MEMORY: Final = 0.85
LEAST_CONNECTIONS: Final = 1
BLOCKED: Final = "the broker blocks publishers: it is short of memory or disk space"


class Capacity(Protocol):
    """The store, as far as it has limits."""

    async def spare_connections(self) -> int | None:
        """How many more connections it takes; None where their number is not limited."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What must hold before something is sent."""

    system: SystemWatch
    capacity: Capacity
    most_cpu: float = MOST_CPU
    most_memory: float = MOST_MEMORY
    least_connections: int = LEAST_CONNECTIONS

    async def unmet(self, *, broker_blocked: bool) -> list[str]:
        """The conditions that do not hold; none if all is well."""
        found = []
        # Right after a start nothing is known of the CPU yet.
        if (settling := self.system.settles_in()) > 0:
            await asyncio.sleep(settling)
        state = self.system.state()
        if state.cpu_usage >= self.most_cpu:
            found.append(_too_high("the CPU is", "busy", state.cpu_usage, self.most_cpu))
        if state.memory_usage >= self.most_memory:
            found.append(_too_high("memory is", "used", state.memory_usage, self.most_memory))
        if (sentence := await self._connections()) is not None:
            found.append(sentence)
        if broker_blocked:
            found.append(BLOCKED)
        return found

    async def _connections(self) -> str | None:
        try:
            spare = await self.capacity.spare_connections()
        except StoreError as error:
            return f"the store does not tell whether connections are free: {error}"
        if spare is None or spare >= self.least_connections:
            return None
        least = self.least_connections
        return f"the database has {max(spare, 0)} connections to spare, expected {least} or more"


def _too_high(what: str, how: str, share: float, most: float) -> str:
    return f"{what} {share:.0%} {how}, expected less than {most:.0%}".replace("%", " %")
