"""aio-pika: a callback that acks when its work is done, as its documentation has it."""

from __future__ import annotations

import asyncio

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.movers import PREFETCH, Order

_LAST_ACKS = 0.2
"""Seconds for acks that it has made and not written: it closes without them."""


async def consume(order: Order, stop: asyncio.Event) -> None:
    """Consume until told to stop."""
    connection = await aio_pika.connect(order.url)
    async with connection:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(order.source, ensure=False)
        left, done = int(order.target), asyncio.Event()

        async def handle(message: AbstractIncomingMessage) -> None:
            nonlocal left
            async with message.process():
                pass
            left -= 1
            if not left:
                done.set()

        await queue.consume(handle)
        await stop.wait()
        await done.wait()  # it does not wait itself for what it has prefetched
        await asyncio.sleep(_LAST_ACKS)
