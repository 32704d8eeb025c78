"""The queues beside those of handlers, for who deletes them.

The SDK declares them, for queues and dead letter exchanges that the settings do not know. So only a
list of queues tells which there are; without one, they are what somebody names.
"""

from __future__ import annotations

from collections.abc import Collection

from redrive.broker.live import live_queue
from redrive.broker.management import Management
from redrive.broker.own_queues import OwnQueues
from redrive.broker.topology import Queue
from redrive.settings.sections import TopologySettings

_COLUMNS = ("name", "type", "durable", "auto_delete", "arguments")


async def beside_listed(
    own: OwnQueues, management: Management, names: Collection[str] = ()
) -> tuple[Queue, ...]:
    """Those that the broker has, as they are; of these names, if there are any."""
    found = [
        (str(each["name"]), live_queue(each))
        for each in await management.queues(*_COLUMNS)
        if own.is_beside(str(each["name"]))
    ]
    return tuple(
        Queue(name, {**queue.arguments, "x-queue-type": queue.kind})
        for name, queue in found
        if not names or name in names
    )


def beside_named(
    own: OwnQueues, settings: TopologySettings, names: Collection[str]
) -> tuple[Queue, ...]:
    """Those of these names, as the SDK declares them by these settings."""
    kind = settings.queue_type
    return tuple(Queue(name, {"x-queue-type": kind}) for name in names if own.is_beside(name))
