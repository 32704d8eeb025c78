"""aio-pika: a task for each message, up to the prefetch at a time."""

from __future__ import annotations

import asyncio

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.movers import PREFETCH, Order


async def move(order: Order, stop: asyncio.Event) -> None:
    """Move until told to stop. A copy that is returned or refused raises in its task."""
    connection = await aio_pika.connect(order.url)
    async with connection:
        receiving = await connection.channel(publisher_confirms=False)
        await receiving.set_qos(prefetch_count=PREFETCH)
        sending = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = sending.default_exchange
        queue = await receiving.get_queue(order.source, ensure=False)

        pending = 0
        landed = asyncio.Event()

        async def on_message(message: AbstractIncomingMessage) -> None:
            nonlocal pending
            pending += 1
            copy = aio_pika.Message(
                message.body,
                headers=message.headers,
                content_type=message.content_type,
                message_id=message.message_id,
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await exchange.publish(copy, order.target, mandatory=True)
            await message.ack()
            pending -= 1
            if not pending and stop.is_set():
                landed.set()

        tag = await queue.consume(on_message)
        await stop.wait()
        await queue.cancel(tag)
        if pending:
            await landed.wait()
