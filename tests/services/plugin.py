"""Fixtures: a broker, a database and a bad network for whoever asks.

Servers start with the first test that needs them, once a run, and each test gets a vhost or a
database of its own. Nothing is ever skipped: a server that cannot be started is an error of every
test that asked for it. All of them end with the run, on Ctrl-C and on kill -9 as well (see
redrive.broker.processes).

REDRIVE_TEST_RABBITMQ chooses the broker: empty for the machine's own, "4.0" or "4.3" for a folder
made by chroots.py.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from redrive.broker.private import PrivateCluster, PrivateNode
from tests.services.chroots import root_of
from tests.services.compiled import compiled_once
from tests.services.empty_stores import empty, with_tables
from tests.services.postgres import PrivatePostgres
from tests.services.proxy import Proxy

# The management API is a second behind, not five: its finest samples say how often it looks. Only
# a test that is about a broker's defaults needs them, in a node of its own.
QUICK_STATISTICS = """\
collect_statistics_interval = 200
management.sample_retention_policies.global.minute = 1
management.sample_retention_policies.basic.minute = 1
management.sample_retention_policies.detailed.10 = 1
"""

# They tell how many messages they have five times a second, and sync nothing: nobody kills this
# broker, and on 3.10 a queue that tells before its first entry is synced takes all others along.
QUICK_QUORUM_QUEUES = """\
[{rabbit, [{quorum_tick_interval, 200}]}, {ra, [{wal_sync_method, none}]}].
"""

OwnNode = Callable[..., PrivateNode]
NewProxy = Callable[[str, int], Awaitable[Proxy]]


@dataclass(frozen=True)
class Vhost:
    """A vhost that only this test uses."""

    node: PrivateNode
    name: str

    @property
    def url(self) -> str:
        return self.node.url(self.name)

    @property
    def management_url(self) -> str:
        return self.node.management_url


@pytest.fixture(scope="session")
def rabbitmq_root() -> Path | None:
    """The folder of the RabbitMQ under test; None for the machine's own."""
    return root_of(os.environ.get("REDRIVE_TEST_RABBITMQ", ""))


@pytest.fixture(scope="session")
def rabbitmq(rabbitmq_root: Path | None) -> Iterator[PrivateNode]:
    """The run's broker. It is shared: a test that stops or reconfigures it needs `own_node`.

    Its statistics are quick, so that nobody waits for them who is not about them.
    """
    node = PrivateNode(root=rabbitmq_root, extra_config=QUICK_STATISTICS)
    (node.folder / "advanced.config").write_text(QUICK_QUORUM_QUEUES)
    with node:
        yield node


@pytest.fixture
def vhost(rabbitmq: PrivateNode) -> Iterator[Vhost]:
    """A fresh vhost of the run's broker, deleted afterwards."""
    name = f"test-{secrets.token_hex(6)}"
    rabbitmq.create_vhost(name)
    yield Vhost(rabbitmq, name)
    rabbitmq.delete_vhost(name)


@pytest.fixture
def own_node(rabbitmq_root: Path | None) -> Iterator[OwnNode]:
    """`own_node(extra_config="")` starts a broker that this test may kill, in ten seconds."""
    with ExitStack() as nodes:

        def start(extra_config: str = "") -> PrivateNode:
            return nodes.enter_context(PrivateNode(root=rabbitmq_root, extra_config=extra_config))

        yield start


@pytest.fixture(scope="session")
def cluster(rabbitmq_root: Path | None) -> Iterator[PrivateCluster]:
    """Three nodes in a cluster. Who kills one brings it back with `restart`."""
    with PrivateCluster(3, root=rabbitmq_root) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """The run's PostgreSQL. Who kills it brings it back with `restart`.

    It syncs nothing: what a killed process has written is safe with the machine, which lives on.
    """
    with PrivatePostgres(settings=["fsync=off"]) as server:
        yield server


@pytest.fixture
def database(postgres: PrivatePostgres) -> Iterator[str]:
    """The URL of a fresh, empty database, dropped afterwards."""
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> Iterator[None]:
    with compiled_once():
        yield


@pytest.fixture(scope="session")
def _database_with_tables(postgres: PrivatePostgres) -> str:
    return with_tables(postgres.url(postgres.create_database()))


@pytest.fixture
def store_database(_database_with_tables: str) -> str:
    """The URL of a database with Redrive's tables and nothing in them.

    The run has one, which the next test gets emptied: who changes more than rows needs `database`.
    """
    empty(_database_with_tables)
    return _database_with_tables


@pytest.fixture
async def proxy() -> AsyncIterator[NewProxy]:
    """`await proxy(host, port)` gives a Proxy in front of that address."""
    async with AsyncExitStack() as proxies:

        async def start(host: str, port: int) -> Proxy:
            return await proxies.enter_async_context(Proxy(host, port))

        yield start
