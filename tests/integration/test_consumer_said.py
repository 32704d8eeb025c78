"""What a consumer says while it works, and that what is said decides about no message."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import pytest
import structlog

from redrive import Consumer, Message, Queue
from redrive.amqp import parse_addresses
from redrive.consumer import looks
from redrive.consumer import serving as one_handler
from redrive.errors import ConnectionLost
from tests.services.collecting import is_empty
from tests.services.consuming import DEAD, QUEUE, consumed, eventually, send, serving, settings_for
from tests.services.eventually import eventually_async
from tests.services.moving import channel_to, holds
from tests.services.plugin import NewProxy, Vhost
from tests.services.retrying import retrying


async def test_a_log_that_cannot_be_written_decides_about_no_message(vhost: Vhost) -> None:
    def broken(*_: object) -> str:
        raise BrokenPipeError

    structlog.configure(processors=[broken])
    consumer = Consumer(settings=settings_for(vhost.url, "classic"))

    @consumer.handler(QUEUE, retries=0)
    async def settle(message: Message) -> None:
        raise ValueError("☃ snow")

    async with serving(consumer):
        await consumed(vhost.url)
        await send(vhost.url, "a", "b")
        await holds(vhost.url, DEAD, 2)


@pytest.mark.parametrize("how", ["cancelled", "cut"])
@pytest.mark.parametrize(
    ("first", "said"),
    [(True, "it was not published"), (False, "before the broker confirmed")],
    ids=["first", "later"],
)
async def test_who_waits_for_a_confirm_hears_that_the_consumer_has_ended(
    vhost: Vhost, proxy: NewProxy, how: str, first: bool, said: str
) -> None:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None: ...

    stopping = asyncio.Event()
    running = asyncio.create_task(consumer.serve(stopping))
    await consumer.ready()
    if not first:
        await consumer.publish("", QUEUE, b"m")
    between.half_open()
    publishing = asyncio.create_task(consumer.publish("", QUEUE, b"m"))
    await asyncio.sleep(0)
    try:
        if how == "cancelled":
            running.cancel()
        else:
            between.cut(refuse=True)
        with pytest.raises(ConnectionLost, match=said):
            await asyncio.wait_for(publishing, 30)
        with pytest.raises(ConnectionLost, match=r"has no connection|not published"):
            await consumer.publish("", QUEUE, b"m")
    finally:
        stopping.set()
        await asyncio.wait((running,), timeout=30)
    await eventually(running.done, "the end")


def events(logs: list[MutableMapping[str, Any]], event: str) -> list[MutableMapping[str, Any]]:
    return [each for each in logs if each["event"] == event]


async def test_who_stops_says_how_many_it_has_settled_and_given_back(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_handler, "_BEGIN_WITHIN", 0.2)
    consumer = Consumer(settings=settings_for(vhost.url, "classic"))
    begun: list[bytes] = []
    stopping = asyncio.Event()

    @consumer.handler(QUEUE, concurrency=2)
    async def settle(message: Message) -> None:
        begun.append(message.body)
        await stopping.wait()
        assert consumer._session is not None
        intake = consumer._session._servings[0].intake
        await eventually(lambda: not intake._begins, "that nothing more is begun with")

    with structlog.testing.capture_logs() as logs:
        running = asyncio.create_task(consumer.serve(stopping))
        await consumed(vhost.url)
        await send(vhost.url, *"abcde")
        await eventually(lambda: len(begun) == 2, "two at a time")
        await eventually_async(partial(is_empty, vhost.url, QUEUE), what="the others here too")
        stopping.set()
        await asyncio.wait_for(running, 30)
    (drained,) = events(logs, "consumer.drained")
    assert (drained["settled"], drained["given_back"]) == (2, 3)
    await holds(vhost.url, QUEUE, 3)


class Looked:
    """How often a consumer has looked for what is missing."""

    def __init__(self) -> None:
        self.times = 0

    async def twice(self) -> None:
        """The first may have been under way."""
        wanted = self.times + 2
        await eventually(lambda: self.times >= wanted, "two looks")


def looks_counted(monkeypatch: pytest.MonkeyPatch) -> Looked:
    """Have consumers look often."""
    looked, looks_at_all = Looked(), looks.Looks._for_a_retrier

    async def counted(self: looks.Looks) -> None:  # the last of a round, that of exchanges before
        await looks_at_all(self)
        looked.times += 1

    monkeypatch.setattr(looks, "_EVERY", 0.05)
    monkeypatch.setattr(looks.Looks, "_for_a_retrier", counted)
    return looked


async def test_retries_that_nobody_brings_back_are_told_once(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = looks_counted(monkeypatch)
    settings = settings_for(vhost.url, "classic", tiers="100ms,200ms")
    consumer = Consumer(settings=settings)

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        raise ValueError("no")

    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            await consumed(vhost.url)
            async with retrying(vhost.url, settings.topology, {}):
                for queue in ("retry-queue-1", "retry-queue-2"):
                    await consumed(vhost.url, queue)
                await send(vhost.url, "a")
                await holds(vhost.url, DEAD, 1)  # brought back, three times
                await looked.twice()
                assert not events(logs, "consumer.no_retrier")
            await send(vhost.url, "b", "c")
            await eventually(lambda: bool(events(logs, "consumer.no_retrier")), "the warning")
            await looked.twice()
    (told,) = events(logs, "consumer.no_retrier")
    assert told["queue"] == "retry-queue-1"


@pytest.mark.parametrize("by", ["argument", "option"])
async def test_a_dead_letter_exchange_that_is_missing_is_told_once_each_time(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    looked = looks_counted(monkeypatch)
    own = "orders.dlx"
    consumer = Consumer(settings=settings_for(vhost.url, "classic"))
    queue = (
        Queue(QUEUE, arguments={"x-dead-letter-exchange": own})
        if by == "argument"
        else Queue(QUEUE, dead_letter_exchange=own)
    )

    @consumer.handler(queue)
    async def settle(message: Message) -> None: ...

    def told() -> list[MutableMapping[str, Any]]:
        return events(logs, "consumer.no_dead_letter_exchange")

    async with channel_to(vhost.url) as channel:
        await channel.declare_exchange(own, "topic")
        with structlog.testing.capture_logs() as logs:
            async with serving(consumer):
                await consumed(vhost.url)
                for times in (1, 2):
                    await channel.delete_exchange(own)
                    await eventually(lambda: len(told()) == times, "the warning")  # noqa: B023
                    await looked.twice()
                    await channel.declare_exchange(own, "topic")
                    await looked.twice()
    assert [(each["queue"], each["exchange"]) for each in told()] == [(QUEUE, own)] * 2


async def test_of_a_queue_that_has_another_dead_letter_exchange_nothing_is_told(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = looks_counted(monkeypatch)
    consumer = Consumer(settings=settings_for(vhost.url, "classic"))
    async with channel_to(vhost.url) as channel:
        await channel.declare_queue(QUEUE, arguments={"x-dead-letter-exchange": "amq.fanout"})

    @consumer.handler(Queue(QUEUE, arguments={"x-dead-letter-exchange": "missing"}))
    async def settle(message: Message) -> None: ...

    @consumer.handler(Queue("second", arguments={"x-dead-letter-exchange": ""}))
    async def settle_second(message: Message) -> None: ...

    @consumer.handler(Queue("third", arguments={"x-dead-letter-exchange": "x" * 256}))
    async def settle_third(message: Message) -> None: ...

    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            for queue in (QUEUE, "second", "third"):
                await consumed(vhost.url, queue)
            await looked.twice()
    assert not events(logs, "consumer.no_dead_letter_exchange")


async def test_a_queue_that_is_used_as_it_is_is_told_once(vhost: Vhost, proxy: NewProxy) -> None:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))
    async with channel_to(vhost.url) as channel:
        await channel.declare_queue(QUEUE, arguments={"x-max-length": 9})

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None: ...

    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            await consumer.ready()
            between.cut()
            await eventually(lambda: bool(events(logs, "consumer.back")), "the second session")
    assert len(events(logs, "consumer.queue_used_as_it_is")) == 1


async def test_what_was_set_aside_is_told_also_by_who_ends_at_once(vhost: Vhost) -> None:
    consumer, seen = Consumer(settings=settings_for(vhost.url, "classic")), []

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        seen.append(message.body)

    async with serving(consumer):
        await consumed(vhost.url)
    await send(vhost.url, "a")
    async with channel_to(vhost.url) as channel:
        taken = await channel.get(QUEUE)
        assert taken is not None
        channel.nack(taken.tag, requeue=True)
    with structlog.testing.capture_logs() as logs:
        running = asyncio.create_task(consumer.serve(asyncio.Event()))
        await eventually(lambda: seen == [b"a"], "the message")
        running.cancel()
        await asyncio.wait((running,))
    (told,) = events(logs, "consumer.set_aside")
    assert told["messages"] == 1
