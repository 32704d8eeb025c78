"""A slow owner, a slow broker, a blocked one: memory stays bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive.amqp import (
    Budget,
    Channel,
    Confirmed,
    Connection,
    Publish,
)
from tests.services.eventually import eventually_async
from tests.services.plugin import NewProxy, Vhost
from tests.services.wiring import (
    MIB,
    PLAIN,
    TlsBroker,
    connected,
    fill,
    length_is,
    outcomes_of,
    soon,
    take,
)


async def test_a_slow_consumer_is_sent_no_more_than_its_budget_and_then_goes_on(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [bytes(MIB)] * 60)
    async with connected(vhost.url) as reader:
        consumer = await (await reader.channel()).consume(
            "q", prefetch=1000, budget=Budget(8 * MIB)
        )
        await _settled(lambda: consumer.unsettled_bytes)  # it is slow: all that may come has come
        most = consumer.unsettled_bytes
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
        consumer = await (await reader.channel()).consume(
            "q", prefetch=1000, budget=Budget(4 * MIB)
        )
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

    await eventually_async(still)


async def test_a_consumer_that_is_paused_can_be_cancelled(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [bytes(MIB)] * 40)
    async with connected(vhost.url) as reader:
        consumer = await (await reader.channel()).consume(
            "q", prefetch=1000, budget=Budget(2 * MIB)
        )
        held = await take(consumer, 2)
        await soon(consumer.cancel())
        while batch := await consumer.next_batch():
            held += batch
        for each in held:
            consumer.ack(each)
        consumer.flush()
        await eventually_async(lambda: length_is(channel, "q", 40 - len(held)))


async def test_a_paused_connection_outlives_its_heartbeats(
    vhost: Vhost, connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [bytes(MIB)] * 20)
    async with connected(f"{vhost.url}?heartbeat=1") as reader:
        consumer = await (await reader.channel()).consume(
            "q", prefetch=1000, budget=Budget(2 * MIB)
        )
        held = await take(consumer, 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.lost(), 4)
        for each in held:
            consumer.ack(each)
        consumer.flush()
        assert await take(consumer, 2)


ALARMS = {
    "memory": ("set_vm_memory_high_watermark", "0", "0.4"),
    "disk": ("set_disk_free_limit", str(10**18), str(50 * 10**6)),
}


@pytest.mark.parametrize("scarce", ALARMS)
async def test_a_blocked_broker_is_seen_and_publishers_wait_until_it_is_not(
    tls: TlsBroker, scarce: str
) -> None:
    command, too_little, enough = ALARMS[scarce]
    node = tls.node  # not the run's own broker, which others use
    async with connected(node.url()) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q")
        publisher = await (await connection.channel()).publisher()
        assert await publisher.send(Publish("", "q", PLAIN, b"before")) == Confirmed()
        await asyncio.to_thread(node.ctl, command, too_little)
        try:
            publisher.publish(Publish("", "q", PLAIN, b"while"))  # it tells those who publish
            await eventually_async(lambda: connection.blocked is not None)
            assert scarce in str(connection.blocked)
            ready = asyncio.ensure_future(publisher.ready())
            then: list[str | None] = []
            ready.add_done_callback(lambda _: then.append(connection.blocked))
        finally:
            await asyncio.to_thread(node.ctl, command, enough)
        await soon(ready)
        assert then == [None]
        assert [type(outcome) for _, outcome in await outcomes_of(publisher, 1)] == [Confirmed]


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
        assert len(await outcomes_of(publisher, sent)) == sent
