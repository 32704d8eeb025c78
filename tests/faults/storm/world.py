"""The world of a storm: servers, the links to them, and every process that may be killed.

All of it is private, and ends with this process. Redrive and consumers reach broker and database
by links (proxies) only; whoever looks on from outside goes straight to the servers.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pamqp.common import FieldValue

from redrive.amqp import Channel
from redrive.broker.live import SpareChannel
from redrive.broker.private import PrivateCluster, PrivateNode
from redrive.broker.processes import GuardedProcess, free_ports
from redrive.domain.breaker import Position
from redrive.store.store import Store
from tests.acceptance.command_line import CommandLine
from tests.faults.storm.messages import EXCHANGE, INVOICES, KEYS, PARCELS, QUEUES
from tests.faults.storm.plan import OPERATOR
from tests.faults.storm.sdk_consumer import Scene
from tests.faults.storm.small_disk import SmallDisk
from tests.faults.storm.wiretap import Wiretap
from tests.services.eventually import eventually_async
from tests.services.letters import letter_store
from tests.services.moving import channel_to
from tests.services.plugin import QUICK_STATISTICS
from tests.services.postgres import ACCOUNT, PrivatePostgres
from tests.services.proxy import Hook, Proxy

ROOT: Final = Path(__file__).parents[3]
VHOST: Final = "storm"
TIERS: Final = ("1s", "2s")
PARCELS_DEAD, PERMANENT, WITNESS = "dlq.parcels", "permanent_failure_queue", "witness"
"""The parcels' own dead letter queue, where a sweep takes what is hopeless, and a queue that is
bound to everything: it has one copy of each message, and no retry or replay comes by it."""
HEARTBEAT: Final = 6
CONNECTIONS: Final = 70
DISK_MEGABYTES: Final = 700
SETTINGS: Final = f"""
[[policy]]
name = "invoice.#"
max_retries = 2
[collector]
queues = ["{PERMANENT}"]
[worker]
poll = "500ms"
lease = "10s"
verdict_after = "3s"
max_revivals = 2
delays = ["1s"]
"""
ROLES: Final = {
    "retrier-collector": "retrier,collector",
    "retrier-worker": "retrier,worker,janitor",
    "everything": "retrier,collector,worker,janitor,server",
}
CONSUMERS: Final = {
    "orders-1": "sdk_consumer",
    "orders-2": "sdk_consumer",
    "plain": "plain_consumer",
}
SWEEPER: Final = "sweeper"
"""Takes every parcel that has failed out of its loop; started only at the end."""
PRODUCERS: Final = "producers"
OWNERS: Final = (*ROLES, *CONSUMERS, SWEEPER, OPERATOR, PRODUCERS)
"""Those who have links of their own, so that what passes is known to be theirs."""
DRAINS_WITHIN: Final = 10.0


@dataclass
class Member:
    """A process that is started again after it was killed."""

    name: str
    begin: Callable[[], GuardedProcess]
    log: Path
    process: GuardedProcess | None = None

    def start(self) -> None:
        if self.process is None or not self.process.alive:
            self.process = self.begin()

    def kill(self) -> str:
        """kill -9; what was found out by it."""
        if self.process is None:
            return "it did not run"
        ended_before = None if self.process.alive else self.process.exit_code
        self.process.kill()
        return "" if ended_before is None else f"it had ended by itself: {self._last_words()}"

    def ended_by_itself(self) -> str:
        """What is wrong if nobody killed it, and it does not run."""
        if self.process is None or self.process.alive or self.process.exit_code == -signal.SIGKILL:
            return ""
        return f"{self.name} had ended by itself: {self._last_words()}"

    def _last_words(self) -> str:
        """Of a process that has ended: its exit code, and the last line that it has written."""
        assert self.process is not None
        lines = self.log.read_text(errors="replace").splitlines() or ["no word"]
        return f"{self.process.exit_code}, {lines[-1]}"

    def stop(self) -> str:
        """SIGTERM; what was wrong with how it ended."""
        if self.process is None or not self.process.alive:
            return f"{self.name} was not there any more"
        if not self.process.terminate(DRAINS_WITHIN):
            return f"{self.name} did not end within {DRAINS_WITHIN:g} s of SIGTERM"
        code = self.process.exit_code
        return f"{self.name} ended with {code} on SIGTERM" if code else ""


@dataclass
class World:
    """Everything that there is."""

    folder: Path
    nodes: list[PrivateNode]
    postgres: PrivatePostgres
    database: str
    disk: SmallDisk | None
    links: dict[str, list[Proxy]]
    """To each node of the broker, by whose they are."""
    wiretap: Wiretap
    database_link: Proxy
    port: int
    """Of Redrive's API."""
    members: dict[str, Member] = field(default_factory=dict)
    command: GuardedProcess | None = None
    """The operator's, while one runs."""

    @property
    def url(self) -> str:
        """The broker for those who look on: a node that runs."""
        return next(node for node in self.nodes if node.running).url(VHOST)

    @property
    def broker_links(self) -> list[Proxy]:
        return [link for links in self.links.values() for link in links]

    def links_url(self, owner: str) -> str:
        """The broker for everybody else, each by links of its own."""
        pairs = zip(self.nodes, self.links[owner], strict=True)
        urls = [f"{link.through(node.url(VHOST))}?heartbeat={HEARTBEAT}" for node, link in pairs]
        return ",".join(urls)

    @property
    def store_url(self) -> str:
        return self.postgres.url(self.database)

    @property
    def slow(self) -> Path:
        """While this file is there, consumers take their time."""
        return self.folder / "slow"

    def command_line(self, name: str) -> CommandLine:
        line = CommandLine(
            self.folder,
            self.links_url(name),
            TIERS,
            name=name,
            store_url=self.database_link.through(self.store_url),
            more=f"{SETTINGS}[server]\nport = {self.port}\n",
        )
        line.write_settings()
        return line

    def populate(self) -> None:
        """Make every process known; none is started yet."""
        for name, roles in ROLES.items():
            line = self.command_line(name)
            begin = _begin(line.start, "run", "--roles", roles)
            self.members[name] = Member(name, begin, line.log)
        sweeper = self.command_line(SWEEPER)
        sweep = ("sweep", PARCELS_DEAD, "--target", PERMANENT, "--max-retries", "0")
        begin = _begin(sweeper.start, *sweep, "--watch", "1s", "--spend-deliveries")
        self.members[SWEEPER] = Member(SWEEPER, begin, sweeper.log)
        for name, module in CONSUMERS.items():
            log = self.folder / f"{name}.log"
            scene = Scene(
                name, self.links_url(name), str(self.folder), str(self.folder / "everything.toml")
            )
            argv = [sys.executable, "-m", f"tests.faults.storm.{module}", json.dumps(asdict(scene))]
            self.members[name] = Member(name, _begin_module(argv, log), log)


def _begin(start: Callable[..., GuardedProcess], *words: str) -> Callable[[], GuardedProcess]:
    return lambda: start(*words)


def _begin_module(argv: list[str], log: Path) -> Callable[[], GuardedProcess]:
    return lambda: GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


@asynccontextmanager
async def a_world(nodes: int, root: Path | None = None) -> AsyncIterator[World]:
    """Servers, links, topology and every process up; all of it ends with the block. `root` has
    the RabbitMQ, if it is not the machine's own."""
    async with AsyncExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="redrive-storm-")))
        brokers = PrivateCluster(nodes, root=root, extra_config=QUICK_STATISTICS)
        ends.callback(brokers.close)
        postgres = PrivatePostgres(
            settings=[f"max_connections={CONNECTIONS}", "max_wal_size=64MB", "min_wal_size=32MB"]
        )
        ends.callback(postgres.close)
        disk = _small_disk(postgres)
        if disk is not None:
            ends.callback(disk.close)
        await asyncio.to_thread(brokers.start)
        await asyncio.to_thread(postgres.start)
        await asyncio.to_thread(brokers.wait_ready)
        brokers.create_vhost(VHOST)
        wiretap = Wiretap()
        links = {owner: _links(brokers.nodes, wiretap.hook_of(owner)) for owner in OWNERS}
        world = World(
            folder=folder,
            nodes=brokers.nodes,
            postgres=postgres,
            database=postgres.create_database(),
            disk=disk,
            links=links,
            wiretap=wiretap,
            database_link=Proxy("127.0.0.1", postgres.port),
            port=ends.enter_context(_held_port()),
        )
        for link in (*world.broker_links, world.database_link):
            await ends.enter_async_context(link)
        ends.callback(_end, world)
        await _begin_life(world)
        yield world


@contextmanager
def _held_port() -> Iterator[int]:
    """A port that nobody else on the machine takes while the server that listens there is dead: it
    is bound here too, by a socket that does not listen, and so is in no server's way."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", free_ports(1)[0]))
        yield int(holder.getsockname()[1])


def _links(nodes: Sequence[PrivateNode], hook: Hook) -> list[Proxy]:
    links = [Proxy("127.0.0.1", node.port) for node in nodes]
    for link in links:
        link.hook = hook
    return links


def _small_disk(postgres: PrivatePostgres) -> SmallDisk | None:
    """None where only root could mount one."""
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam(ACCOUNT)
    owner = (account.pw_uid, account.pw_gid)
    disk = SmallDisk(postgres.folder / "data", DISK_MEGABYTES, owner)
    postgres.entrance = disk.entrance
    return disk


async def _begin_life(world: World) -> None:
    world.populate()
    async with letter_store(world.store_url) as store:
        await _hold_breakers(store)
    async with channel_to(world.url) as channel:
        await _declare_queues(channel)
    for name in (*ROLES, *CONSUMERS):
        world.members[name].start()
    for queue in (*QUEUES, "retry-queue", "dlq-queue", "redrive-receipts"):
        await _is_consumed(world.url, queue)
    # A single node that is killed right after a queue was declared may forget it.
    await asyncio.gather(*(asyncio.to_thread(node.settle) for node in world.nodes))


async def _is_consumed(url: str, queue: str) -> None:
    async with channel_to(url) as channel:
        spare = SpareChannel(channel.connection)

        async def has_consumer() -> bool:
            found = await spare.count(queue)
            return found is not None and found[1] > 0

        await eventually_async(has_consumer, within=60, what=f"a consumer of {queue}")


async def _hold_breakers(store: Store) -> None:
    """Replays go on although much of what they send fails: this is about what becomes of it."""
    for queue in QUEUES:
        await store.breakers.force(VHOST, queue, Position.CLOSED)


async def _declare_queues(channel: Channel) -> None:
    safe: dict[str, FieldValue] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 1_000_000,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    plain: dict[str, FieldValue] = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}
    for exchange in (EXCHANGE, "parcels-dead", "parcels-again"):
        await channel.declare_exchange(exchange, "topic")
    again: dict[str, FieldValue] = {
        "x-message-ttl": 2000,
        "x-dead-letter-exchange": "parcels-again",
    }
    await channel.declare_queue(INVOICES, arguments=safe | _dead("retry-exchange"))
    await channel.declare_queue(PARCELS, arguments=safe | _dead("parcels-dead"))
    await channel.declare_queue(PARCELS_DEAD, arguments=safe | again)
    await channel.declare_queue(PERMANENT, arguments=plain)
    await channel.declare_queue(WITNESS, arguments=plain)
    for queue, exchange, key in (
        (INVOICES, EXCHANGE, KEYS[INVOICES]),
        (PARCELS, EXCHANGE, KEYS[PARCELS]),
        (WITNESS, EXCHANGE, "#"),
        (PARCELS_DEAD, "parcels-dead", "#"),
        (PARCELS, "parcels-again", "#"),
    ):
        await channel.bind_queue(queue, exchange, key)


def _dead(exchange: str) -> dict[str, FieldValue]:
    return {"x-dead-letter-exchange": exchange}


def _end(world: World) -> None:
    for member in world.members.values():
        if member.process is not None:
            member.process.kill()
    if world.command is not None:
        world.command.kill()
