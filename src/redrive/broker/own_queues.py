"""Which queues and exchanges are Redrive's own: the one place that says so.

Those of the topology, also of tiers that the settings no longer have; the rungs of the ladder; and
the queues beside those of handlers, which the SDK declares. Nothing fails in them, no glob means
them but for the dead letter queue, and `redrive topology delete` may take them away. By their
names, prefix included: a queue of another prefix is somebody else's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from redrive.broker.ladder import with_ladder
from redrive.broker.topology import Topology, describe, with_tiers_beyond
from redrive.settings.sections import QueueSettings, TopologySettings

AGAIN: Final = "redrive-again-"
"""In the names of the queues beside those of handlers, for what a process left unanswered."""
ALONE: Final = "redrive-alone-"
"""The same, for what is handled alone."""


@dataclass(frozen=True, slots=True)
class OwnQueues(Collection[str]):
    """The names of Redrive's own queues.

    Those beside handlers' queues are as many as there are handlers, and known by how they begin:
    they are in it, and are not listed.
    """

    names: frozenset[str]
    prefix: str = ""

    def __contains__(self, queue: object) -> bool:
        return queue in self.names or (isinstance(queue, str) and self.is_beside(queue))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def is_beside(self, queue: str) -> bool:
        """Whether a queue stands beside a handler's, for messages of that one."""
        return queue.startswith((self.prefix + AGAIN, self.prefix + ALONE))

    def but(self, queue: str) -> OwnQueues:
        """All of them but one that is listed."""
        return OwnQueues(self.names - {queue}, self.prefix)


def own_queues(settings: TopologySettings, queues: tuple[QueueSettings, ...] = ()) -> OwnQueues:
    """Redrive's own queues by the settings, whether they are there or not."""
    known = with_ladder(_known(settings, queues), settings)
    return OwnQueues(known.queue_names(), settings.prefix)


def own_exchanges(
    settings: TopologySettings, queues: tuple[QueueSettings, ...] = ()
) -> frozenset[str]:
    """Redrive's own exchanges by the settings, whether they are there or not."""
    known = _known(settings, queues).exchanges
    return frozenset(exchange.name for exchange in known if not exchange.users)


def _known(settings: TopologySettings, queues: tuple[QueueSettings, ...]) -> Topology:
    return with_tiers_beyond(describe(settings, queues), settings)
