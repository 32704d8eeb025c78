"""What tests of the wire need: a connection, messages in a queue, deliveries out of it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from redrive.amqp import (
    Channel,
    Confirmed,
    Connection,
    Consumer,
    Delivery,
    Publish,
    Publisher,
    connect,
    parse_addresses,
)
from redrive.broker.private import PrivateNode
from redrive.errors import (
    CannotConnect,
)
from tests.strategies import sized

SOON = 30.0
MIB = 1 << 20
PLAIN = b"\x00\x00"
PERSISTENT = b"\x10\x00\x02"
KINDS = ["classic", "quorum"]


@asynccontextmanager
async def connected(url: str, name: str = "test") -> AsyncIterator[Connection]:
    connection = await connect(parse_addresses(url), name=name)
    try:
        yield connection
    finally:
        await connection.close()


async def soon(awaitable: Awaitable[object]) -> object:
    return await asyncio.wait_for(awaitable, SOON)


async def fill(connection: Connection, queue: str, bodies: list[bytes]) -> None:
    """Publish to a queue and wait until all of it is confirmed."""
    publisher = await (await connection.channel()).publisher()
    sends = [publisher.send(Publish("", queue, PERSISTENT, body)) for body in bodies]
    async with asyncio.timeout(60):
        assert set(await asyncio.gather(*sends)) <= {Confirmed()}


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    """That many deliveries, unsettled."""
    found: list[Delivery] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.next_batch()
    return found


def with_password(url: str, password: str) -> str:
    return url.replace(":guest@", f":{password}@")


FIELDS = [
    b"t\x01",
    b"t\x00",
    b"t\x07",
    b"b\xfe",
    b"B\xfe",
    b"s\xff\x01",
    b"u\xff\x01",
    b"I\xff\xff\xff\x01",
    b"i\x00\xff\xff\x01",
    b"l" + struct.pack(">q", -5),
    b"L" + struct.pack(">q", -5),
    b"L" + struct.pack(">q", 5_000_000_000),
    b"f" + struct.pack(">f", 1.5),
    b"d" + struct.pack(">d", 0.1),
    b"D\x02" + struct.pack(">i", -314),
    b"T" + struct.pack(">Q", 1_700_000_000),
    b"V",
    sized(b"S", b"text"),
    sized(b"S", b"\xff\xfe"),
    sized(b"x", b"\x00\x01"),
    sized(b"A", b""),
    sized(b"A", b"t\x03" + b"L" + struct.pack(">q", 9)),
    sized(b"F", b"\x01zt\x01\x01aL" + struct.pack(">q", 9)),
    sized(b"F", b"\x01zt\x01\x01zt\x00"),
]
NAMES = [b"a", b"b", b"z", b"A", b"", b"\xff"]


async def length_is(channel: Channel, queue: str, length: int) -> bool:
    return (await channel.inspect_queue(queue))[0] == length


async def outcomes_of(publisher: Publisher, count: int) -> list[tuple[Publish, object]]:
    found: list[tuple[Publish, object]] = []
    async with asyncio.timeout(SOON):
        while len(found) < count:
            found += await publisher.next_outcomes()
    assert len(found) == count
    return found


async def why_not(url: str) -> str:
    with pytest.raises(CannotConnect) as caught:
        await connect(parse_addresses(url), name="test")
    return str(caught.value)


@asynccontextmanager
async def peer(says: bytes, *, then_closes: bool = False) -> AsyncIterator[int]:
    """A TCP server that is no broker: it says something, and waits or hangs up."""
    done = asyncio.Event()
    served: set[asyncio.Task[None]] = set()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        if not then_closes:
            await done.wait()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(
        lambda *both: served.add(asyncio.ensure_future(serve(*both))), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        done.set()
        server.close()
        await asyncio.gather(*served)


@dataclass(frozen=True)
class TlsBroker:
    """A broker that also listens on TLS, and certificates for it and for the user `certified`."""

    node: PrivateNode
    port: int

    @property
    def folder(self) -> Path:
        return self.node.folder / "tls"

    def url(self, query: str = "", host: str = "localhost") -> str:
        return f"amqps://guest:guest@{host}:{self.port}/?{query}"

    def lay_out(self) -> None:
        """Write the certificates and the settings that use them, before the node starts."""
        folder = self.folder
        folder.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
        for who, identity in {"server": "localhost", "client": "certified.example"}.items():
            issued = authority.issue_cert(identity, common_name=who)
            issued.cert_chain_pems[0].write_to_path(folder / f"{who}.pem")
            issued.private_key_pem.write_to_path(folder / f"{who}.key")
        plugins = self.node.folder / "enabled_plugins"
        plugins.write_text(plugins.read_text().replace("]", ",rabbitmq_auth_mechanism_ssl]"))
        with (self.node.folder / "rabbitmq.conf").open("a") as config:
            config.write(
                f"listeners.ssl.default = 127.0.0.1:{self.port}\n"
                f"ssl_options.cacertfile = {folder}/ca.pem\n"
                f"ssl_options.certfile = {folder}/server.pem\n"
                f"ssl_options.keyfile = {folder}/server.key\n"
                "ssl_options.verify = verify_peer\n"
                "ssl_options.fail_if_no_peer_cert = false\n"
                "auth_mechanisms.1 = PLAIN\n"
                "auth_mechanisms.2 = EXTERNAL\n"
                "ssl_cert_login_from = common_name\n"
            )
