"""Every way to lose a connection is a typed error."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest

from redrive.amqp import (
    Budget,
    Channel,
    Connection,
    Consumer,
    Publish,
    connect,
    parse_addresses,
)
from redrive.errors import (
    BrokerError,
    CannotConnect,
    ConnectionClosed,
    ConnectionLost,
    RedriveError,
)
from tests.services.eventually import eventually_async
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.services.wiring import (
    PLAIN,
    SOON,
    connected,
    fill,
    length_is,
    soon,
)


async def test_an_orderly_close_is_seen_as_such(vhost: Vhost) -> None:
    async with connected(vhost.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", exclusive=True)
    why = await connection.lost()
    assert type(why) is ConnectionLost
    assert "by its owner" in str(why)
    await connection.close()


async def test_a_consumer_that_is_never_made_leaves_nothing_in_its_budget(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(1000)
    async with connected(vhost.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", exclusive=True)
        call = channel.call

        async def then_lost(*request: Any, **how: Any) -> Any:
            answer = await call(*request, **how)
            connection.abort()
            return answer

        monkeypatch.setattr(channel, "call", then_lost)
        with pytest.raises(ConnectionLost):
            await channel.consume("q", prefetch=1, budget=budget)
    budget.join(Nobody())
    assert budget.share == budget.size


class Nobody:
    """A member of a budget that reads nothing."""

    def weigh(self) -> None:
        raise AssertionError("nothing was spent")


async def test_what_was_written_goes_out_before_an_orderly_close(
    vhost: Vhost, channel: Channel
) -> None:
    await channel.declare_queue("q")
    async with connected(vhost.url) as connection:
        publisher = await (await connection.channel()).publisher()
        for _ in range(50):
            publisher.publish(Publish("", "q", PLAIN, bytes(10_000)))
    await eventually_async(lambda: length_is(channel, "q", 50))


async def test_a_close_by_an_operator_is_quoted(vhost: Vhost) -> None:
    async with connected(vhost.url, vhost.name) as connection:

        def close() -> bool:
            for each in vhost.node.api("GET", f"vhosts/{vhost.name}/connections"):
                vhost.node.api("DELETE", f"connections/{quote(each['name'])}")
                return True
            return False

        await eventually_async(lambda: asyncio.to_thread(close))
        why = await soon(connection.lost())
        assert isinstance(why, ConnectionClosed)
        assert why.code == 320


async def test_a_silent_network_is_noticed_by_heartbeats(vhost: Vhost, proxy: NewProxy) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    async with connected(f"{way.through(vhost.url)}?heartbeat=3") as connection:
        consumer = await _consuming(connection)
        way.half_open()
        with pytest.raises(ConnectionLost, match="silent for 6 s"):
            await soon(consumer.next_batch())
        way.cut()


async def test_an_idle_connection_lives_on_heartbeats(vhost: Vhost, proxy: NewProxy) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    way.recording = True
    async with connected(f"{way.through(vhost.url)}?heartbeat=3") as connection:
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
