"""The wire against a real broker, a bad network and peers that are none."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme

from redrive.amqp import (
    Channel,
    Confirmed,
    Connection,
    Consumer,
    Delivery,
    Properties,
    Publish,
    Publisher,
    Refused,
    Returned,
    connect,
    fields,
    parse_addresses,
)
from redrive.broker.private import PrivateNode
from redrive.broker.processes import free_ports
from redrive.errors import (
    AccessRefused,
    BrokerError,
    CannotConnect,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    NotFound,
    PreconditionFailed,
    RedriveError,
    ResourceLocked,
    Unpublishable,
)
from tests.services.eventually import eventually_async
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.strategies import Entry, inside_of, sized

SOON = 10.0
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


@pytest.fixture
async def connection(vhost: Vhost) -> AsyncIterator[Connection]:
    async with connected(vhost.url) as opened:
        yield opened


@pytest.fixture
async def channel(connection: Connection) -> Channel:
    return await connection.channel()


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


# -- getting in ----------------------------------------------------------------------------------


async def why_not(url: str) -> str:
    with pytest.raises(CannotConnect) as caught:
        await connect(parse_addresses(url), name="test")
    return str(caught.value)


async def test_a_wrong_password_is_refused_with_the_brokers_reason(vhost: Vhost) -> None:
    why = await why_not(with_password(vhost.url, "s3cr3t"))
    assert "ACCESS_REFUSED" in why
    assert "s3cr3t" not in why


async def test_a_vhost_that_does_not_exist_is_named(vhost: Vhost) -> None:
    why = await why_not(vhost.node.url("no such vhost"))
    assert "no such vhost" in why
    assert "NOT_ALLOWED" in why


async def test_a_vhost_without_permission_is_refused(vhost: Vhost) -> None:
    node = vhost.node
    node.api("PUT", f"users/{vhost.name}", {"password": "s3cr3t", "tags": ""})
    url = f"amqp://{vhost.name}:s3cr3t@127.0.0.1:{node.port}/{quote(vhost.name, safe='')}"
    why = await why_not(url)
    assert ("access" in why, "s3cr3t" in why) == (True, False)
    node.api("DELETE", f"users/{vhost.name}")


async def test_a_closed_port_is_connection_refused() -> None:
    (port,) = free_ports(1)
    assert "connection refused" in await why_not(f"amqp://guest:s3cr3t@127.0.0.1:{port}/")


async def test_a_host_that_does_not_exist_is_named() -> None:
    assert "no such host" in await why_not("amqp://no-such-host.invalid/")


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 64}.invalid"])
async def test_a_host_name_that_cannot_be_is_a_typed_error(host: str) -> None:
    await why_not(f"amqp://{host}/")


async def test_every_host_is_tried_and_every_reason_told(vhost: Vhost) -> None:
    (port,) = free_ports(1)
    wrong = with_password(vhost.url, "s3cr3t")
    closed = wrong.replace(f":{vhost.node.port}/", f":{port}/")
    why = await why_not(f"{closed},{wrong}")
    assert ("connection refused" in why, "ACCESS_REFUSED" in why) == (True, True)


async def test_the_second_host_is_taken_when_the_first_does_not_answer(vhost: Vhost) -> None:
    (port,) = free_ports(1)
    dead = vhost.url.replace(f":{vhost.node.port}/", f":{port}/")
    async with connected(f"{dead},{vhost.url}") as connection:
        assert connection.address.port == vhost.node.port


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


@pytest.mark.parametrize(
    ("says", "then_closes", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", False, "cannot be read"),
        (b"AMQP\x03\x01\x00\x00", True, "AMQP 1.0.0"),
        (b"", True, "lost"),
        (b"", False, "no answer within 0.3 s"),
        (bytes(4096), False, "cannot be read"),
        (b"\x01\x00\x00\x00\x00\x00\x05\x00\x0a\x00\x29\x00\xce", False, "Connection.OpenOk"),
    ],
)
async def test_a_peer_that_is_no_broker_is_told_apart(
    says: bytes, then_closes: bool, why: str
) -> None:
    async with peer(says, then_closes=then_closes) as port:
        told = await why_not(f"amqp://guest:s3cr3t@127.0.0.1:{port}/?connection_timeout=300")
    assert (why in told, "s3cr3t" in told) == (True, False)


async def test_the_connections_name_is_what_operators_see(vhost: Vhost) -> None:
    async with connected(vhost.url, "redrive retrier on host"):

        def names() -> list[str]:
            listed = vhost.node.api("GET", f"vhosts/{vhost.name}/connections")
            return [each["client_properties"].get("connection_name") for each in listed]

        await eventually_async(
            lambda: asyncio.to_thread(lambda: "redrive retrier on host" in names()), within=15
        )


async def test_a_vhost_with_a_slash_and_a_space_is_reached(vhost: Vhost) -> None:
    name = f"{vhost.name}/with a ü"
    vhost.node.create_vhost(name)
    async with connected(vhost.node.url(name)) as connection:
        await (await connection.channel()).declare_queue("q")
    vhost.node.delete_vhost(name)


async def test_the_broker_tells_its_version(connection: Connection) -> None:
    assert str(connection.server_properties["version"])[0] in "34"


# -- TLS -----------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def tls(rabbitmq_root: Path | None) -> Iterator[TlsBroker]:
    broker = TlsBroker(PrivateNode(root=rabbitmq_root), free_ports(1)[0])
    broker.lay_out()
    with broker.node as node:
        node.api("PUT", "users/client", {"password_hash": "", "tags": ""})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        node.api("PUT", "permissions/%2F/client", everything)
        yield broker


async def test_tls_with_the_brokers_authority_connects(tls: TlsBroker) -> None:
    async with connected(tls.url(f"cacertfile={tls.folder}/ca.pem")) as connection:
        await (await connection.channel()).declare_queue("q", exclusive=True)


async def test_bodies_pass_intact_over_tls(tls: TlsBroker) -> None:
    async with connected(tls.url(f"cacertfile={tls.folder}/ca.pem")) as connection:
        channel = await connection.channel()
        await channel.declare_queue("large", exclusive=True)
        body = random.Random(1).randbytes(3 * MIB)
        await fill(connection, "large", [body])
        got = await eventually_async(lambda: channel.get("large"))
        assert got is not None
        assert got.body == body


async def test_a_client_certificate_logs_in_by_itself(tls: TlsBroker) -> None:
    files = "&".join(f"{key}={tls.folder}/{name}" for key, name in CLIENT_FILES.items())
    async with connected(tls.url(f"{files}&auth_mechanism=external")) as connection:
        await connection.channel()

        def users() -> list[str | None]:
            return [each.get("user") for each in tls.node.api("GET", "connections")]

        # the management API tells late, and of connections that are no more as well
        await eventually_async(lambda: asyncio.to_thread(lambda: "client" in users()), within=15)


CLIENT_FILES = {"cacertfile": "ca.pem", "certfile": "client.pem", "keyfile": "client.key"}


async def test_external_without_a_certificate_is_refused(tls: TlsBroker) -> None:
    query = f"cacertfile={tls.folder}/ca.pem&auth_mechanism=external"
    assert "ACCESS_REFUSED" in await why_not(tls.url(query))


@pytest.mark.parametrize("authority", ["", "other-ca.pem"])
async def test_a_certificate_of_an_unknown_authority_is_not_trusted(
    tls: TlsBroker, authority: str
) -> None:
    query = f"cacertfile={tls.folder}/{authority}" if authority else ""
    assert "certificate not trusted" in await why_not(tls.url(query))


async def test_a_certificate_for_another_host_is_not_trusted(tls: TlsBroker) -> None:
    url = tls.url(f"cacertfile={tls.folder}/ca.pem", host="127.0.0.1")
    assert "certificate not trusted" in await why_not(url)


async def test_the_name_to_look_for_in_the_certificate_can_be_given(tls: TlsBroker) -> None:
    query = f"cacertfile={tls.folder}/ca.pem&server_name_indication=localhost"
    async with connected(tls.url(query, host="127.0.0.1")) as connection:
        assert connection.is_open


async def test_any_certificate_will_do_when_verification_is_off(tls: TlsBroker) -> None:
    async with connected(tls.url("verify=verify_none")) as connection:
        assert connection.is_open


async def test_tls_to_the_plain_port_of_a_broker_is_a_typed_error(tls: TlsBroker) -> None:
    await why_not(f"amqps://guest:guest@localhost:{tls.node.port}/?connection_timeout=3000")


async def test_an_orderly_close_over_tls_leaves_no_socket_open(tls: TlsBroker) -> None:
    async with connected(tls.url(f"cacertfile={tls.folder}/ca.pem")) as connection:
        transport = connection._wire._transport
        assert transport is not None
        handle = transport.get_extra_info("socket")
    assert handle.fileno() == -1


async def test_a_plain_peer_that_stays_silent_on_tls_is_given_up_in_time() -> None:
    async with peer(b"") as port:
        why = await why_not(f"amqps://127.0.0.1:{port}/?connection_timeout=300")
    assert "no answer within 0.3 s" in why


async def test_a_plain_peer_that_talks_on_tls_is_a_typed_error() -> None:
    async with peer(b"not a handshake at all\r\n") as port:
        await why_not(f"amqps://127.0.0.1:{port}/?connection_timeout=2000")


# -- queues and exchanges ------------------------------------------------------------------------


async def test_a_queue_without_a_name_gets_one_from_the_broker(channel: Channel) -> None:
    name = await channel.declare_queue("", exclusive=True, durable=False)
    assert name.startswith("amq.gen-")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_is_inspected_purged_and_deleted(
    connection: Connection, channel: Channel, kind: str
) -> None:
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    await fill(connection, "q", [b"1", b"2", b"3"])
    # a quorum queue tells its length with a delay
    await eventually_async(lambda: _length_is(channel, "q", 3))
    assert await channel.purge_queue("q") == 3
    await fill(connection, "q", [b"4"])
    await eventually_async(lambda: _length_is(channel, "q", 1))
    assert await channel.delete_queue("q") == 1
    with pytest.raises(NotFound):
        await channel.inspect_queue("q")


async def _length_is(channel: Channel, queue: str, length: int) -> bool:
    return (await channel.inspect_queue(queue))[0] == length


async def test_a_consumer_is_seen_on_its_queue(connection: Connection, channel: Channel) -> None:
    await channel.declare_queue("q")
    await (await connection.channel()).consume("q", prefetch=1)
    await eventually_async(lambda: _consumers_are(channel, "q", 1))


async def _consumers_are(channel: Channel, queue: str, count: int) -> bool:
    return (await channel.inspect_queue(queue))[1] == count


async def test_what_is_bound_gets_messages_and_what_is_unbound_does_not(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_exchange("e", "topic")
    await channel.inspect_exchange("e")
    await channel.declare_queue("q")
    await channel.bind_queue("q", "e", "order.#")
    publisher = await (await connection.channel()).publisher()
    assert await publisher.send(Publish("e", "order.new", PLAIN, b"")) == Confirmed()
    await channel.unbind_queue("q", "e", "order.#")
    outcome = await publisher.send(Publish("e", "order.new", PLAIN, b""))
    assert outcome == Returned(312, "NO_ROUTE")
    await channel.delete_exchange("e")
    with pytest.raises(NotFound):
        await channel.inspect_exchange("e")


async def test_a_binding_may_have_arguments(connection: Connection, channel: Channel) -> None:
    await channel.declare_exchange("h", "headers")
    await channel.declare_queue("q")
    await channel.bind_queue("q", "h", "", {"x-match": "all", "colour": "blue"})
    publisher = await (await connection.channel()).publisher()
    blue = Properties.empty().with_headers({"colour": fields.longstr("blue")}).raw
    assert await publisher.send(Publish("h", "", blue, b"")) == Confirmed()
    assert await publisher.send(Publish("h", "", PLAIN, b"")) == Returned(312, "NO_ROUTE")


@pytest.mark.parametrize("name", ["überfällig ☃", "a;b (old)", "ü" * 127])
async def test_a_queue_may_have_any_name(
    connection: Connection, channel: Channel, name: str
) -> None:
    await channel.declare_queue(name)
    await fill(connection, name, [b"x"])
    assert (await soon(channel.get(name))) is not None


# -- messages ------------------------------------------------------------------------------------


async def test_get_on_an_empty_queue_is_none(channel: Channel) -> None:
    await channel.declare_queue("q")
    assert await channel.get("q") is None


@pytest.mark.parametrize("kind", KINDS)
async def test_an_acked_message_is_gone_and_a_returned_one_comes_again(
    connection: Connection, channel: Channel, kind: str
) -> None:
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    await fill(connection, "q", [b"acked", b"nacked", b"rejected", b"gone"])
    got = [await eventually_async(lambda: channel.get("q")) for _ in range(4)]
    by_body = {each.body: each for each in got if each is not None}
    channel.ack(by_body[b"acked"].tag)
    channel.nack(by_body[b"nacked"].tag, requeue=True)
    channel.reject(by_body[b"rejected"].tag, requeue=True)
    channel.reject(by_body[b"gone"].tag, requeue=False)
    again = [await eventually_async(lambda: channel.get("q")) for _ in range(2)]
    assert {(each.body, each.redelivered) for each in again if each is not None} == {
        (b"nacked", True),
        (b"rejected", True),
    }
    assert await channel.get("q") is None


async def test_acks_and_nacks_may_cover_all_up_to_a_tag(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [b"%d" % number for number in range(6)])
    tags = [each.tag for _ in range(6) if (each := await channel.get("q")) is not None]
    channel.ack(tags[2], multiple=True)
    channel.nack(tags[5], multiple=True, requeue=True)
    again = [each.body for _ in range(3) if (each := await channel.get("q")) is not None]
    assert (sorted(again), await channel.get("q")) == ([b"3", b"4", b"5"], None)


@pytest.mark.parametrize("kind", KINDS)
async def test_bodies_from_nothing_to_15_mib_arrive_intact(
    vhost: Vhost, connection: Connection, channel: Channel, kind: str
) -> None:
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    edge = connection.frame_max - 8
    sizes = [0, 1, edge - 1, edge, edge + 1, 2 * edge, 2 * edge + 1, 1 << 20, 15 << 20]
    dice = random.Random(7)
    bodies = [dice.randbytes(size) for size in sizes]
    await fill(connection, "q", bodies)
    async with connected(vhost.url) as reader:
        consumer = await (await reader.channel()).consume("q", prefetch=100)
        found = await take(consumer, len(bodies))
        assert [each.body for each in found] == bodies


async def test_acks_go_out_and_unsettled_messages_come_again(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [b"%d" % number for number in range(100)])
    async with connected(vhost.url) as reader:
        consumer = await (await reader.channel()).consume("q", prefetch=100)
        found = await take(consumer, 100)
        dice = random.Random(7)
        settled = dice.sample(found, 60)
        for each in settled[:50]:
            consumer.ack(each)
            if dice.random() < 0.2:
                consumer.flush()
        for each in settled[50:]:
            consumer.reject(each)
        consumer.flush()
        # the stragglers behind the gaps go out by themselves, a little later
        await eventually_async(lambda: not consumer._settlement.waiting)
    unsettled = {each.body for each in found} - {each.body for each in settled}
    async with connected(vhost.url) as reader:
        consumer = await (await reader.channel()).consume("q", prefetch=100)
        again = await take(consumer, 40)
        assert {each.body for each in again} == unsettled
        assert (await channel.inspect_queue("q"))[0] == 0


async def test_a_consumer_has_at_most_its_prefetch_unsettled(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [b""] * 30)
    consumer = await (await connection.channel()).consume("q", prefetch=10)
    found = await take(consumer, 10)
    await channel.inspect_queue("q")  # whatever the broker had to send came before its answer
    assert consumer._arrived == []
    for each in found:
        consumer.ack(each)
    consumer.flush()
    assert len(await take(consumer, 10)) == 10


async def test_properties_too_large_for_a_frame_are_refused_and_the_channel_goes_on(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    publisher = await (await connection.channel()).publisher()
    room = connection.frame_max - 20
    overhead = len(Properties.empty().with_headers({"h": fields.longstr("")}).raw)
    largest = Properties.empty().with_headers({"h": fields.longstr("x" * (room - overhead))}).raw
    larger = Properties.empty().with_headers({"h": fields.longstr("x" * (room - overhead + 1))}).raw
    with pytest.raises(Unpublishable):
        publisher.publish(Publish("", "q", larger, b""))
    outcome = await soon(publisher.send(Publish("", "q", largest, b"x")))
    assert outcome == Confirmed()


async def test_a_full_queue_that_rejects_refuses(connection: Connection, channel: Channel) -> None:
    await channel.declare_queue("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    publisher = await (await connection.channel()).publisher()
    outcomes = [await publisher.send(Publish("", "q", PLAIN, b"")) for _ in range(2)]
    assert outcomes == [Confirmed(), Refused()]


# -- every outcome right -------------------------------------------------------------------------

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


def _random_message(dice: random.Random, key: str) -> Publish:
    """A message like others: three ids, few bodies, headers that a broker rewrites."""
    entries: list[Entry] = [
        (dice.choice(NAMES), dice.choice(FIELDS)) for _ in range(dice.randrange(4))
    ]
    if dice.random() < 0.3:
        copy_to = sized(b"S", b"nowhere")
        entries.insert(dice.randrange(len(entries) + 1), (b"BCC", sized(b"A", copy_to)))
    inside = inside_of(entries)
    ident = dice.choice([b"one", b"two", b"three"])
    raw = b"".join(
        (
            struct.pack(">H", 0x2000 | 0x0080),
            struct.pack(">I", len(inside)),
            inside,
            bytes((len(ident),)),
            ident,
        )
    )
    return Publish("e", key, raw, dice.choice([b"", b"x", b"y" * 1000]))


@pytest.mark.parametrize("kind", KINDS)
async def test_of_200_rounds_of_publishes_with_equal_ids_half_unroutable_every_outcome_is_right(
    connection: Connection, channel: Channel, kind: str
) -> None:
    await channel.declare_exchange("e", "direct")
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    await channel.bind_queue("q", "e", "bound")
    publisher = await (await connection.channel()).publisher()
    dice = random.Random(20)
    wrong: list[tuple[int, Publish, object]] = []
    for number in range(200):
        # the same few messages under both keys, so that only the key tells them apart
        messages = [_random_message(dice, "") for _ in range(12)]
        sent = 0
        for _ in range(50):
            like = dice.choice(messages)
            key = dice.choice(["bound", "unbound"])
            publisher.publish(Publish("e", key, like.properties, like.body))
            sent += 1
        wrong += [
            (number, publish, outcome)
            for publish, outcome in await _outcomes(publisher, sent)
            if (publish.routing_key == "bound") is not (outcome == Confirmed())
        ]
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS)
async def test_of_equal_messages_to_a_queue_that_comes_and_goes_each_is_told_apart_by_headers(
    connection: Connection, channel: Channel, kind: str
) -> None:
    """A headers exchange routes by one header: everything else is equal, the key too."""
    await channel.declare_exchange("h", "headers")
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    await channel.bind_queue("q", "h", "", {"x-match": "all", "go": "yes"})
    publisher = await (await connection.channel()).publisher()
    dice = random.Random(21)
    wrong = []
    for _ in range(50):
        for _ in range(40):
            go = dice.choice([b"yes", b"no"])
            others: list[Entry] = [
                (b"n%d" % at, dice.choice(FIELDS)) for at in range(dice.randrange(3))
            ]
            entries = [*others, (b"go", sized(b"S", go))]
            dice.shuffle(entries)
            inside = inside_of(entries)
            raw = b"\x20\x00" + struct.pack(">I", len(inside)) + inside
            publisher.publish(Publish("h", "", raw, b"same", go))
        wrong += [
            (publish, outcome)
            for publish, outcome in await _outcomes(publisher, 40)
            if (publish.context == b"yes") is not (outcome == Confirmed())
        ]
    assert wrong == []


async def _outcomes(publisher: Publisher, count: int) -> list[tuple[Publish, object]]:
    found: list[tuple[Publish, object]] = []
    async with asyncio.timeout(SOON):
        while len(found) < count:
            found += await publisher.next_outcomes()
    assert len(found) == count
    return found


# -- errors --------------------------------------------------------------------------------------


async def test_a_forbidden_queue_is_403_and_the_connection_goes_on(vhost: Vhost) -> None:
    user = f"reader-{vhost.name}"
    node = vhost.node
    node.api("PUT", f"users/{user}", {"password": "x", "tags": ""})
    nothing = {"configure": "^$", "write": "^$", "read": ".*"}
    node.api("PUT", f"permissions/{quote(vhost.name, safe='')}/{user}", nothing)
    async with connected(vhost.url.replace("guest:guest", f"{user}:x")) as connection:
        channel = await connection.channel()
        with pytest.raises(AccessRefused, match="ACCESS_REFUSED") as caught:
            await channel.declare_queue("q")
        assert caught.value.code == 403
        await connection.channel()
    node.api("DELETE", f"users/{user}")


async def test_a_missing_queue_is_404_and_the_connection_goes_on(connection: Connection) -> None:
    channel = await connection.channel()
    with pytest.raises(NotFound, match="no queue 'missing'"):
        await channel.consume("missing", prefetch=1)
    with pytest.raises(NotFound):
        await channel.inspect_queue("other")
    assert await (await connection.channel()).declare_queue("q") == "q"


async def test_a_queue_exclusive_to_another_connection_is_405(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("mine", exclusive=True, durable=False)
    async with connected(vhost.url) as other:
        with pytest.raises(ResourceLocked):
            await (await other.channel()).inspect_queue("mine")
        await other.channel()


async def test_other_arguments_than_declared_are_406_and_the_connection_goes_on(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    with pytest.raises(PreconditionFailed, match="inequivalent arg"):
        await channel.declare_queue("q", arguments={"x-max-length": 5})
    await connection.channel()


async def test_a_foreign_user_id_is_406_and_leaves_the_publish_unanswered(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    publisher = await (await connection.channel()).publisher()
    foreign = Properties.empty().with_text("user_id", "someone").raw
    with pytest.raises(PreconditionFailed, match="user_id"):
        await soon(publisher.send(Publish("", "q", foreign, b"")))
    assert (publisher.closed, len(publisher.unanswered)) == (True, 1)


async def test_an_exchange_that_is_missing_closes_the_publishing_channel_with_404(
    connection: Connection,
) -> None:
    publisher = await (await connection.channel()).publisher()
    with pytest.raises(NotFound, match="no exchange"):
        await soon(publisher.send(Publish("missing", "k", PLAIN, b"")))
    with pytest.raises(NotFound):
        publisher.publish(Publish("", "q", PLAIN, b""))
    await connection.channel()


async def test_an_ack_on_a_channel_that_was_closed_does_not_settle_anothers_message(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [b"one"])
    old = await connection.channel()
    with pytest.raises(NotFound):
        await old.inspect_queue("missing")
    new = await connection.channel()
    assert new.number == old.number
    got = await new.get("q")
    assert got is not None
    with pytest.raises(NotFound):
        old.ack(got.tag)
    await new.close()
    again = await eventually_async(lambda: channel.get("q"))
    assert again is not None
    assert again.body == b"one"


async def test_the_brokers_own_cancel_ends_the_consumer(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    consumer = await (await connection.channel()).consume("q", prefetch=1)
    waiting = asyncio.ensure_future(consumer.next_batch())
    await channel.delete_queue("q")
    with pytest.raises(ConsumerCancelled):
        await soon(waiting)


async def test_a_channel_is_closed_in_good_order_and_its_number_used_again(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [b"x"])
    other = await connection.channel()
    consumer = await other.consume("q", prefetch=1)
    await take(consumer, 1)
    await other.close()
    await other.close()
    again = await connection.channel()
    assert again.number == other.number
    (delivery,) = await take(await again.consume("q", prefetch=1), 1)
    assert delivery.redelivered


async def test_hundreds_of_channels_are_open_at_once(connection: Connection) -> None:
    channels = await asyncio.gather(*(connection.channel() for _ in range(300)))
    assert len({each.number for each in channels}) == 300


# -- losing it -----------------------------------------------------------------------------------


async def test_an_orderly_close_is_seen_as_such(vhost: Vhost) -> None:
    async with connected(vhost.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", exclusive=True)
    why = await connection.lost()
    assert type(why) is ConnectionLost
    assert "by its owner" in str(why)
    await connection.close()


async def test_what_was_written_goes_out_before_an_orderly_close(
    vhost: Vhost, channel: Channel
) -> None:
    await channel.declare_queue("q")
    async with connected(vhost.url) as connection:
        publisher = await (await connection.channel()).publisher()
        for _ in range(50):
            publisher.publish(Publish("", "q", PLAIN, bytes(10_000)))
    await eventually_async(lambda: _length_is(channel, "q", 50))


async def test_a_close_by_an_operator_is_quoted(vhost: Vhost) -> None:
    async with connected(vhost.url, vhost.name) as connection:

        def close() -> bool:
            for each in vhost.node.api("GET", f"vhosts/{vhost.name}/connections"):
                vhost.node.api("DELETE", f"connections/{quote(each['name'])}")
                return True
            return False

        await eventually_async(lambda: asyncio.to_thread(close), within=15)
        why = await soon(connection.lost())
        assert isinstance(why, ConnectionClosed)
        assert why.code == 320


async def test_a_silent_network_is_noticed_by_heartbeats(vhost: Vhost, proxy: NewProxy) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    async with connected(f"{way.through(vhost.url)}?heartbeat=1") as connection:
        consumer = await _consuming(connection)
        way.half_open()
        with pytest.raises(ConnectionLost, match="silent for 2 s"):
            await soon(consumer.next_batch())
        way.cut()


async def test_an_idle_connection_lives_on_heartbeats(vhost: Vhost, proxy: NewProxy) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    way.recording = True
    async with connected(f"{way.through(vhost.url)}?heartbeat=1") as connection:
        await connection.channel()
        (seen,) = way.connections
        heartbeat = b"\x08\x00\x00\x00\x00\x00\x00\xce"
        await eventually_async(
            lambda: seen.sent.count(heartbeat) >= 5 and seen.received.count(heartbeat) >= 3
        )
        assert connection.is_open


async def _consuming(connection: Connection) -> Consumer:
    channel = await connection.channel()
    await channel.declare_queue("q")
    return await channel.consume("q", prefetch=10)


async def test_a_cut_ends_every_call_with_a_typed_error(vhost: Vhost, proxy: NewProxy) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    connection = await connect(parse_addresses(way.through(vhost.url)), name="test")
    consumer = await _consuming(connection)
    channel = await connection.channel()
    publisher = await (await connection.channel()).publisher()
    way.half_open()
    calls = [
        asyncio.ensure_future(each)
        for each in (
            consumer.next_batch(),
            consumer.cancel(),
            channel.declare_queue("other"),
            channel.get("q"),
            channel.close(),
            publisher.send(Publish("", "q", PLAIN, b"")),
            publisher.next_outcomes(),
            connection.channel(),
            connection.lost(),
        )
    ]
    await eventually_async(lambda: len(publisher.unanswered) == 1)
    way.cut()
    *heard, why = await soon_all(calls)
    assert isinstance(why, ConnectionLost)
    assert [each for each in heard if not isinstance(each, BrokerError)] in ([], [[]])
    for late in (connection.channel, publisher.ready, channel.open, consumer.next_batch):
        with pytest.raises(BrokerError):
            await late()
    await connection.close()


async def soon_all(calls: Sequence[asyncio.Future[Any]]) -> list[object]:
    async with asyncio.timeout(SOON):
        return list(await asyncio.gather(*calls, return_exceptions=True))


@pytest.mark.parametrize("received", [0, 1, 8, 300, 480, 520])
async def test_a_reset_at_any_point_of_the_handshake_is_a_typed_error(
    vhost: Vhost, proxy: NewProxy, received: int
) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    way.cut_after(received=received)
    with pytest.raises(CannotConnect):
        await connect(parse_addresses(way.through(vhost.url)), name="test")


async def test_a_cut_at_any_point_of_a_conversation_is_a_typed_error(
    vhost: Vhost, proxy: NewProxy, channel: Channel
) -> None:
    await channel.declare_queue("q", arguments={"x-queue-type": "quorum"})
    way = await proxy("127.0.0.1", vhost.node.port)
    dice = random.Random(3)
    lost = 0
    for _ in range(25):
        way.cut_after(sent=dice.randrange(1, 30_000))
        try:
            async with asyncio.timeout(SOON), connected(way.through(vhost.url)) as connection:
                await fill(connection, "q", [bytes(1000)] * 40)
        except RedriveError:
            lost += 1
    assert lost > 10


async def test_a_broker_that_dies_is_a_lost_connection(own_node: OwnNode) -> None:
    node = await asyncio.to_thread(own_node)
    connection = await connect(parse_addresses(node.url()), name="test")
    consumer = await _consuming(connection)
    node.kill()
    with pytest.raises(ConnectionLost):
        await soon(consumer.next_batch())


# -- back-pressure -------------------------------------------------------------------------------


async def test_a_slow_consumer_is_sent_no_more_than_its_budget_and_then_goes_on(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [bytes(MIB)] * 60)
    async with connected(vhost.url) as reader:
        consumer = await (await reader.channel()).consume("q", prefetch=1000, budget=8 * MIB)
        most = 0
        found = 0
        async with asyncio.timeout(60):
            while found < 60:
                batch = await consumer.next_batch()
                await asyncio.sleep(0)
                most = max(most, consumer.unsettled_bytes)
                found += len(batch)
                for each in batch:
                    consumer.ack(each)
                consumer.flush()
        assert most <= 9 * MIB + 1000


async def test_the_socket_is_left_unread_while_the_budget_is_spent(
    vhost: Vhost, proxy: NewProxy, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [bytes(MIB)] * 60)
    way = await proxy("127.0.0.1", vhost.node.port)
    async with connected(way.through(vhost.url)) as reader:
        consumer = await (await reader.channel()).consume("q", prefetch=1000, budget=4 * MIB)
        held = await take(consumer, 4)
        (seen,) = way.connections
        await _settled(lambda: sum(seen.count.values()))
        assert consumer.unsettled_bytes <= 5 * MIB + 1000
        for each in held:
            consumer.ack(each)
        consumer.flush()
        assert await take(consumer, 4)


async def _settled(value: Callable[[], int]) -> None:
    """Wait until a number stands still for half a second: nothing can be waited for but that."""
    loop = asyncio.get_running_loop()
    last, since = value(), loop.time()

    def still() -> bool:
        nonlocal last, since
        if value() != last:
            last, since = value(), loop.time()
        return loop.time() - since > 0.5

    await eventually_async(still, within=30)


async def test_a_consumer_that_is_paused_can_be_cancelled(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [bytes(MIB)] * 40)
    async with connected(vhost.url) as reader:
        consumer = await (await reader.channel()).consume("q", prefetch=1000, budget=2 * MIB)
        held = await take(consumer, 2)
        await soon(consumer.cancel())
        while batch := await consumer.next_batch():
            held += batch
        for each in held:
            consumer.ack(each)
        consumer.flush()
        await eventually_async(lambda: _length_is(channel, "q", 40 - len(held)))


async def test_a_paused_connection_outlives_its_heartbeats(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [bytes(MIB)] * 20)
    async with connected(f"{vhost.url}?heartbeat=1") as reader:
        consumer = await (await reader.channel()).consume("q", prefetch=1000, budget=2 * MIB)
        held = await take(consumer, 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.lost(), 4)
        for each in held:
            consumer.ack(each)
        consumer.flush()
        assert await take(consumer, 2)


async def test_a_blocked_broker_is_seen_and_publishers_wait_until_it_is_not(
    tls: TlsBroker,
) -> None:
    node = tls.node  # not the run's own broker, which others use
    async with connected(node.url()) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q")
        publisher = await (await connection.channel()).publisher()
        assert await publisher.send(Publish("", "q", PLAIN, b"before")) == Confirmed()
        await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0")
        publisher.publish(Publish("", "q", PLAIN, b"while"))  # the broker tells those who publish
        await eventually_async(lambda: connection.blocked is not None)
        assert "memory" in str(connection.blocked)
        ready = asyncio.ensure_future(publisher.ready())
        await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.4")
        await soon(ready)
        assert connection.blocked is None
        assert [type(outcome) for _, outcome in await _outcomes(publisher, 1)] == [Confirmed]


async def test_a_socket_that_takes_nothing_makes_publishers_wait(
    vhost: Vhost, proxy: NewProxy, channel: Channel
) -> None:
    await channel.declare_queue("q")
    way = await proxy("127.0.0.1", vhost.node.port)
    async with connected(way.through(vhost.url)) as connection:
        publisher = await (await connection.channel()).publisher()
        way.half_open()
        sent = 0

        async def publish_all() -> None:
            nonlocal sent
            while sent < 200:
                await publisher.ready()
                publisher.publish(Publish("", "q", PLAIN, bytes(MIB)))
                sent += 1
                await asyncio.sleep(0)

        publishing = asyncio.ensure_future(publish_all())
        await _settled(lambda: sent)
        publishing.cancel()
        assert sent < 60
        way.flow()
        assert len(await _outcomes(publisher, sent)) == sent


# -- what a broker does to headers ---------------------------------------------------------------


async def test_whatever_the_broker_makes_of_headers_in_a_return_keeps_their_normal_form(
    vhost: Vhost, proxy: NewProxy
) -> None:
    """Seen through the recording proxy, since a return reaches its publisher only as an outcome."""
    way = await proxy("127.0.0.1", vhost.node.port)
    way.recording = True
    async with connected(way.through(vhost.url)) as connection:
        publisher = await (await connection.channel()).publisher()
        sent: Counter[object] = Counter()
        for number, field in enumerate([*FIELDS, *FIELDS]):
            entries = [(b"z", field), (b"BCC", sized(b"A", sized(b"S", b"x"))), (b"a", b"V")]
            if number >= len(FIELDS):
                entries += [(b"z", b"V")]
            inside = inside_of(entries)
            raw = b"\x20\x00" + struct.pack(">I", len(inside)) + inside
            sent[Properties.read(raw).normal_form()] += 1
            publisher.publish(Publish("", f"nowhere.{number}", raw, b""))
        await _outcomes(publisher, 2 * len(FIELDS))
        (seen,) = way.connections
        assert Counter(_returned_forms(bytes(seen.received))) == sent


def _returned_forms(stream: bytes) -> list[object]:
    """The normal forms of every property section that came back, read from the raw bytes."""
    found = []
    position = 0
    while position < len(stream):
        kind, _, size = struct.unpack_from(">BHI", stream, position)
        if kind == 2:
            section = stream[position + 7 + 12 : position + 7 + size]
            found.append(Properties.read(section).normal_form())
        position += size + 8
    return found
