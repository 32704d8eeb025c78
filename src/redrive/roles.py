"""The roles in one process, as `redrive run` starts them: until SIGTERM, through every outage.

Guarantees: a role does not consume before it can work (its policies read, the broker there), and
comes back by itself after losing either. On SIGTERM or SIGINT what is in flight is finished or
given back within 10 s, whatever broker and database do: what has not ended by then is left as it
is, as a kill -9 would, which loses nothing. A second signal does that at once.

What ends a role for good (wrong settings, a defect) ends the process, and is raised as itself.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from redrive._version import __version__
from redrive.broker.own_queues import own_queues
from redrive.errors import SettingsError, the_reason
from redrive.events import Events
from redrive.notify import ServiceManager
from redrive.readiness import assure_topology, known_to_park, persist, unless
from redrive.runtime import (
    alerting,
    connect,
    desk,
    limits,
    management,
    open_store,
    policy_watch,
    revival_of,
    understanding,
    verdict_watch,
    worker_id,
)
from redrive.settings import Settings
from redrive.tally import Tally
from redrive.work.awaited import Awaited
from redrive.work.collection import QueueCollection
from redrive.work.collector import Collector
from redrive.work.counting import Counting
from redrive.work.janitor import Chore, Janitor
from redrive.work.parking import Parking
from redrive.work.redact import Redaction
from redrive.work.retention import Retention
from redrive.work.retrier import Retrier

if TYPE_CHECKING:
    from redrive.store.policy_watch import PolicyWatch
    from redrive.store.store import Store

log = structlog.get_logger()

ROLES = ("retrier", "collector", "worker", "janitor", "server")

_DRAIN: Final = 9.3
"""Seconds that the roles have to end by themselves; the Movers among them take 9 at most."""
_LEDGER_EVERY: Final = 30.0
_VERDICTS_EVERY: Final = 2.0
_RETENTION_EVERY: Final = 60.0
_ALERTS_EVERY: Final = 5.0
"""Three looks in a step: of all janitors, one judges each."""
_MESSAGES_EVERY: Final = 2.0
_FORGET_EVERY: Final = 600.0
_LAST_COUNTS: Final = 2.0
"""Seconds that a process which ends has to write what it has counted."""
_GARBAGE: Final = 20_000
"""New objects between two looks for garbage; 700 is Python's own."""
_SWITCH: Final = timedelta(microseconds=200)
"""How long one thread of Python keeps another waiting."""
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
    stopping, manager = asyncio.Event(), ServiceManager.by(os.environ)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopping, number, manager)
    manager.waiting("broker and store")
    log.info("run.started", version=__version__, roles=sorted(roles))
    tune_python()
    async with manager.watching():
        await serve(settings, roles, stopping, on_ready=manager.ready)
    log.info("run.stopped")


def _check(settings: Settings) -> None:
    names = settings.topology.names
    waiting = own_queues(settings.topology, settings.queue).but(names.dlq_queue)
    wrong = {queue for queue in settings.collector.queues if queue in waiting}
    if wrong:
        what = [
            *(["messages for their next try"] if wrong - {names.receipts_queue} else []),
            *(["receipts for the worker"] if names.receipts_queue in wrong else []),
        ]
        raise SettingsError(
            f"collector.queues: expected dead letter queues, got {_listed(wrong)}",
            remedy=f"{' and '.join(what)} wait there: take them off the list",
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def tune_python() -> None:
    """For a process that handles many messages.

    What start-up made stays, and what a batch makes dies with it: Python's own collector of
    garbage, left as it is, would walk through both hundreds of times a second.

    SQLite's driver works in a thread, which asks for Python's lock before and after each statement.
    It would get it when the event loop has held it for 5 ms without a pause; and it makes a pause,
    too short for another thread, every millisecond.
    """
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    sys.setswitchinterval(_SWITCH.total_seconds())


async def serve(
    settings: Settings,
    roles: frozenset[str],
    stopping: asyncio.Event,
    *,
    events: Events | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Run the roles until `stopping` is set, then drain. Raises what ended one for good.

    `on_ready` is called once, when every role works: it consumes, sends or answers.
    """

    def all_ready() -> None:
        log.info("run.ready", roles=sorted(roles))
        if on_ready is not None:
            on_ready()

    awaited = Awaited(roles, all_ready)
    process = Process(settings, roles, stopping, events or Events(), Tally(), awaited)
    working = asyncio.ensure_future(_work(process))
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


@dataclass(frozen=True, slots=True)
class Process:
    """What the roles of one process share."""

    settings: Settings
    roles: frozenset[str]
    stopping: asyncio.Event
    events: Events
    tally: Tally
    awaited: Awaited
    """The roles that do not work yet."""


async def _work(process: Process) -> None:
    ended = asyncio.Event()
    counting = asyncio.create_task(_keep_counts(process, ended))
    try:
        async with asyncio.TaskGroup() as tasks:
            if "retrier" in process.roles:
                tasks.create_task(_as("retrier", _run_retrier(process)))
            if "server" in process.roles:
                tasks.create_task(_as("server", _run_server(process)))
            if process.roles - {"retrier", "server"}:
                tasks.create_task(_run_with_store(process))
    except BaseExceptionGroup as group:
        raise the_reason(group) from group
    finally:
        ended.set()
        await _end(counting)


async def _end(counting: asyncio.Task[None]) -> None:
    """The last counts are written if the store answers soon; what fails here ends nothing else."""
    await asyncio.wait((counting,), timeout=_LAST_COUNTS)
    if not counting.done():
        counting.cancel()
        await asyncio.wait((counting,), timeout=_LAST_COUNTS)
    if counting.done() and not counting.cancelled() and (error := counting.exception()):
        log.warning("run.not_counted", error=f"{type(error).__name__}: {error}")


async def _as(role: str, working: Awaitable[None]) -> None:
    """What a role logs says which role it is."""
    structlog.contextvars.bind_contextvars(role=role)
    await working


async def _keep_counts(process: Process, ended: asyncio.Event) -> None:
    """With a store of its own: a process of the retrier has no other."""
    store = await persist(lambda: open_store(process.settings), "counts", process.stopping)
    if store is None:
        return
    try:
        await Counting(worker_id(), process.roles, store.counts, process.tally).run(ended)
    finally:
        await store.close()


def _stop(stopping: asyncio.Event, number: signal.Signals, manager: ServiceManager) -> None:
    if stopping.is_set():
        os._exit(128 + number)
    log.info("run.stopping", signal=number.name)
    stopping.set()
    manager.stopping()
    # Not by the loop: a thread that hangs in a name server would outlive it.
    last_resort = threading.Timer(_DEADLINE, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()


async def _run_retrier(process: Process) -> None:
    settings, stopping = process.settings, process.stopping
    watch = policy_watch(settings)
    try:
        if await persist(lambda: _started(watch), "policies", stopping) is None:
            return
        if await persist(lambda: assure_topology(settings), "topology", stopping) is None:
            return
        retrier = Retrier(
            settings.topology,
            settings.queue,
            lambda: watch.book,
            connect=lambda name: connect(settings, name),
            limits=limits(settings),
            parking=Parking(partial(known_to_park, settings)),
            tally=process.tally,
            on_ready=partial(process.awaited.here, "retrier"),
        )
        await retrier.run(stopping)
    finally:
        await watch.stop()


async def _run_with_store(process: Process) -> None:
    """The roles that work on letters share one store."""
    store = await persist(lambda: open_store(process.settings), "store", process.stopping)
    if store is None:
        return
    try:
        async with asyncio.TaskGroup() as tasks:
            for role, run in (
                ("collector", _run_collector),
                ("worker", _run_worker),
                ("janitor", _run_janitor),
            ):
                if role in process.roles:
                    tasks.create_task(_as(role, run(process, store)))
    finally:
        await store.close()


async def _run_collector(process: Process, store: Store) -> None:
    settings, stopping = process.settings, process.stopping
    if await persist(lambda: assure_topology(settings), "topology", stopping) is None:
        return
    names = settings.topology.names
    own = own_queues(settings.topology, settings.queue)
    reading, redaction = understanding(settings), Redaction.by(settings.redaction)
    api = management(settings)
    shared = limits(settings)

    async def list_queues() -> dict[str, str]:
        assert api is not None
        found = await api.queues("name", "type")
        return {str(queue["name"]): str(queue.get("type", "")) for queue in found}

    def make(queue: str) -> Collector:
        return Collector(
            queue,
            store.letters,
            reading,
            connect=lambda name: connect(settings, name),
            limits=shared,
            events=process.events,
            redaction=redaction,
            tally=process.tally,
            # The others need not be there yet.
            on_ready=partial(process.awaited.here, "collector")
            if queue == names.dlq_queue
            else None,
        )

    await QueueCollection(
        tuple(dict.fromkeys((names.dlq_queue, *settings.collector.queues))),
        make,
        list_queues=None if api is None else list_queues,
        never=own.but(names.dlq_queue),
    ).run(stopping)


async def _run_worker(process: Process, store: Store) -> None:
    settings, stopping, events = process.settings, process.stopping, process.events
    watch = policy_watch(settings)
    try:
        if await persist(lambda: _started(watch), "policies", stopping) is None:
            return
        if await persist(lambda: assure_topology(settings), "topology", stopping) is None:
            return
        ready = partial(process.awaited.here, "worker")
        revival = revival_of(
            settings,
            store,
            lambda: watch.book,
            parking=Parking(partial(known_to_park, settings)),
            events=events,
            tally=process.tally,
            on_ready=ready,
        )
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


async def _run_janitor(process: Process, store: Store) -> None:
    settings = process.settings
    verdicts = verdict_watch(settings, store, process.events)
    alerts = alerting(settings, store)
    chores = [
        Chore("ledger", _LEDGER_EVERY, store.books.compact),
        Chore("counts", _LEDGER_EVERY, store.counts.compact),
        Chore("verdicts", _VERDICTS_EVERY, verdicts.in_turn),
        Chore("sessions", _FORGET_EVERY, store.access.forget),
        Chore("requests", _FORGET_EVERY, store.requests.forget),
        Chore("alerts", _ALERTS_EVERY, alerts.watch.round),
        *(
            Chore(f"messages to {sink}", _MESSAGES_EVERY, partial(alerts.sender.round, sink))
            for sink in alerts.sinks.by_name
        ),
        Chore("silences", _FORGET_EVERY, store.alerts.forget_silences),
        Chore("sent messages", _FORGET_EVERY, store.alert_messages.forget),
        Chore("retention", _RETENTION_EVERY, Retention.by(settings.retention, store.expiry).round),
    ]
    process.awaited.here("janitor")
    try:
        await Janitor(chores).run(process.stopping)
    finally:
        verdicts.close()
        alerts.sinks.close()


async def _run_server(process: Process) -> None:
    """Answers from the first moment on, if only that it is up; with a store of its own, so that
    no request keeps a worker or a collector waiting for a connection."""
    from redrive.server.app import Application  # noqa: PLC0415  (other roles do without FastAPI)
    from redrive.server.serving import Serving, address_of, is_loopback, listen  # noqa: PLC0415

    settings, stopping = process.settings, process.stopping
    chosen = settings.server
    listening = listen(chosen.host, chosen.port)
    loopback = is_loopback(listening)
    # A proxy brings others, however it names them.
    open_here = loopback and not chosen.trusted_proxies
    app = Application(loopback=open_here)
    serving = Serving(app.asgi, listening, chosen.trusted_proxies)
    running = asyncio.create_task(serving.run())
    log.info("server.listening", address=address_of(listening), login=not open_here)
    store = None
    try:
        store = await persist(lambda: open_store(settings), "store", stopping)
        if store is not None:
            if not open_here and not await store.access.anybody():
                where = f"server.host: others can reach {chosen.host}"
                if loopback:
                    where = "server.trusted_proxies: a proxy brings others here"
                raise SettingsError(
                    f"{where}, and nobody has to log in",
                    remedy="make a user with 'redrive user set' or a token with"
                    " 'redrive token create', or listen on 127.0.0.1 and trust no proxy",
                )
            app.open(desk(settings, store, process.events))
            process.awaited.here("server")
            await unless(stopping, lambda: asyncio.shield(running))
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
