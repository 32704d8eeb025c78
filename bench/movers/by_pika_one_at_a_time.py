"""pika, blocking: get one, publish it, wait for the confirm, ack it, get the next."""

from __future__ import annotations

import asyncio

import pika

from bench.movers import Order


def _move_all(order: Order) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(order.url))
    channel = connection.channel()
    channel.confirm_delivery()
    while True:
        method, properties, body = channel.basic_get(order.source)
        if method is None:
            break
        properties.delivery_mode = 2
        channel.basic_publish("", order.target, body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
    connection.close()


async def move(order: Order, stop: asyncio.Event) -> None:
    """Move until the queue is empty. A copy that is returned or refused raises."""
    await asyncio.to_thread(_move_all, order)
    await stop.wait()
