"""The servers that the other tests stand on do what those tests rely on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pika
import pika.exceptions
import psutil
import psycopg
import pytest

from redrive.broker.private import PrivateNode
from redrive.errors import BrokerError, CannotStart
from tests.services.eventually import eventually, eventually_async
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.services.postgres import PrivatePostgres
from tests.services.proxy import Direction, ProxyConnection


def publish(url: str, queue: str, bodies: list[bytes], kind: str = "quorum") -> None:
    """Declare a durable queue and publish persistent messages, each confirmed."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        channel.confirm_delivery()
        for body in bodies:
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", queue, body, properties, mandatory=True)


def drain(url: str, queue: str) -> list[bytes]:
    """Take everything out of a queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        bodies: list[bytes] = []
        while (answer := channel.basic_get(queue, auto_ack=True))[0] is not None:
            bodies.append(answer[2])
        return bodies


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# -- RabbitMQ ------------------------------------------------------------------------------------


def test_a_vhost_is_empty_and_belongs_to_one_test(vhost: Vhost) -> None:
    publish(vhost.url, "q", [b"one", b"two"])
    assert drain(vhost.url, "q") == [b"one", b"two"]
    assert vhost.name in vhost.node.ctl("list_vhosts").split()


def test_the_broker_under_test_is_the_version_that_was_asked_for(rabbitmq: PrivateNode) -> None:
    wanted = os.environ.get("REDRIVE_TEST_RABBITMQ") or "3."
    version = rabbitmq.api("GET", "overview")["rabbitmq_version"]
    assert version.startswith(wanted)


def test_the_shovel_and_management_plugins_are_on(rabbitmq: PrivateNode) -> None:
    assert rabbitmq.api("GET", "parameters/shovel") == []


def test_what_was_confirmed_survives_kill_9_and_an_orderly_stop(own_node: OwnNode) -> None:
    node = own_node()
    bodies = [b"%d" % number for number in range(100)]
    for kind in ("quorum", "classic"):
        publish(node.url(), kind, [], kind)
    node.settle()
    for kind in ("quorum", "classic"):
        publish(node.url(), kind, bodies, kind)
    port, pid = node.port, node.pid
    node.kill()
    assert not alive(pid)
    node.restart()
    assert (node.port, node.pid != pid) == (port, True)
    assert drain(node.url(), "quorum") == bodies
    node.ctl("await_startup")  # it serves a little before its start is complete
    node.stop()
    assert not node.running
    node.restart()
    assert drain(node.url(), "classic") == bodies


def test_two_nodes_run_side_by_side_and_a_paused_one_answers_after_it_goes_on(
    rabbitmq: PrivateNode, own_node: OwnNode
) -> None:
    other = own_node("max_message_size = 1000000")
    assert {rabbitmq.name, other.name} == rabbitmq.peers() | other.peers()
    assert rabbitmq.peers().isdisjoint(other.peers())
    other.pause()
    with pytest.raises(BrokerError):
        other.api("GET", "whoami", timeout=0.5)
    assert rabbitmq.api("GET", "whoami")["name"] == "guest"
    other.resume()
    assert other.api("GET", "whoami")["name"] == "guest"
    folder, pid, epmd = other.folder, other.pid, other.epmd
    other.close()
    other.close()
    assert not folder.exists()
    assert not alive(pid)
    assert not epmd.running


def test_a_node_that_cannot_start_shows_the_end_of_its_log(own_node: OwnNode) -> None:
    with pytest.raises(CannotStart, match="no_such_setting"):
        own_node("no_such_setting = 1")


def test_a_missing_rabbitmq_is_named_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="not installed") as caught:
        PrivateNode(root=tmp_path)
    assert "rabbitmq-server" in caught.value.remedy


HOLDS_SERVERS = """
import sys, threading
from redrive.broker.private import PrivateNode
from tests.services.postgres import PrivatePostgres

node, server = PrivateNode(), PrivatePostgres()
# in a thread that ends: what it started must stay, and must still end with the process
starter = threading.Thread(target=lambda: (node.start(), server.start()))
starter.start()
starter.join()
node.wait_ready()
print(node.pid, node.epmd.pid, server.pid, node.folder, server.folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_run_that_ended_by(ending: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", HOLDS_SERVERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with run:
        assert run.stdout is not None
        *pids, node_folder, server_folder = run.stdout.readline().split()
        assert len(pids) == 3
        assert all(alive(int(pid)) for pid in pids)
        run.send_signal(ending)
        run.wait(30)
    eventually(lambda: not any(alive(int(pid)) for pid in pids))
    eventually(lambda: not Path(node_folder).exists() and not Path(server_folder).exists())


# -- PostgreSQL ----------------------------------------------------------------------------------


def test_what_was_committed_survives_kill_9_of_postgresql(postgres: PrivatePostgres) -> None:
    url = postgres.url(postgres.create_database())
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS n")
    witness = psycopg.connect(url)
    pid = postgres.pid
    postgres.kill()
    assert not alive(pid)
    with pytest.raises(psycopg.OperationalError):
        witness.execute("SELECT 1")
    witness.close()
    postgres.restart()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1000,)


def test_a_database_is_empty_and_belongs_to_one_test(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchone() == (0,)


# -- the proxy -----------------------------------------------------------------------------------


class Echo:
    """A server that sends back what it gets."""

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def __aexit__(self, *_: object) -> None:
        self.server.close()


async def test_the_proxy_forwards_and_records_both_directions(proxy: NewProxy) -> None:
    async with Echo() as echo:
        way = await proxy("127.0.0.1", echo.port)
        way.recording = True
        reader, writer = await asyncio.open_connection(way.host, way.port)
        data = os.urandom(1_000_000)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        (connection,) = way.connections
        await asyncio.wait_for(connection.closed.wait(), 30)
        assert connection.sent == connection.received == data


async def test_a_cut_resets_and_the_proxy_then_refuses_until_told_otherwise(
    proxy: NewProxy,
) -> None:
    async with Echo() as echo:
        way = await proxy("127.0.0.1", echo.port)
        reader, writer = await asyncio.open_connection(way.host, way.port)
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        way.cut(refuse=True)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 30)
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(way.host, way.port)
        await way.accept()
        reader, writer = await asyncio.open_connection(way.host, way.port)
        writer.write(b"pong")
        assert await reader.readexactly(4) == b"pong"
        writer.close()


async def test_a_connection_is_cut_after_exactly_so_many_bytes(proxy: NewProxy) -> None:
    async with Echo() as echo:
        way = await proxy("127.0.0.1", echo.port)
        way.recording = True
        way.cut_after(received=1000)
        reader, writer = await asyncio.open_connection(way.host, way.port)
        writer.write(bytes(5000))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
        assert len(way.connections[0].received) == 1000


async def test_a_hook_sees_and_may_change_every_chunk(proxy: NewProxy) -> None:
    async with Echo() as echo:
        way = await proxy("127.0.0.1", echo.port)

        def upper(_: ProxyConnection, direction: Direction, data: bytes) -> bytes | None:
            return data.upper() if direction is Direction.SENT else None

        way.hook = upper
        reader, writer = await asyncio.open_connection(way.host, way.port)
        writer.write(b"quiet")
        assert await reader.readexactly(5) == b"QUIET"
        writer.close()


async def test_a_half_open_connection_is_silent_and_loses_nothing_when_it_heals(
    proxy: NewProxy,
) -> None:
    async with Echo() as echo:
        way = await proxy("127.0.0.1", echo.port)
        reader, writer = await asyncio.open_connection(way.host, way.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        way.half_open()
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        way.flow()
        assert await asyncio.wait_for(reader.readexactly(1), 30) == b"b"
        writer.close()


async def test_a_delay_adds_to_the_way_there_and_back_without_lowering_the_speed(
    proxy: NewProxy,
) -> None:
    async with Echo() as echo:
        way = await proxy("127.0.0.1", echo.port)
        way.delay(0.2)
        reader, writer = await asyncio.open_connection(way.host, way.port)
        began = time.monotonic()
        writer.write(bytes(8_000_000))
        await reader.readexactly(8_000_000)
        took = time.monotonic() - began
        assert 0.4 <= took < 20.0  # each of its 123 pieces after the other would take 24 seconds
        writer.close()


async def test_a_throttled_connection_takes_as_long_as_it_should(proxy: NewProxy) -> None:
    async with Echo() as echo:
        way = await proxy("127.0.0.1", echo.port)
        way.throttle(100_000)
        reader, writer = await asyncio.open_connection(way.host, way.port)
        began = time.monotonic()
        writer.write(bytes(50_000))
        await reader.readexactly(50_000)
        assert 0.4 <= time.monotonic() - began < 10.0
        writer.close()


async def test_a_broker_behind_the_proxy_can_be_cut_off(vhost: Vhost, proxy: NewProxy) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    url = way.through(vhost.url)
    await asyncio.to_thread(publish, url, "q", [b"through"])
    await eventually_async(lambda: not way.open)
    assert await asyncio.to_thread(drain, vhost.url, "q") == [b"through"]
