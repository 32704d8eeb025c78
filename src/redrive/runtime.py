"""The one place that knows every room: it turns settings into connections, stores and roles.

Everything else takes what it needs as arguments. Commands call these functions; nothing here
decides anything.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from redrive import amqp
from redrive.domain.policy import PolicyBook, ReturnTo

if TYPE_CHECKING:
    from redrive.broker.management import Management
    from redrive.errors import ManagementError
    from redrive.settings import Settings
    from redrive.store.policies import PolicyTable
    from redrive.store.policy_files import PolicyFiles
    from redrive.store.policy_watch import PolicyWatch
    from redrive.store.store import Store
    from redrive.store.upgrade import Upgrade
    from redrive.work.mover import Limits
    from redrive.work.queue_site import QueueSite
    from redrive.work.understand import Understanding

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


def management(settings: Settings) -> Management | None:
    """The management API, None where the settings name none. The broker's own user by default."""
    from redrive.broker.management import Management  # noqa: PLC0415  (few commands need HTTP)

    if settings.broker.management_url is None:
        return None
    broker = addresses(settings)[0]
    url = settings.broker.management_url.reveal()
    return Management(url, broker.user, broker.password, broker.vhost)


# Looking into queues


@asynccontextmanager
async def queue_site(
    settings: Settings, *, lists: bool = False
) -> AsyncIterator[tuple[QueueSite, ManagementError | None]]:
    """The broker for who looks into queues, and why the management API does not help, if it is set
    and does not. `lists`: queues have to be listed, so without that API there is no use."""
    from redrive.broker.topology import describe  # noqa: PLC0415
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
        own = describe(settings.topology, settings.queue).queue_names()
        waiting = own - {settings.topology.names.dlq_queue}
        yield QueueSite(connection, api, open_connection, own, waiting), silent
    finally:
        await connection.close()


def limits(settings: Settings) -> Limits:
    """How much may be in flight."""
    from redrive.work.mover import Limits  # noqa: PLC0415

    return Limits(prefetch=settings.broker.prefetch, budget=settings.broker.in_flight)


def understanding(settings: Settings) -> Understanding:
    """What reads dead messages."""
    from redrive.broker.topology import describe  # noqa: PLC0415
    from redrive.work.understand import Understanding  # noqa: PLC0415

    return Understanding(
        addresses(settings)[0].vhost,
        describe(settings.topology, settings.queue).queue_names(),
    )


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM or Ctrl-C sets, so that work ends in good order. A second signal ends
    the process at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        restore()

    def restore() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield stopping
    finally:
        restore()


# The store and the policies


def _policy_files(settings: Settings) -> PolicyFiles:
    from redrive.store.policy_files import PolicyFiles  # noqa: PLC0415

    return PolicyFiles(settings.policy, settings.policy_table.properties)


async def _open_policy_table(settings: Settings) -> PolicyTable:
    from redrive.store.policies import open_policy_table  # noqa: PLC0415  (SQLAlchemy is slow)

    elsewhere = settings.policy_table.url
    return await open_policy_table(
        settings.store.url.reveal(), elsewhere.reveal() if elsewhere else None
    )


@asynccontextmanager
async def policy_table(settings: Settings) -> AsyncIterator[PolicyTable]:
    """The policies of the database, to read and change."""
    table = await _open_policy_table(settings)
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
    async with policy_table(settings) as table:
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
    from redrive.store.store import open_letter_store  # noqa: PLC0415

    return await open_letter_store(settings.store.url.reveal(), make=make)


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
