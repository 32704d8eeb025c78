"""Redrive's consumer, as the product's own settings make it but for the prefetch."""

from __future__ import annotations

import asyncio

from bench.movers import PREFETCH, Order
from redrive import Consumer, Message, Queue


async def consume(order: Order, stop: asyncio.Event) -> None:
    """Consume until told to stop."""
    consumer = Consumer(order.url)

    @consumer.handler(Queue(order.source, declare=False), prefetch=PREFETCH, timeout="30s")
    async def handle(message: Message) -> None:
        pass

    await consumer.serve(stop)
