"""Queues, exchanges and bindings."""

from __future__ import annotations

import pytest

from redrive.amqp import (
    Channel,
    Confirmed,
    Connection,
    Properties,
    Publish,
    Returned,
    fields,
)
from redrive.errors import (
    NotFound,
)
from tests.services.eventually import eventually_async
from tests.services.wiring import (
    KINDS,
    PLAIN,
    fill,
    length_is,
    soon,
)


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
    await eventually_async(lambda: length_is(channel, "q", 3))
    assert await channel.purge_queue("q") == 3
    await fill(connection, "q", [b"4"])
    await eventually_async(lambda: length_is(channel, "q", 1))
    assert await channel.delete_queue("q") == 1
    with pytest.raises(NotFound):
        await channel.inspect_queue("q")


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
