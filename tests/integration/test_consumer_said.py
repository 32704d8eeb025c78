"""What a consumer says while it works, and that what is said decides about no message."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from redrive import Consumer, Message
from redrive.amqp import parse_addresses
from redrive.errors import ConnectionLost
from tests.services.consuming import DEAD, QUEUE, consumed, eventually, send, serving, settings_for
from tests.services.moving import holds
from tests.services.plugin import NewProxy, Vhost


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
async def test_who_waits_for_a_confirm_hears_that_the_consumer_has_ended(
    vhost: Vhost, proxy: NewProxy, how: str
) -> None:
    address = parse_addresses(vhost.url)[0]
    between = await proxy(address.host, address.port)
    consumer = Consumer(settings=settings_for(between.through(vhost.url), "classic"))

    @consumer.handler(QUEUE)
    async def settle(message: Message) -> None: ...

    stopping = asyncio.Event()
    running = asyncio.create_task(consumer.serve(stopping))
    await consumer.ready()
    between.half_open()
    publishing = asyncio.create_task(consumer.publish("", QUEUE, b"m"))
    await asyncio.sleep(0)
    try:
        if how == "cancelled":
            running.cancel()
        else:
            between.cut(refuse=True)
        with pytest.raises(ConnectionLost, match="before the broker confirmed"):
            await asyncio.wait_for(publishing, 30)
        with pytest.raises(ConnectionLost, match="has no connection"):
            await consumer.publish("", QUEUE, b"m")
    finally:
        stopping.set()
        await asyncio.wait((running,), timeout=15)
    await eventually(running.done, "the end")
