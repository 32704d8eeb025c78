"""Consumers that stay with pika or aio-pika, with the real libraries: they fail as ours do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from redrive import DeadLetter, RetryAfter
from redrive.consumer import with_aio_pika, with_pika
from redrive.domain import headers
from redrive.domain.deaths import read_deaths
from redrive.errors import SettingsError, Unpublishable
from redrive.settings import Settings
from tests.services.consuming import DEAD, error_of, eventually, header, send, settings_for
from tests.services.eventually import DEADLINE
from tests.services.moving import channel_to, declare, holds, ready, take_all
from tests.services.plugin import Vhost
from tests.services.retrying import retrying

QUEUE = "settlements"
Seen = list[tuple[str, int]]


def work(body: str, tries: int) -> None:
    """Fails as its message says."""
    if body == "fails":
        raise ValueError("card blocked")
    if body == "dead":
        raise DeadLetter("no such card", error_type="NO_CARD")
    if body == "later" and not tries:
        raise RetryAfter("250ms")


@asynccontextmanager
async def by_aio_pika(url: str, settings: Settings, seen: Seen) -> AsyncIterator[None]:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        sending = await connection.channel(publisher_confirms=True, on_return_raises=True)

        async def on_message(message: AbstractIncomingMessage) -> None:
            body, tries = message.body.decode(), int(str(message.headers.get(headers.ATTEMPT, 0)))
            seen.append((body, tries))
            under_way.add(message)
            try:
                work(body, tries)
            except Exception as error:  # noqa: BLE001
                await with_aio_pika.failed(
                    message, error, channel=sending, queue=QUEUE, retries=2, settings=settings
                )
            else:
                await message.ack()
            under_way.discard(message)

        under_way: set[AbstractIncomingMessage] = set()
        queue = await channel.get_queue(QUEUE, ensure=False)
        await queue.consume(on_message)
        yield
        # Or what is handled at this moment would be in the queue again.
        await eventually(lambda: not under_way, "the end of the handlers")


@asynccontextmanager
async def by_pika(url: str, settings: Settings, seen: Seen) -> AsyncIterator[None]:
    connection: Any = None

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        text, tries = body.decode(), (properties.headers or {}).get(headers.ATTEMPT, 0)
        seen.append((text, tries))
        try:
            work(text, tries)
        except Exception as error:  # noqa: BLE001
            with_pika.failed(
                channel,
                method,
                properties,
                body,
                error,
                queue=QUEUE,
                retries=2,
                settings=settings,
            )
        else:
            channel.basic_ack(method.delivery_tag)

    def consume() -> None:
        nonlocal connection
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.basic_consume(QUEUE, on_message)
        started.set()
        channel.start_consuming()

    started = threading.Event()
    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    assert await asyncio.to_thread(started.wait, DEADLINE)
    try:
        yield
    finally:
        connection.add_callback_threadsafe(connection.close)
        await asyncio.to_thread(thread.join, DEADLINE)


CLIENTS = {"aio-pika": by_aio_pika, "pika": by_pika}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_they_retry_and_give_up_with_the_same_headers(
    vhost: Vhost, kind: Any, client: str
) -> None:
    seen: Seen = []
    settings = settings_for(vhost.url, kind)
    await declare(vhost.url, QUEUE, kind)
    async with (
        retrying(vhost.url, settings.topology, {}),
        CLIENTS[client](vhost.url, settings, seen),
    ):
        await send(vhost.url, "passes", "fails", "dead", "later", queue=QUEUE)
        await holds(vhost.url, DEAD, 2)
        await eventually(lambda: ("later", 1) in seen, "the message that asked for it")
    assert sorted(seen) == [
        ("dead", 0),
        *[("fails", count) for count in range(3)],
        *[("later", count) for count in range(2)],
        ("passes", 0),
    ]
    dead = {each.body: each for each in await take_all(vhost.url, DEAD)}
    assert error_of(dead[b"fails"]) == ("ValueError", "card blocked")
    assert error_of(dead[b"dead"]) == ("NO_CARD", "no such card")
    failed = dead[b"fails"]
    assert header(failed, headers.QUEUE) == QUEUE
    assert header(failed, headers.ROUTING_KEY) == QUEUE
    assert header(failed, headers.ATTEMPT) == 2
    assert [death.queue for death in read_deaths(header(failed, headers.DEATHS))] == [QUEUE] * 3
    assert "card blocked" in str(header(failed, headers.ERROR_STACK))
    assert await ready(vhost.url, QUEUE) == 0


async def test_a_message_that_no_queue_takes_is_not_acked(vhost: Vhost) -> None:
    settings = settings_for(vhost.url, "quorum")
    await declare(vhost.url, QUEUE, "quorum")
    async with retrying(vhost.url, settings.topology, {}):
        pass
    async with channel_to(vhost.url) as channel:
        for queue in (DEAD, "queue.delay.1"):
            await channel.delete_queue(queue)
    await send(vhost.url, "fails", queue=QUEUE)
    connection = await aio_pika.connect(vhost.url)
    async with connection:
        sending = await connection.channel(publisher_confirms=True, on_return_raises=True)
        message = await (await sending.get_queue(QUEUE)).get()
        with pytest.raises(Unpublishable, match="took nothing"):
            await with_aio_pika.failed(
                message, ValueError("no"), channel=sending, queue=QUEUE, settings=settings
            )
        plain = await connection.channel()
        with pytest.raises(SettingsError, match="on_return_raises"):
            await with_aio_pika.failed(message, ValueError("no"), channel=plain, queue=QUEUE)

    def by_pika() -> None:
        with pika.BlockingConnection(pika.URLParameters(vhost.url)) as blocking:
            channel = blocking.channel()
            method, properties, body = channel.basic_get(QUEUE)
            with pytest.raises(Unpublishable, match="took nothing"):
                with_pika.failed(
                    channel,
                    method,
                    properties,
                    body,
                    ValueError("no"),
                    queue=QUEUE,
                    settings=settings,
                )

    await holds(vhost.url, QUEUE, 1)
    await asyncio.to_thread(by_pika)
    await holds(vhost.url, QUEUE, 1)


async def fail_by_pika(url: str, error: Exception, settings: Settings) -> bool:
    """Fail on the one message; whether the channel still works afterwards."""

    def fail() -> bool:
        with pika.BlockingConnection(pika.URLParameters(url)) as blocking:
            channel = blocking.channel()
            method, properties, body = channel.basic_get(QUEUE)
            with_pika.failed(
                channel, method, properties, body, error, queue=QUEUE, settings=settings
            )
            return bool(channel.is_open)

    return await asyncio.to_thread(fail)


async def fail_by_aio_pika(url: str, error: Exception, settings: Settings) -> bool:
    connection = await aio_pika.connect(url)
    async with connection:
        sending = await connection.channel(publisher_confirms=True, on_return_raises=True)
        message = await (await (await connection.channel()).get_queue(QUEUE)).get()
        await with_aio_pika.failed(message, error, channel=sending, queue=QUEUE, settings=settings)
        return not sending.is_closed


FAILING = {"aio-pika": fail_by_aio_pika, "pika": fail_by_pika}


@pytest.mark.parametrize("client", FAILING)
async def test_a_rung_that_exists_otherwise_is_used_as_it_is(vhost: Vhost, client: str) -> None:
    settings = settings_for(vhost.url, "classic")
    await declare(vhost.url, QUEUE, "classic")
    await declare(vhost.url, "redrive-after-125ms", "quorum")
    await send(vhost.url, "later", queue=QUEUE)
    assert await FAILING[client](vhost.url, RetryAfter("1h"), settings)
    assert await ready(vhost.url, QUEUE) == 0
    await holds(vhost.url, "redrive-after-2048000ms", 1)


@pytest.mark.parametrize("client", FAILING)
async def test_without_redrives_exchanges_the_message_stays(vhost: Vhost, client: str) -> None:
    settings = settings_for(vhost.url, "classic")
    await declare(vhost.url, QUEUE, "classic")
    await send(vhost.url, "fails", queue=QUEUE)
    with pytest.raises(Unpublishable, match="no exchange 'route-delay'"):
        await FAILING[client](vhost.url, ValueError("no"), settings)
    await holds(vhost.url, QUEUE, 1)


@pytest.mark.parametrize("client", FAILING)
async def test_an_error_with_a_long_text_goes_its_way(vhost: Vhost, client: str) -> None:
    settings = settings_for(vhost.url, "classic")
    await declare(vhost.url, QUEUE, "classic")
    await send(vhost.url, "fails", queue=QUEUE)
    async with retrying(vhost.url, settings.topology, {}):
        error = DeadLetter("x" * 200_000, error_type="LONG")
        assert await FAILING[client](vhost.url, error, settings)
        await holds(vhost.url, DEAD, 1)
