"""What the broker refuses becomes a typed error, and the connection goes on."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from redrive.amqp import (
    Channel,
    Connection,
    Properties,
    Publish,
)
from redrive.errors import (
    AccessRefused,
    ConsumerCancelled,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from tests.services.eventually import eventually_async
from tests.services.plugin import Vhost
from tests.services.wiring import (
    PLAIN,
    connected,
    fill,
    soon,
    take,
)


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
