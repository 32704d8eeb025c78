"""The roles in one process, as `redrive run` starts them: until SIGTERM, through every outage.

Guarantees: a role does not consume before it can work (its policies read, the broker there), and
comes back by itself after losing either. On SIGTERM or SIGINT what is in flight is finished or
given back within 10 s; a second signal ends the process at once, which loses nothing either.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
from collections.abc import Awaitable, Callable

import structlog

from redrive._version import __version__
from redrive.broker.apply import apply
from redrive.broker.topology import describe
from redrive.domain.backoff import Backoff
from redrive.errors import AccessRefused, BrokerError, SettingsError, StoreError
from redrive.runtime import connect, policy_watch
from redrive.settings import Settings
from redrive.work.mover import Limits
from redrive.work.retrier import Retrier

log = structlog.get_logger()

ROLES = ("retrier",)


def choose_roles(wanted: str) -> frozenset[str]:
    """The roles named in a comma-separated list; all for an empty one."""
    chosen = frozenset(role.strip() for role in wanted.split(",") if role.strip())
    unknown = sorted(chosen - set(ROLES))
    if unknown:
        raise SettingsError(
            f"roles: expected some of {', '.join(ROLES)}, got {unknown[0]!r}",
            remedy="give --roles a list with commas, or leave it out to start them all",
        )
    return chosen or frozenset(ROLES)


async def run_roles(settings: Settings, roles: frozenset[str]) -> None:
    """Run the roles until SIGTERM or SIGINT, then drain. A second signal ends the process."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopping, number)
    log.info("run.started", version=__version__, roles=sorted(roles))
    gc.freeze()  # what start-up made stays; the collector need not walk it for every batch
    await serve(settings, roles, stopping)
    log.info("run.stopped")


async def serve(settings: Settings, roles: frozenset[str], stopping: asyncio.Event) -> None:
    """Run the roles until `stopping` is set, then drain."""
    async with asyncio.TaskGroup() as tasks:
        if "retrier" in roles:
            tasks.create_task(_run_retrier(settings, stopping))


def _stop(stopping: asyncio.Event, number: signal.Signals) -> None:
    if stopping.is_set():
        os._exit(128 + number)
    log.info("run.stopping", signal=number.name)
    stopping.set()


async def _run_retrier(settings: Settings, stopping: asyncio.Event) -> None:
    watch = policy_watch(settings)
    if not await _persist(watch.start, "policies", stopping):
        return
    try:
        if not await _persist(lambda: assure_topology(settings), "topology", stopping):
            return
        retrier = Retrier(
            settings.topology,
            settings.queue,
            lambda: watch.book,
            connect=lambda name: connect(settings, name),
            limits=Limits(prefetch=settings.broker.prefetch, budget=settings.broker.in_flight),
        )
        await retrier.run(stopping)
    finally:
        await watch.stop()


async def assure_topology(settings: Settings) -> None:
    """Make what is missing on the broker; what differs is somebody's choice, and is said."""
    connection = await connect(settings, "redrive topology")
    try:
        applied = await apply(describe(settings.topology, settings.queue), connection)
    except AccessRefused as error:
        log.warning("topology.not_assured", error=str(error), remedy=error.remedy)
        return
    finally:
        await connection.close()
    for finding in applied.differing:
        log.warning("topology.differs", finding=str(finding.part), remedy="redrive topology check")
    if applied.made:
        log.info("topology.made", parts=len(applied.made))


async def _persist(
    attempt: Callable[[], Awaitable[None]], what: str, stopping: asyncio.Event
) -> bool:
    """Repeat until it works, as a service must; whether it did before it was time to stop."""
    backoff = Backoff()
    failures = 0
    while not stopping.is_set():
        try:
            await attempt()
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
        else:
            return True
    return False
