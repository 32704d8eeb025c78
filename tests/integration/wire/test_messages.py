"""Messages in and out."""

from __future__ import annotations

import asyncio
import random

import pytest

from redrive.amqp import (
    Channel,
    Confirmed,
    Connection,
    Properties,
    Publish,
    Refused,
    fields,
)
from redrive.amqp import consumer as consumer_module
from redrive.errors import (
    Unpublishable,
)
from tests.services.eventually import eventually_async
from tests.services.plugin import Vhost
from tests.services.wiring import (
    KINDS,
    PLAIN,
    connected,
    fill,
    length_is,
    soon,
    take,
)


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


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_a_consumer_settles_in_transactions_is_in_force_at_once(
    vhost: Vhost, channel: Channel, kind: str
) -> None:
    await channel.declare_queue("q", arguments={"x-queue-type": kind})
    async with connected(vhost.url) as connection:
        await fill(connection, "q", [b"acked", b"held", b"acked too", b"rejected", b"requeued"])
        transacting = await connection.channel()
        await transacting.transact()
        consumer = await transacting.consume("q", prefetch=5)
        acked, held, acked_too, rejected, requeued = await take(consumer, 5)
        consumer.hold(held)
        consumer.ack(acked, acked_too)
        consumer.flush()
        consumer.reject(rejected)
        assert await transacting.inspect_queue("q") == (0, 1)  # no commit's answer for a call's
        consumer.requeue(requeued)
        (again,) = await take(consumer, 1)
        assert (again.body, again.redelivered) == (b"requeued", True)
        consumer.ack(again)
        await consumer.cancel()
        await consumer.give_back()
        await eventually_async(lambda: length_is(channel, "q", 1))
    # What had not been committed would be back by now.
    back = await channel.get("q")
    assert back is not None
    assert (back.body, await channel.get("q")) == (b"held", None)


async def test_what_nobody_read_goes_back_in_transactions_too(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q")
    await fill(connection, "q", [b"1", b"2", b"3"])
    transacting = await connection.channel()
    await transacting.transact()
    consumer = await transacting.consume("q", prefetch=3)
    await eventually_async(lambda: length_is(channel, "q", 0))
    await consumer.cancel()
    consumer.return_everything()
    await eventually_async(lambda: length_is(channel, "q", 3))


async def test_a_call_after_a_cancel_that_nobody_waits_for_any_more_gets_its_own_answer(
    connection: Connection, channel: Channel
) -> None:
    """The broker may answer it before the cancel."""
    await channel.declare_queue("q")
    for _ in range(20):
        consuming = await connection.channel()
        consumer = await consuming.consume("q", prefetch=1)
        given_up = asyncio.create_task(consumer.cancel())
        await asyncio.sleep(0)
        given_up.cancel()
        assert (await consuming.inspect_queue("q"))[0] == 0
        await consumer.cancel()
        assert await consuming.inspect_queue("q") == (0, 0)
        await consuming.close()


async def test_a_consumer_acks_nothing_by_itself_before_it_is_cancelled(
    connection: Connection, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner has seen that nothing is on its way: an ack would let another message come."""
    await channel.declare_queue("q")
    await fill(connection, "q", [b"0", b"1", b"2", b"3"])
    consuming = await connection.channel()
    consumer = await consuming.consume("q", prefetch=3)
    _, second, third = await take(consumer, 3)
    monkeypatch.setattr(consumer_module, "_STRAGGLERS_AFTER", 0.0)
    consumer._settlement._most = 3  # all may wait for the gap to close
    said, cancel = [], consuming.cancel

    async def late(tag: str, **named: bool) -> None:
        for _ in range(10):  # more turns of the loop than two looks at stragglers take
            await asyncio.sleep(0)
        said.append(consumer.unanswered)
        await cancel(tag, **named)

    monkeypatch.setattr(consuming, "cancel", late)
    consumer.ack(second, third)
    consumer.flush()
    await consumer.cancel()
    assert said == [3]
    assert await channel.inspect_queue("q") == (1, 0)
    await eventually_async(lambda: consumer.unanswered == 1)


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
