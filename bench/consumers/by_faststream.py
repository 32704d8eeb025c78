"""FastStream: a subscriber that acks when it returns, without logs, decoding and type checks."""

from __future__ import annotations

import asyncio

from faststream import AckPolicy
from faststream.rabbit import Channel, RabbitBroker, RabbitMessage, RabbitQueue

from bench.movers import PREFETCH, Order

_LAST_ACK = 0.2
"""Seconds for the ack of the last message, which follows its handler."""


async def raw(message: RabbitMessage) -> bytes:
    """The body as it is: the others do not look into it either."""
    return message.body


async def consume(order: Order, stop: asyncio.Event) -> None:
    """Consume until told to stop."""
    left, done = int(order.target), asyncio.Event()
    broker = RabbitBroker(
        order.url,
        default_channel=Channel(prefetch_count=PREFETCH),
        logger=None,
        decoder=raw,
        apply_types=False,
    )

    @broker.subscriber(
        RabbitQueue(order.source, declare=False), ack_policy=AckPolicy.REJECT_ON_ERROR
    )
    async def handle(body: bytes) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    await broker.start()
    await stop.wait()
    await done.wait()  # it does not wait itself for what it has prefetched
    await asyncio.sleep(_LAST_ACK)
    await broker.stop()
