"""The one place that knows every room: it turns settings into connections, stores and roles.

Everything else takes what it needs as arguments. Commands call these functions; nothing here
decides anything.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from redrive import amqp
from redrive.domain.policy import PolicyBook, ReturnTo
from redrive.errors import ChannelClosed

if TYPE_CHECKING:
    from redrive.broker.doctor.view import View
    from redrive.broker.management import Management
    from redrive.domain.alerting import Rule
    from redrive.errors import ManagementError
    from redrive.events import Events
    from redrive.settings import Settings
    from redrive.store.policies import PolicyTable
    from redrive.store.policy_files import PolicyFiles
    from redrive.store.policy_watch import PolicyWatch
    from redrive.store.replay_looks import ReplayLooks
    from redrive.store.store import Store
    from redrive.store.upgrade import Upgrade
    from redrive.tally import Tally
    from redrive.work.alert_message import AlertWords
    from redrive.work.alert_sinks import Sinks
    from redrive.work.alert_watch import AlertSender, AlertWatch
    from redrive.work.conditions import Conditions
    from redrive.work.desk import Desk, TopologyLook
    from redrive.work.mover import Limits
    from redrive.work.parking import Parking
    from redrive.work.queue_site import QueueSite
    from redrive.work.receipts import Receipts
    from redrive.work.replay_jobs import ReplayJobs
    from redrive.work.replay_preview import ReplayPreview
    from redrive.work.replay_session import ReplaySession
    from redrive.work.room_ahead import RoomAhead
    from redrive.work.sender import Sender
    from redrive.work.understand import Understanding
    from redrive.work.verdict_watch import VerdictWatch
    from redrive.work.worker import Worker

_Result = TypeVar("_Result")


def run_async(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a command's coroutine on the fast event loop."""
    import uvloop  # noqa: PLC0415  (only commands that work need it)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


# The broker


def addresses(settings: Settings) -> list[amqp.Address]:
    """The hosts of the broker, in the order to try them."""
    return amqp.parse_addresses(settings.broker.url.reveal())


async def connect(settings: Settings, name: str) -> amqp.Connection:
    """Connect to the broker, or raise `CannotConnect` with every host's reason."""
    return await amqp.connect(addresses(settings), name=name)


def management(settings: Settings, timeout: timedelta | None = None) -> Management | None:
    """The management API, None where the settings name none. The broker's own user by default."""
    from redrive.broker.management import TIMEOUT, Management  # noqa: PLC0415  (few need HTTP)

    if settings.broker.management_url is None:
        return None
    broker = addresses(settings)[0]
    url = settings.broker.management_url.reveal()
    user = broker.user or "guest"  # whoever a certificate names, this API asks for a password
    return Management(url, user, broker.password, broker.vhost, timeout=timeout or TIMEOUT)


# Looking into queues


@asynccontextmanager
async def queue_site(
    settings: Settings, *, lists: bool = False
) -> AsyncIterator[tuple[QueueSite, ManagementError | None]]:
    """The broker for who looks into queues, and why the management API does not help, if it is set
    and does not. `lists`: queues have to be listed, so without that API there is no use."""
    from redrive.broker.own_queues import own_queues  # noqa: PLC0415
    from redrive.errors import ManagementError  # noqa: PLC0415
    from redrive.work.queue_site import QueueSite  # noqa: PLC0415

    async def open_connection(name: str) -> amqp.Connection:
        return await connect(settings, name)

    connection = await open_connection("redrive look")
    try:
        api, silent = management(settings), None
        try:
            if api is not None:
                await api.version()
        except ManagementError as error:
            if lists:
                raise
            api, silent = None, error
        own = own_queues(settings.topology, settings.queue)
        waiting = own.but(settings.topology.names.dlq_queue)
        yield QueueSite(connection, api, open_connection, own, waiting), silent
    finally:
        await connection.close()


def limits(settings: Settings) -> Limits:
    """How much may be in flight, for all that is given them."""
    from redrive.amqp import Budget  # noqa: PLC0415
    from redrive.work.mover import Limits  # noqa: PLC0415

    return Limits(prefetch=settings.broker.prefetch, budget=Budget(settings.broker.in_flight))


def understanding(settings: Settings) -> Understanding:
    """What reads dead messages."""
    from redrive.broker.own_queues import own_queues  # noqa: PLC0415
    from redrive.work.understand import Understanding  # noqa: PLC0415

    own, names = own_queues(settings.topology, settings.queue), settings.topology.names
    ends = {names.dlq_queue, names.receipts_queue}
    return Understanding(addresses(settings)[0].vhost, own, ends)


@contextmanager
def stopped_by_signals(told: Callable[[], None] | None = None) -> Iterator[asyncio.Event]:
    """An event that SIGTERM or Ctrl-C sets, so that work ends in good order. A second signal ends
    the process at once. `told` is called at the first."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        restore()
        if told is not None:
            told()

    def restore() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield stopping
    finally:
        restore()


# Revival


@dataclass(frozen=True, slots=True)
class Revival:
    """The parts of the worker role."""

    worker: Worker
    receipts: Receipts
    replays: ReplayJobs


def worker_id() -> str:
    """Who claims letters: one name for each start of a process."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"


def sender(settings: Settings, tally: Tally | None = None) -> Sender:
    """What sends letters; its owner opens it."""
    from redrive.broker.own_queues import own_queues  # noqa: PLC0415
    from redrive.work.sender import Sender  # noqa: PLC0415

    return Sender(
        lambda name: connect(settings, name),
        settings.topology.names.return_exchange,
        own_queues(settings.topology, settings.queue),
        patience=settings.worker.lease.total_seconds() / 2,
        tally=tally,
    )


def room_ahead(settings: Settings) -> RoomAhead:
    """What knows of room in the queues that letters are sent to; its owner closes it."""
    from redrive.work.room_ahead import RoomAhead  # noqa: PLC0415

    return RoomAhead(lambda name: connect(settings, name), management(settings))


def conditions(store: Store) -> Conditions:
    """What must hold before letters are sent in numbers."""
    from redrive.store.capacity import Capacity  # noqa: PLC0415
    from redrive.work.conditions import Conditions  # noqa: PLC0415
    from redrive.work.system_state import system_watch  # noqa: PLC0415

    return Conditions(system=system_watch(), capacity=Capacity(store.database))


def revival_of(  # noqa: PLR0913  (what it works with, each by its name)
    settings: Settings,
    store: Store,
    policies: Callable[[], PolicyBook],
    *,
    parking: Parking,
    events: Events,
    tally: Tally,
    on_ready: Callable[[], None] | None = None,
) -> Revival:
    """The worker role, ready to run. `on_ready` is called when it can send."""
    from redrive.work.classify import rules_by  # noqa: PLC0415
    from redrive.work.destinations import destinations  # noqa: PLC0415
    from redrive.work.receipts import Receipts  # noqa: PLC0415
    from redrive.work.replay_jobs import ReplayJobs  # noqa: PLC0415
    from redrive.work.timetable import timetable_by  # noqa: PLC0415
    from redrive.work.worker import Worker  # noqa: PLC0415

    chosen, name, vhost = settings.worker, worker_id(), addresses(settings)[0].vhost
    return Revival(
        Worker(
            name,
            vhost,
            store.sendings,
            lambda: sender(settings, tally),
            rules=rules_by(settings),
            timetable=timetable_by(chosen),
            conditions=conditions(store),
            destination_of=destinations(policies),
            max_revivals=chosen.max_revivals,
            batch=chosen.batch,
            poll=chosen.poll,
            verdict_after=chosen.verdict_after,
            events=events,
            tally=tally,
            on_ready=on_ready,
            make_room=lambda: room_ahead(settings),
        ),
        Receipts(
            settings.topology.names.receipts_queue,
            store.verdicts,
            lambda purpose: connect(settings, purpose),
            parking,
            events,
        ),
        ReplayJobs(
            name,
            vhost,
            store.replays,
            lambda: sender(settings, tally),
            policies,
            lease=chosen.lease,
            verdict_after=chosen.verdict_after,
            make_room=lambda: room_ahead(settings),
        ),
    )


def replay_looks(store: Store) -> ReplayLooks:
    """What looks at replays."""
    from redrive.store.replay_looks import ReplayLooks  # noqa: PLC0415

    return ReplayLooks(store.database, store.replays)


async def require_broker(settings: Settings) -> None:
    """Raise `CannotConnect` if the broker cannot be reached."""
    connection = await connect(settings, "redrive look")
    await connection.close()


async def unmet_conditions(settings: Settings, store: Store) -> list[str]:
    """Why letters should not be sent in numbers now; nothing if they may."""
    from redrive.work.health import unmet_conditions  # noqa: PLC0415

    return await unmet_conditions(conditions(store), sender(settings), management(settings))


async def replay_session(settings: Settings, store: Store) -> ReplaySession:
    """What runs replays in the process of the person who asked for them."""
    from redrive.work.replay_session import ReplaySession  # noqa: PLC0415

    return ReplaySession(
        worker_id=worker_id(),
        replays=store.replays,
        looks=replay_looks(store),
        make_sender=lambda: sender(settings),
        make_room=lambda: room_ahead(settings),
        connect=lambda name: connect(settings, name),
        return_exchange=settings.topology.names.return_exchange,
        policies=await policy_book(settings),
        lease=settings.worker.lease,
        verdict_after=settings.worker.verdict_after,
    )


@asynccontextmanager
async def replay_preview(
    settings: Settings, store: Store
) -> AsyncIterator[tuple[ReplayPreview, ManagementError | None]]:
    """What tells how a replay would go, and why the management API does not help, if it is set and
    does not."""
    from redrive.work.destination_look import DestinationLook  # noqa: PLC0415
    from redrive.work.replay_preview import ReplayPreview  # noqa: PLC0415

    async with queue_site(settings) as (site, silent):
        at = DestinationLook(
            site.connection,
            site.management,
            settings.topology.names.return_exchange,
            site.own_queues,
        )
        preview = ReplayPreview(looks=replay_looks(store), breakers=store.breakers, at=at)
        yield preview, silent
        await at.close()


def verdict_watch(settings: Settings, store: Store, events: Events) -> VerdictWatch:
    """What settles letters that were sent."""
    from redrive.work.verdict_watch import VerdictWatch  # noqa: PLC0415

    return VerdictWatch(
        addresses(settings)[0].vhost,
        store.verdicts,
        lambda name: connect(settings, name),
        management(settings),
        lease=settings.worker.lease,
        verdict_after=settings.worker.verdict_after,
        events=events,
    )


# Alerts


@dataclass(frozen=True, slots=True)
class Alerting:
    """What judges alerts and tells of them."""

    rules: tuple[Rule, ...]
    sinks: Sinks
    words: AlertWords
    watch: AlertWatch
    sender: AlertSender


def alerting(settings: Settings, store: Store) -> Alerting:
    """Alerts as the settings have them; its owner closes the sinks."""
    from redrive.settings.alerts import rules_by  # noqa: PLC0415
    from redrive.work.alert_message import AlertWords  # noqa: PLC0415
    from redrive.work.alert_sinks import Sinks  # noqa: PLC0415
    from redrive.work.alert_watch import AlertSender, AlertWatch  # noqa: PLC0415
    from redrive.work.redact import Redaction  # noqa: PLC0415

    rules, sinks = rules_by(settings.alert), Sinks(settings.alert_sink)
    words = AlertWords(Redaction.by(settings.redaction), public_url(settings))
    return Alerting(
        rules,
        sinks,
        words,
        AlertWatch(store.alerts, rules, sinks, words),
        AlertSender(worker_id(), store.alert_messages, sinks),
    )


def public_url(settings: Settings) -> str | None:
    """Where people reach the server; None where the settings do not tell."""
    server = settings.server
    if server.public_url is not None:
        return server.public_url
    anywhere = server.host in ("0.0.0.0", "::")  # noqa: S104  (compared, not listened on)
    if anywhere or server.port == 0:
        return None
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"http://{host}:{server.port}"


# The API


def desk(settings: Settings, store: Store, events: Events) -> Desk:
    """What the routes of the server work with."""
    from redrive.work.desk import Desk  # noqa: PLC0415

    return Desk(
        settings=settings,
        vhost=addresses(settings)[0].vhost,
        store=store,
        replay_looks=replay_looks(store),
        events=events,
        policy_book=partial(policy_book, settings),
        set_policy=partial(set_policy, settings),
        delete_policy=partial(delete_policy, settings),
        replay_preview=partial(replay_preview, settings, store),
        require_broker=partial(require_broker, settings),
        unmet_conditions=partial(unmet_conditions, settings, store),
        look_at_topology=partial(look_at_topology, settings),
    )


async def look_at_topology(settings: Settings) -> TopologyLook:
    """How the broker differs from the description, and what its queues hold."""
    from redrive.broker.drift import Standing  # noqa: PLC0415
    from redrive.broker.live import SpareChannel  # noqa: PLC0415
    from redrive.broker.site import Site  # noqa: PLC0415
    from redrive.broker.topology import Queue  # noqa: PLC0415
    from redrive.work.desk import QueueCounts, TopologyLook  # noqa: PLC0415

    connection = await connect(settings, "redrive topology")
    try:
        site = Site(settings, connection, management(settings))
        site, silent = await site.without_silent_management()
        drift = await site.drift()
        spare = SpareChannel(connection)
        counts = {}
        for finding in drift.findings:
            if isinstance(finding.part, Queue) and finding.standing is not Standing.MISSING:
                with suppress(ChannelClosed):  # exclusive, down, or not ours to see
                    if (found := await spare.count(finding.part.name)) is not None:
                        counts[finding.part.name] = QueueCounts(*found)
        await spare.close()
        return TopologyLook(drift, counts, None if silent is None else str(silent))
    finally:
        await connection.close()


# The doctor


async def look_at_broker(settings: Settings, target: tuple[int, int] | None = None) -> View:
    """All that the doctor can see of the broker; `target` is the version to upgrade to."""
    from redrive.broker.doctor.look import Look  # noqa: PLC0415
    from redrive.broker.site import Site  # noqa: PLC0415
    from redrive.work.waits import waits_of  # noqa: PLC0415

    connection = await connect(settings, "redrive doctor")
    try:
        # To list thousands of queues takes a broker its time.
        site = Site(settings, connection, management(settings, timedelta(minutes=1)))
        waits = partial(waits_of, lambda name: connect(settings, name))
        return await Look(site, waits, target).view()
    finally:
        await connection.close()


# The store and the policies


def _policy_files(settings: Settings) -> PolicyFiles:
    from redrive.store.policy_files import PolicyFiles  # noqa: PLC0415

    return PolicyFiles(settings.policy, settings.policy_table.properties)


async def _open_policy_table(settings: Settings, *, make: bool = True) -> PolicyTable:
    from redrive.store.policies import open_policy_table  # noqa: PLC0415  (SQLAlchemy is slow)

    elsewhere = settings.policy_table.url
    return await open_policy_table(
        settings.store.url.reveal(), elsewhere.reveal() if elsewhere else None, make=make
    )


@asynccontextmanager
async def policy_table(settings: Settings, *, make: bool = False) -> AsyncIterator[PolicyTable]:
    """The policies of the database, to read and change. `make`: where there is no store, too."""
    table = await _open_policy_table(settings, make=make)
    try:
        yield table
    finally:
        await table.close()


async def policy_book(settings: Settings) -> PolicyBook:
    """All policies as they are now."""
    files = await asyncio.to_thread(_policy_files(settings).read)
    async with policy_table(settings) as table:
        return PolicyBook(await table.read(), files.policies, files.problems)


async def set_policy(
    settings: Settings,
    name: str,
    max_retries: int,
    *,
    return_to: ReturnTo | None = None,
    retry_expired: bool | None = None,
) -> str:
    """Add a policy to the database or change it; "added" or "changed"."""
    from redrive.store.policies import PolicyChange  # noqa: PLC0415

    change = PolicyChange(
        name=name, max_retries=max_retries, return_to=return_to, retry_expired=retry_expired
    )
    async with policy_table(settings, make=True) as table:
        return await table.set(change)


async def delete_policy(settings: Settings, name: str) -> int:
    """Remove every row of that name from the database; how many there were."""
    async with policy_table(settings) as table:
        return await table.delete(name)


def policy_watch(settings: Settings) -> PolicyWatch:
    """The policies for a role that runs; `start` reads them."""
    from redrive.store.policy_watch import PolicyWatch  # noqa: PLC0415

    return PolicyWatch(lambda: _open_policy_table(settings), _policy_files(settings))


async def open_store(settings: Settings, *, make: bool = True) -> Store:
    """The store, ready to be used. `make`: where there is none, a new one is made."""
    from redrive.domain.breaker import BreakerLimits  # noqa: PLC0415
    from redrive.store.store import open_letter_store  # noqa: PLC0415

    worker = settings.worker
    return await open_letter_store(
        settings.store.url.reveal(),
        make=make,
        max_revivals=worker.max_revivals,
        breaker_limits=BreakerLimits.with_verdicts_after(worker.verdict_after),
    )


@asynccontextmanager
async def store(settings: Settings, *, make: bool = False) -> AsyncIterator[Store]:
    """The store, for as long as a command needs it. Only a command that writes makes one."""
    opened = await open_store(settings, make=make)
    try:
        yield opened
    finally:
        await opened.close()


async def upgrade_store(settings: Settings) -> Upgrade:
    """Bring the store to this version."""
    from redrive.store.engine import open_database  # noqa: PLC0415
    from redrive.store.upgrade import upgrade  # noqa: PLC0415

    database = open_database(settings.store.url.reveal(), ours=True)
    try:
        return await upgrade(database)
    finally:
        await database.close()
