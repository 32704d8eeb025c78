"""Handlers of one consumer that do not disturb each other: one whose queue cannot be used, or goes
away, waits by itself; and whatever ends, ends with each message there once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from redrive import Consumer, Message, Queue
from redrive.amqp import Consumer as AmqpConsumer
from redrive.amqp import Properties, Publish, parse_addresses, strain, supervision
from redrive.broker.own_queues import AGAIN, ALONE
from redrive.consumer import serving as serving_module
from redrive.consumer import session, telling
from redrive.consumer.queues import Declaring
from redrive.settings import Settings
from tests.services.consuming import (
    DEAD,
    QUEUE,
    consumed,
    eventually,
    send,
    serving,
    settings_for,
)
from tests.services.moving import (
    channel_to,
    declare,
    empty,
    holds,
    identities,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import Proxy

OTHER = "other"
MANY = [str(number) for number in range(60)]
NOT_USABLE = {
    "missing": Queue(OTHER, declare=False),
    "refused": Queue(OTHER, arguments={"x-max-length": "many"}),
}


@pytest.fixture
def settings(vhost: Vhost) -> Settings:
    return settings_for(vhost.url, "classic")


def waits_of(logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == "consumer.handler_waits"]


async def left_by_a_process(url: str, *names: str) -> None:
    """Have messages in the queue that come with the redelivered flag."""
    await declare(url, QUEUE, "classic")
    await send(url, *names)
    async with channel_to(url) as channel:
        for _ in names:
            assert await channel.get(QUEUE) is not None
    await holds(url, QUEUE, len(names))


@pytest.mark.parametrize("why", NOT_USABLE)
async def test_a_handler_whose_queue_cannot_be_used_waits_and_disturbs_no_other(
    vhost: Vhost, settings: Settings, why: str
) -> None:
    await left_by_a_process(vhost.url, *MANY)
    consumer, began, ended = Consumer(settings=settings), Counter[bytes](), Counter[bytes]()

    @consumer.handler(Queue(QUEUE, ttl=None))
    async def good(message: Message) -> None:
        began[message.body] += 1
        await asyncio.sleep(0.3)
        ended[message.body] += 1

    @consumer.handler(NOT_USABLE[why])
    async def bad(message: Message) -> None:
        ended[message.body] += 1

    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            await eventually(lambda: len(ended) == len(MANY), "all of the other's")
            await eventually(lambda: waits_of(logs), "who waits")
            assert not consumer._ready.is_set()
            await declare(vhost.url, OTHER, "classic")
            await consumed(vhost.url, OTHER)
            await send(vhost.url, "at last", queue=OTHER)
            await eventually(lambda: ended[b"at last"], "its first message")
            await asyncio.wait_for(consumer.ready(), 30)
    assert set(began.values()) == set(ended.values()) == {1}
    for queue in (QUEUE, f"{AGAIN}{QUEUE}", f"{ALONE}{QUEUE}", DEAD):
        assert await ready(vhost.url, queue) == 0
    (told,) = waits_of(logs)  # at every try would be too often
    assert (told["handler"], told["queue"]) == ("bad", OTHER)
    assert told["error"]
    assert told["remedy"]
    assert not [line for line in logs if line["event"] == "consumer.lost"]


async def test_a_handler_that_waits_is_told_of_now_and_then(
    vhost: Vhost, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_AGAIN_AFTER", 0.5)
    consumer = Consumer(settings=settings)

    @consumer.handler(NOT_USABLE["missing"])
    async def bad(message: Message) -> None: ...

    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            await eventually(lambda: len(waits_of(logs)) == 2, "the second line")
    # With waits of 0.2, 0.4, 0.8 seconds at most, there were more tries than lines.
    assert waits_of(logs)[1]["retry_in_s"] > 0.2


async def test_a_queue_that_is_deleted_stops_its_own_handler_and_lets_end_what_runs(
    vhost: Vhost, settings: Settings
) -> None:
    consumer, began, ended = Consumer(settings=settings), Counter[bytes](), Counter[bytes]()
    may_end = asyncio.Event()

    async def slow(message: Message) -> None:
        began[message.body] += 1
        await may_end.wait()
        ended[message.body] += 1

    consumer.handler(QUEUE)(slow)
    consumer.handler(OTHER)(slow)
    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            await asyncio.wait_for(consumer.ready(), 30)
            await send(vhost.url, *"abc")
            await send(vhost.url, *"xyz", queue=OTHER)
            await eventually(lambda: len(began) == 6, "all of them at a time")
            assert consumer._session is not None
            servings = consumer._session._servings
            (other,) = [each for each in servings if each._registered.queue.name == OTHER]
            async with channel_to(vhost.url) as channel:
                await channel.delete_queue(OTHER)
            await eventually(other._stopping.is_set, "its end")
            await asyncio.sleep(0.5)  # in which nobody's handler is cut off
            may_end.set()
            await eventually(lambda: len(ended) == 6, "the end of all")
            await consumed(vhost.url, OTHER)  # declared anew
            await send(vhost.url, "again", queue=OTHER)
            await eventually(lambda: ended[b"again"], "the next one")
    assert set(began.values()) == set(ended.values()) == {1}
    assert [line["handler"] for line in waits_of(logs)] == ["slow"]


@pytest.mark.parametrize("hurries", [False, True])
async def test_a_consumer_that_should_stop_does_not_wait_for_a_handler_that_is_being_opened(
    vhost: Vhost, settings: Settings, monkeypatch: pytest.MonkeyPatch, hurries: bool
) -> None:
    consumer, stopping, opens = Consumer(settings=settings), asyncio.Event(), asyncio.Event()

    @consumer.handler(QUEUE)
    async def good(message: Message) -> None: ...

    @consumer.handler(Queue(OTHER, declare=False))
    async def slow(message: Message) -> None: ...

    async def never_answered(_: Declaring, __: str) -> None:
        """As of a quorum queue without a leader, for a minute."""
        opens.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Declaring, "_must_exist", never_answered)
    monkeypatch.setattr(supervision, "_GRACE", 60.0)  # it is not ended by force
    if hurries:
        monkeypatch.setattr(session, "_OPENED_WITHIN", 60.0)
    running = asyncio.create_task(consumer.serve(stopping))
    await consumed(vhost.url)
    await asyncio.wait_for(opens.wait(), 30)
    stopping.set()
    if hurries:
        assert consumer._session is not None
        consumer._session.hurry()
    await asyncio.wait_for(running, 30)


async def its_queue_is_deleted(url: str, between: Proxy) -> None:
    async with channel_to(url) as channel:
        await channel.delete_queue(f"{ALONE}{QUEUE}")


async def the_broker_is_asked_in_vain(url: str, between: Proxy) -> None:
    between.connections[2].cut()  # on which queues are declared and looked at


Ends = Callable[[str, Proxy], Awaitable[None]]


@pytest.mark.parametrize("ends", [its_queue_is_deleted, the_broker_is_asked_in_vain])
async def test_what_failed_is_dead_and_not_in_its_queue_as_well_whatever_ends_the_handler(
    vhost: Vhost, proxy: NewProxy, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or a busy machine does not have the confirm read in time.
    monkeypatch.setattr(serving_module, "_SETTLED_WITHIN", 8.0)
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))
    began: list[bytes] = []

    @consumer.handler(QUEUE, retries=0)
    async def settle(message: Message) -> None:
        began.append(message.body)
        between.connections[1].answers.clear()  # the confirm of its copy
        raise ValueError("no")

    async with serving(consumer):
        await asyncio.wait_for(consumer.ready(), 30)
        assert consumer._session is not None
        serves = consumer._session._servings[0]
        await send(vhost.url, "fails")
        await holds(vhost.url, DEAD, 1)
        await ends(vhost.url, between)
        await eventually(lambda: serves._ends or serves._stopping.is_set(), "its end")
        between.connections[1].answers.set()
        await eventually(lambda: not consumer._ready.is_set(), "the end of it")
        await asyncio.wait_for(consumer.ready(), 30)
    assert began == [b"fails"]
    assert await ready(vhost.url, QUEUE) == await ready(vhost.url, f"{AGAIN}{QUEUE}") == 0
    assert identities(await take_all(vhost.url, DEAD)) == ["fails"]


async def test_what_the_broker_has_taken_back_is_not_copied(
    vhost: Vhost, settings: Settings
) -> None:
    consumer, began, may_end = Consumer(settings=settings), [], asyncio.Event()

    @consumer.handler(QUEUE, retries=0)
    async def settle(message: Message) -> None:
        began.append(message.body)
        await may_end.wait()
        raise ValueError("no")

    async with serving(consumer):
        await asyncio.wait_for(consumer.ready(), 30)
        await send(vhost.url, "fails")
        await eventually(lambda: began, "its beginning")
        assert consumer._session is not None
        source = consumer._session._servings[0].intake._own.consumer
        source._channel.ack(1000)  # as a broker does with one that takes too long: 406
        await eventually(lambda: source._closed, "the end of the channel")
        may_end.set()
        await eventually(lambda: len(began) == 2, "its second time")
        await holds(vhost.url, DEAD, 1)
    assert identities(await take_all(vhost.url, DEAD)) == ["fails"]


async def test_a_handler_that_may_not_consume_has_no_more_read_of_the_others_than_their_budget(
    vhost: Vhost, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its tries asks the broker, whose answer lies behind all messages on their way."""
    monkeypatch.setattr(strain, "LOOK_EVERY", 60.0)  # nor is the prefetch lowered meanwhile
    few = settings.broker.model_copy(update={"in_flight": 4_000_000})
    consumer = Consumer(settings=settings.model_copy(update={"broker": few}))
    release = asyncio.Event()

    @consumer.handler(Queue(QUEUE, ttl=None), concurrency=1)
    async def slow(message: Message) -> None:
        await release.wait()

    @consumer.handler(Queue(OTHER, declare=False))
    async def other(message: Message) -> None: ...

    def sources() -> list[AmqpConsumer]:
        assert consumer._session is not None
        return [each.intake._own.consumer for each in consumer._session._servings]

    def held() -> int:
        return sum(each.unsettled_bytes for each in sources())

    def is_full() -> bool:
        return any(each._channel.wire.is_held_back for each in sources())

    await declare(vhost.url, QUEUE, "classic")
    large = Publish("", QUEUE, Properties.empty().persistent().raw, bytes(500_000))
    await publish(vhost.url, [large] * 120)
    with structlog.testing.capture_logs() as logs:
        async with channel_to(vhost.url) as taken, serving(consumer):
            await eventually(lambda: waits_of(logs) and is_full(), "one serves, one waits")
            before = -1
            while held() != before:
                before = held()
                await asyncio.sleep(0.5)
            await declare(vhost.url, OTHER, "classic")
            await taken.consume(OTHER, prefetch=1, exclusive=True)
            await asyncio.sleep(4)  # it is tried again some times
            after = held()
            release.set()
    assert after == before


async def test_a_handler_that_swallows_the_end_of_a_session_begins_with_no_other_message(
    vhost: Vhost, proxy: NewProxy
) -> None:
    """What it has is void by then, and comes again."""
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    await declare(vhost.url, QUEUE, "classic")
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))
    began: Counter[str] = Counter()

    @consumer.handler(Queue(QUEUE, ttl=None), concurrency=1)
    async def swallows(message: Message) -> None:
        began[str(message.message_id)] += 1
        if len(began) == 1 and began.total() == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.sleep(0.01)

    async with serving(consumer):
        await consumer.ready()
        await send(vhost.url, *MANY)
        await eventually(lambda: began, "the first")
        await empty(vhost.url, QUEUE)
        between.connections[0].cut()
        await eventually(lambda: len(began) == len(MANY), "all")
    assert sum(times > 1 for times in began.values()) == 1
