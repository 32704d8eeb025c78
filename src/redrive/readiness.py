"""Before a role can work: what it needs is tried again and again until it is there.

Guarantees: `persist` gives up only when it is time to stop, or where waiting does not mend it; one
line in the log for each try. `assure_topology` makes what is missing on the broker and changes
nothing that exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import structlog

from redrive.broker.apply import apply
from redrive.broker.drift import Standing
from redrive.broker.live import examine, left_over
from redrive.broker.topology import Part, Topology, describe
from redrive.domain.backoff import Backoff
from redrive.errors import (
    AccessRefused,
    BrokerError,
    ManagementError,
    SchemaNewer,
    StoreError,
)
from redrive.runtime import connect, management
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.amqp import Connection

log = structlog.get_logger()

_Result = TypeVar("_Result")
_NOBODY_READS = "nobody reads it: move its messages, then 'redrive topology delete' it"


async def assure_topology(settings: Settings) -> bool:
    """Make what is missing on the broker; what differs is somebody's choice, and is said. Whether
    we may."""
    topology = describe(settings.topology, settings.queue)
    connection = await connect(settings, "redrive topology")
    try:
        try:
            applied = await apply(topology, connection)
        except AccessRefused as error:
            log.warning("topology.not_assured", error=str(error), remedy=error.remedy)
            return False
        with contextlib.suppress(BrokerError):  # one that is down tells nothing, and stops nobody
            for finding in await left_over(settings.topology, connection):
                log.warning("topology.left_over", finding=str(finding), remedy=_NOBODY_READS)
        await connection.close()
    finally:
        connection.abort()
    for finding in applied.differing:
        log.warning("topology.differs", finding=str(finding), remedy="redrive topology check")
    if applied.made:
        log.info("topology.made", parts=len(applied.made))
    return True


async def known_to_park(settings: Settings) -> frozenset[str]:
    """The queues whose rejected messages are known to arrive in the dead letter queue. What is
    missing of the topology is made, as at the start."""
    topology = describe(settings.topology, settings.queue)
    connection = await connect(settings, "redrive topology")
    try:
        try:
            sound = (await apply(topology, connection)).sound
        except AccessRefused:
            sound = await _known_to_be_sound(topology, connection, settings)
        await connection.close()
    finally:
        connection.abort()
    return topology.parking(sound)


async def _known_to_be_sound(
    topology: Topology, connection: Connection, settings: Settings
) -> tuple[Part, ...]:
    """What is as described, where we may not declare: only the management API can tell."""
    api = management(settings)
    if api is None:
        return ()
    try:
        drift = await examine(topology, connection, api)
    except ManagementError as error:
        log.warning("topology.unread", error=str(error), remedy=error.remedy)
        return ()
    return tuple(finding.part for finding in drift.of(Standing.SAME))


async def persist(
    attempt: Callable[[], Awaitable[_Result]], what: str, stopping: asyncio.Event
) -> _Result | None:
    """Repeat until it works, as a service must; None if it is time to stop before it did."""
    backoff = Backoff()
    failures = 0
    while not stopping.is_set():
        try:
            return await unless(stopping, attempt)
        except SchemaNewer:
            raise  # waiting does not mend it
        except (StoreError, BrokerError) as error:
            failures += 1
            delay = backoff.delay(failures, random.random())  # noqa: S311  # spreads load, no secret
            log.warning(
                "run.unavailable",
                what=what,
                error=str(error),
                remedy=error.remedy,
                retry_in_s=round(delay.total_seconds(), 3),
            )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), delay.total_seconds())
    return None


async def unless(
    stopping: asyncio.Event, attempt: Callable[[], Awaitable[_Result]]
) -> _Result | None:
    """What an attempt gives, or None as soon as it is time to stop: some hang for minutes."""
    trying = asyncio.ensure_future(attempt())
    watching = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((trying, watching), return_when=asyncio.FIRST_COMPLETED)
        return trying.result() if trying.done() else None
    finally:
        watching.cancel()
        if not trying.done():
            trying.cancel()
            await asyncio.wait((trying,))
