"""The consumer SDK against messages and handlers that mean it no good."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from functools import partial

import pytest

from redrive import Consumer, Message, Queue, RetryAfter
from redrive.amqp import Properties, Publish, fields, parse_addresses
from redrive.consumer import alone, session
from redrive.consumer import serving as serving_module
from redrive.consumer.gate import Gate
from redrive.domain import headers
from redrive.settings import Settings
from tests.services.collecting import is_empty
from tests.services.consuming import (
    DEAD,
    QUEUE,
    consumed,
    eventually,
    send,
    serving,
    settings_for,
)
from tests.services.eventually import eventually_async
from tests.services.moving import channel_to, declare, holds, publish, ready, take_all
from tests.services.plugin import NewProxy, Vhost

HERE = {headers.QUEUE: fields.longstr(QUEUE)}


@pytest.fixture
def settings(vhost: Vhost) -> Settings:
    return settings_for(vhost.url, "classic")


def message(put: dict[str, bytes], body: bytes = b"m", queue: str = QUEUE) -> Publish:
    return Publish("", queue, Properties.empty().with_headers(put).persistent().raw, body)


async def test_no_header_of_a_message_ends_the_consumer(vhost: Vhost, settings: Settings) -> None:
    consumer, seen = Consumer(settings=settings), []

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"later":
            raise RetryAfter("1h", counts=False)
        if message.body == b"fails":
            raise ValueError

    a_time, too_many = fields.timestamp(datetime.now(UTC)), fields.int64(2**40)
    forged = [
        message({headers.LETTER: fields.longstr("l"), headers.GENERATION: a_time}, b"handled"),
        message({**HERE, headers.ATTEMPT: too_many}, b"later"),
        message({**HERE, headers.ATTEMPT: too_many, headers.CRASHES: too_many}, b"fails"),
    ]
    async with serving(consumer):
        await consumed(vhost.url)
        await publish(vhost.url, forged)
        await eventually(lambda: len(seen) == len(forged), "the forged ones")
        await asyncio.sleep(0.5)
        await send(vhost.url, "after")
        await eventually(lambda: seen[-1] == b"after", "one after them")
    assert len(seen) == len(forged) + 1


async def test_a_consumer_holds_no_more_than_its_budget_however_long_it_waits(
    vhost: Vhost, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "_LOOK_EVERY", 0.05)
    budget, size = 2_000_000, 100_000
    held = settings.broker.model_copy(update={"in_flight": budget})
    consumer = Consumer(settings=settings.model_copy(update={"broker": held}))
    release, seen = asyncio.Event(), []

    @consumer.handler(QUEUE, concurrency=1)
    async def settle(message: Message) -> None:
        await release.wait()
        seen.append(len(message.body))

    async with serving(consumer):
        await consumed(vhost.url)
        await publish(vhost.url, [message({}, bytes(size))] * 150)
        await asyncio.sleep(3)  # sixty looks at the queue beside
        serves = consumer._session
        assert serves is not None
        # What one read of the socket brought is beyond the budget, and no more.
        assert serves._servings[0].intake._own.consumer.unsettled_bytes < 2 * budget
        release.set()
        await eventually(lambda: len(seen) == 150, "all of them")


async def test_a_stop_is_no_crash_of_what_is_handled_alone(
    vhost: Vhost, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_BEGIN_WITHIN", 0.2)
    monkeypatch.setattr(serving_module, "_END_WITHIN", 0.4)
    beside = f"redrive-alone-{QUEUE}"
    seen: list[bytes] = []

    async def settle(message: Message) -> None:
        seen.append(message.body)
        if len(seen) < 3:
            await asyncio.sleep(60)

    async def starts(begun: int) -> None:
        consumer = Consumer(settings=settings)
        consumer.handler(QUEUE, retries=0)(settle)
        async with serving(consumer):
            await consumed(vhost.url)
            await eventually(lambda: len(seen) == begun, f"start {begun}")

    await starts(0)
    await publish(vhost.url, [message({}, b"long", beside)])
    for begun in (1, 2, 3):
        await starts(begun)
    assert await ready(vhost.url, beside) == await ready(vhost.url, DEAD) == 0


async def test_a_consumer_ends_in_time_although_the_broker_has_fallen_silent(
    vhost: Vhost, proxy: NewProxy
) -> None:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))
    beside, seen = f"redrive-alone-{QUEUE}", []

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        await asyncio.sleep(60)

    async with serving(consumer):
        await consumed(vhost.url)
        await publish(vhost.url, [message({}, b"alone", beside)])
        await eventually(lambda: seen == [b"alone"], "the one that is handled alone")
        between.half_open()
    between.cut()
    await holds(vhost.url, beside, 1)


async def test_what_is_on_its_way_to_a_consumer_that_stops_is_handled(
    vhost: Vhost, proxy: NewProxy
) -> None:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))
    seen: list[bytes] = []

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        seen.append(message.body)

    async with serving(consumer):
        await consumed(vhost.url)
        answers = between.connections[0].answers
        answers.clear()  # so that the broker has sent them, and nobody has read them
        await send(vhost.url, *"abcde")
        await eventually_async(partial(is_empty, vhost.url, QUEUE), what="all on their way")
        assert seen == []
        asyncio.get_running_loop().call_later(0.3, answers.set)  # while it stops
    assert seen == [b"a", b"b", b"c", b"d", b"e"]
    assert await ready(vhost.url, QUEUE) == await ready(vhost.url, f"redrive-again-{QUEUE}") == 0


async def test_a_handler_that_cancels_its_own_task_has_failed_and_its_worker_goes_on(
    vhost: Vhost, settings: Settings
) -> None:
    consumer, seen = Consumer(settings=settings), []

    @consumer.handler(QUEUE, retries=0, concurrency=1)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        task = asyncio.current_task()
        assert task is not None
        if message.body != b"last":
            task.cancel()
        if message.body == b"waits":
            await asyncio.sleep(0)
        if message.body == b"raises":
            raise ValueError

    async with serving(consumer):
        await consumed(vhost.url)
        await send(vhost.url, "waits", "returns", "raises", "last")
        await eventually(lambda: seen[-1:] == [b"last"], "the last one")
    assert seen == [b"waits", b"returns", b"raises", b"last"]
    assert [dead.body for dead in await take_all(vhost.url, DEAD)] == [b"waits", b"raises"]
    assert await ready(vhost.url, QUEUE) == 0


async def test_a_worker_that_is_cancelled_from_elsewhere_is_replaced(
    vhost: Vhost, settings: Settings
) -> None:
    consumer, seen = Consumer(settings=settings), []

    @consumer.handler(QUEUE, concurrency=1)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        task = asyncio.current_task()
        if message.body == b"later" and task is not None:
            asyncio.get_running_loop().call_later(0.2, task.cancel)

    async with serving(consumer):
        await consumed(vhost.url)
        await send(vhost.url, "later")
        await eventually(lambda: seen == [b"later"], "the first one")
        await asyncio.sleep(0.5)
        await send(vhost.url, "after")
        await eventually(lambda: seen == [b"later", b"after"], "the one after")


async def test_a_handler_that_hangs_and_a_suspect_stop_no_queue(
    vhost: Vhost, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "Gate", partial(Gate, patience=0.2))
    consumer, seen, ends = Consumer(settings=settings), [], asyncio.Event()

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"hangs":
            await ends.wait()

    @consumer.handler("other")
    async def other(message: Message) -> None:
        seen.append(message.body)

    async with serving(consumer):
        await consumed(vhost.url, "other")
        await send(vhost.url, "hangs")
        await eventually(lambda: seen == [b"hangs"], "the one that hangs")
        await send(vhost.url, "suspect", queue=f"redrive-alone-{QUEUE}")
        for name in "abc":
            await asyncio.sleep(0.3)
            await send(vhost.url, f"here {name}")
            await send(vhost.url, f"there {name}", queue="other")
        await eventually(lambda: len(seen) == 7, "the others")
        assert b"suspect" not in seen
        ends.set()
        await eventually(lambda: seen[-1] == b"suspect", "the suspect, at last")


async def test_threads_that_hang_have_the_messages_of_their_handler_wait_and_of_no_other(
    vhost: Vhost, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "Gate", partial(Gate, patience=0.2))
    consumer, begun, seen, end = Consumer(settings=settings), [], [], threading.Event()

    @consumer.handler(QUEUE, retries=0, timeout="1s", concurrency=2)
    def hangs(message: Message) -> None:
        begun.append(message.body)
        end.wait(60)

    @consumer.handler("other")
    async def other(message: Message) -> None:
        seen.append(message.body)

    async with serving(consumer):
        await consumed(vhost.url, "other")
        await send(vhost.url, *"abcd")
        await holds(vhost.url, DEAD, 4)
        # As many go on as may: neither this one is begun with, which would be alone, nor those.
        await send(vhost.url, "suspect", queue=f"redrive-alone-{QUEUE}")
        await send(vhost.url, *"efgh")
        for number in range(3):
            await send(vhost.url, str(number), queue="other")
            await eventually(lambda: len(seen) > number, "the other handler")  # noqa: B023
            await asyncio.sleep(0.3)
        assert sorted(begun) == [b"a", b"b", b"c", b"d"]
        end.set()
        await eventually(lambda: len(begun) == 9, "the rest")
    assert await ready(vhost.url, DEAD) == 4
    assert await ready(vhost.url, QUEUE) == 0


async def test_acks_are_written_before_one_begins_that_no_queue_beside_takes(
    vhost: Vhost, settings: Settings
) -> None:
    for queue in (f"redrive-again-{QUEUE}", f"redrive-alone-{QUEUE}"):
        await declare(vhost.url, queue, "classic", x_max_length=0, x_overflow="reject-publish")
    await declare(vhost.url, QUEUE, "classic")
    await send(vhost.url, "was elsewhere")
    async with channel_to(vhost.url) as channel:
        assert await channel.get(QUEUE) is not None  # and gives it back, unanswered
    consumer = Consumer(settings=settings)
    all_written: list[bool] = []

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None:
        assert consumer._session is not None
        all_written.append(consumer._session._gate.acks.due > 0)

    async with serving(consumer):
        await eventually(lambda: all_written, "its beginning")
    assert all_written == [True]


async def test_a_queue_that_the_broker_named_is_kept_when_the_broker_is_lost(
    vhost: Vhost, proxy: NewProxy
) -> None:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    consumer, seen = Consumer(settings=settings_for(between.through(vhost.url), "classic")), []

    @consumer.handler(Queue("", exchange="orders"))
    async def settle(message: Message) -> None:
        seen.append((message.queue, message.body))

    async with serving(consumer):
        await consumer.ready()
        await send(vhost.url, "before", exchange="orders")
        await eventually(lambda: len(seen) == 1, "the first one")
        between.cut()
        await send(vhost.url, "while away", exchange="orders")
        await eventually(
            lambda: b"while away" in [body for _, body in seen], "the one that came meanwhile"
        )
    # The first may come twice: its ack can be lost with the connection.
    assert len({queue for queue, _ in seen}) == 1
