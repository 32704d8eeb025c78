"""The roles in one process, as `redrive run` starts them: until SIGTERM, through every outage.

Guarantees: a role does not consume before it can work (its policies read, the broker there), and
comes back by itself after losing either. On SIGTERM or SIGINT what is in flight is finished or
given back within 10 s, whatever broker and database do: what has not ended by then is left as it
is, as a kill -9 would, which loses nothing. A second signal does that at once.

What ends a role for good (wrong settings, a defect) ends the process, and is raised as itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from redrive._version import __version__
from redrive.broker.apply import apply
from redrive.broker.drift import Standing
from redrive.broker.live import examine
from redrive.broker.topology import Topology, describe
from redrive.domain.backoff import Backoff
from redrive.errors import (
    AccessRefused,
    BrokerError,
    ManagementError,
    SchemaNewer,
    SettingsError,
    StoreError,
    the_reason,
)
from redrive.events import Events
from redrive.runtime import (
    connect,
    desk,
    limits,
    management,
    open_store,
    policy_watch,
    revival_of,
    understanding,
    verdict_watch,
)
from redrive.settings import Settings
from redrive.work.collection import QueueCollection
from redrive.work.collector import Collector
from redrive.work.janitor import Chore, Janitor
from redrive.work.redact import Redaction
from redrive.work.retention import Retention
from redrive.work.retrier import Retrier

if TYPE_CHECKING:
    from redrive.amqp import Connection
    from redrive.store.policy_watch import PolicyWatch
    from redrive.store.store import Store

log = structlog.get_logger()

_Result = TypeVar("_Result")

ROLES = ("retrier", "collector", "worker", "janitor", "server")

_DRAIN: Final = 9.3
"""Seconds that the roles have to end by themselves; the Movers among them take 9 at most."""
_LEDGER_EVERY: Final = 30.0
_VERDICTS_EVERY: Final = 2.0
_RETENTION_EVERY: Final = 60.0
_FORGET_EVERY: Final = 600.0
_GARBAGE: Final = 20_000
"""New objects between two looks for garbage; 700 is Python's own."""
_DEADLINE: Final = 9.7
"""Seconds after the signal at which the process is gone, whatever hangs: ten are promised."""


def choose_roles(wanted: str | None) -> frozenset[str]:
    """The roles named in a comma-separated list; all without one."""
    if wanted is None:
        return frozenset(ROLES)
    chosen = frozenset(role.strip() for role in wanted.split(","))
    unknown = sorted(chosen - set(ROLES))
    if unknown:
        raise SettingsError(
            f"roles: expected some of {', '.join(ROLES)}, got {unknown[0]!r}",
            remedy="give --roles a list with commas, or leave it out to start them all",
        )
    return chosen


async def run_roles(settings: Settings, roles: frozenset[str]) -> None:
    """Run the roles until SIGTERM or SIGINT, then drain. A second signal ends the process."""
    _check(settings)  # wrong settings are said before anything starts
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopping, number)
    log.info("run.started", version=__version__, roles=sorted(roles))
    look_for_garbage_seldom()
    await serve(settings, roles, stopping)
    log.info("run.stopped")


def _check(settings: Settings) -> None:
    own = describe(settings.topology, settings.queue).queue_names()
    waiting = (own - {settings.topology.names.dlq_queue}).intersection(settings.collector.queues)
    if waiting:
        raise SettingsError(
            f"collector.queues: expected dead letter queues, got {min(waiting)!r}",
            remedy="messages wait there for their next try: take the queue off the list",
        )


def look_for_garbage_seldom() -> None:
    """What start-up made stays, and what a batch makes dies with it: Python's own collector of
    garbage, left as it is, would walk through both hundreds of times a second."""
    gc.freeze()
    gc.set_threshold(_GARBAGE)


async def serve(
    settings: Settings,
    roles: frozenset[str],
    stopping: asyncio.Event,
    *,
    events: Events | None = None,
) -> None:
    """Run the roles until `stopping` is set, then drain. Raises what ended one for good."""
    working = asyncio.ensure_future(_work(settings, roles, stopping, events or Events()))
    watching = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await asyncio.wait((working,), timeout=_DRAIN)
    finally:
        watching.cancel()
        if not working.done():
            log.warning("run.cut_short", after_s=_DRAIN)
            working.cancel()
            await asyncio.wait((working,))
    if not working.cancelled():
        working.result()


async def _work(
    settings: Settings, roles: frozenset[str], stopping: asyncio.Event, events: Events
) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            if "retrier" in roles:
                tasks.create_task(_run_retrier(settings, stopping))
            if "server" in roles:
                tasks.create_task(_run_server(settings, stopping, events))
            if roles - {"retrier", "server"}:
                tasks.create_task(_run_with_store(settings, roles, stopping, events))
    except BaseExceptionGroup as group:
        raise the_reason(group) from group


def _stop(stopping: asyncio.Event, number: signal.Signals) -> None:
    if stopping.is_set():
        os._exit(128 + number)
    log.info("run.stopping", signal=number.name)
    stopping.set()
    # Not by the loop: a thread that hangs in a name server would outlive it.
    last_resort = threading.Timer(_DEADLINE, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()


async def _run_retrier(settings: Settings, stopping: asyncio.Event) -> None:
    watch = policy_watch(settings)
    try:
        if await _persist(lambda: _started(watch), "policies", stopping) is None:
            return
        parking = await _persist(lambda: assure_topology(settings), "topology", stopping)
        if parking is None:
            return
        retrier = Retrier(
            settings.topology,
            settings.queue,
            lambda: watch.book,
            connect=lambda name: connect(settings, name),
            limits=limits(settings),
            parking=parking,
        )
        await retrier.run(stopping)
    finally:
        await watch.stop()


async def _run_with_store(
    settings: Settings, roles: frozenset[str], stopping: asyncio.Event, events: Events
) -> None:
    """The roles that work on letters share one store."""
    store = await _persist(lambda: open_store(settings), "store", stopping)
    if store is None:
        return
    try:
        async with asyncio.TaskGroup() as tasks:
            if "collector" in roles:
                tasks.create_task(_run_collector(settings, store, stopping, events))
            if "worker" in roles:
                tasks.create_task(_run_worker(settings, store, stopping, events))
            if "janitor" in roles:
                tasks.create_task(_run_janitor(settings, store, stopping, events))
    finally:
        await store.close()


async def _run_collector(
    settings: Settings, store: Store, stopping: asyncio.Event, events: Events
) -> None:
    if await _persist(lambda: assure_topology(settings), "topology", stopping) is None:
        return
    names = settings.topology.names
    own = describe(settings.topology, settings.queue).queue_names()
    reading, redaction = understanding(settings), Redaction.by(settings.redaction)
    api = management(settings)

    async def list_queues() -> list[str]:
        assert api is not None
        return [str(queue["name"]) for queue in await api.queues("name")]

    def make(queue: str) -> Collector:
        return Collector(
            queue,
            store.letters,
            reading,
            connect=lambda name: connect(settings, name),
            limits=limits(settings),
            events=events,
            redaction=redaction,
        )

    await QueueCollection(
        tuple(dict.fromkeys((names.dlq_queue, *settings.collector.queues))),
        make,
        list_queues=None if api is None else list_queues,
        never=own - {names.dlq_queue},
    ).run(stopping)


async def _run_worker(
    settings: Settings, store: Store, stopping: asyncio.Event, events: Events
) -> None:
    watch = policy_watch(settings)
    try:
        if await _persist(lambda: _started(watch), "policies", stopping) is None:
            return
        if await _persist(lambda: assure_topology(settings), "topology", stopping) is None:
            return
        revival = revival_of(settings, store, lambda: watch.book, events)
        wake = events.listen(lambda _: revival.worker.wake())
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (revival.worker, revival.receipts, revival.replays):
                    tasks.create_task(part.run())
                await stopping.wait()
                for part in (revival.worker, revival.receipts, revival.replays):
                    part.stop()
        finally:
            wake()
    finally:
        await watch.stop()


async def _run_janitor(
    settings: Settings, store: Store, stopping: asyncio.Event, events: Events
) -> None:
    verdicts = verdict_watch(settings, store, events)
    chores = [
        Chore("ledger", _LEDGER_EVERY, store.books.compact),
        Chore("verdicts", _VERDICTS_EVERY, verdicts.in_turn),
        Chore("sessions", _FORGET_EVERY, store.access.forget),
        Chore("requests", _FORGET_EVERY, store.requests.forget),
        Chore("retention", _RETENTION_EVERY, Retention.by(settings.retention, store.expiry).round),
    ]
    try:
        await Janitor(chores).run(stopping)
    finally:
        verdicts.close()


async def _run_server(settings: Settings, stopping: asyncio.Event, events: Events) -> None:
    """Answers from the first moment on, if only that it is up; with a store of its own, so that
    no request keeps a worker or a collector waiting for a connection."""
    from redrive.server.app import Application  # noqa: PLC0415  (other roles do without FastAPI)
    from redrive.server.serving import Serving, address_of, is_loopback, listen  # noqa: PLC0415

    chosen = settings.server
    listening = listen(chosen.host, chosen.port)
    loopback = is_loopback(listening)
    app = Application(loopback=loopback)
    serving = Serving(app.asgi, listening, chosen.trusted_proxies)
    running = asyncio.create_task(serving.run())
    log.info("server.listening", address=address_of(listening), login=not loopback)
    store = None
    try:
        store = await _persist(lambda: open_store(settings), "store", stopping)
        if store is not None:
            if not loopback and not await store.access.anybody():
                raise SettingsError(
                    f"server.host: others can reach {chosen.host}, and nobody has to log in",
                    remedy="make a user with 'redrive user set' or a token with"
                    " 'redrive token create', or listen on 127.0.0.1",
                )
            app.open(desk(settings, store, events))
            await _unless(stopping, lambda: asyncio.shield(running))
    finally:
        app.close()
        serving.stop()
        await asyncio.wait((running,))
        if store is not None:
            await store.close()
    running.result()


async def _started(watch: PolicyWatch) -> PolicyWatch:
    await watch.start()
    return watch


async def assure_topology(settings: Settings) -> frozenset[str]:
    """Make what is missing on the broker; what differs is somebody's choice, and is said.

    The queues whose rejected messages are known to arrive in the dead letter queue.
    """
    topology = describe(settings.topology, settings.queue)
    connection = await connect(settings, "redrive topology")
    try:
        try:
            applied = await apply(topology, connection)
        except AccessRefused as error:
            log.warning("topology.not_assured", error=str(error), remedy=error.remedy)
            return await _known_to_park(topology, connection, settings)
        await connection.close()
    finally:
        connection.abort()
    for finding in applied.differing:
        log.warning("topology.differs", finding=str(finding.part), remedy="redrive topology check")
    if applied.made:
        log.info("topology.made", parts=len(applied.made))
    return topology.parking(applied.sound)


async def _known_to_park(
    topology: Topology, connection: Connection, settings: Settings
) -> frozenset[str]:
    """The same, where we may not declare: only the management API can tell."""
    api = management(settings)
    if api is None:
        return frozenset()
    try:
        drift = await examine(topology, connection, api)
    except ManagementError as error:
        log.warning("topology.unread", error=str(error), remedy=error.remedy)
        return frozenset()
    return topology.parking([finding.part for finding in drift.of(Standing.SAME)])


async def _persist(
    attempt: Callable[[], Awaitable[_Result]], what: str, stopping: asyncio.Event
) -> _Result | None:
    """Repeat until it works, as a service must; None if it is time to stop before it did."""
    backoff = Backoff()
    failures = 0
    while not stopping.is_set():
        try:
            return await _unless(stopping, attempt)
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


async def _unless(
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
