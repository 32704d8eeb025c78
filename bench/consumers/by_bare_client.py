"""No consumer at all: what the broker gives at most to whoever takes everything and acks it.

The client that Redrive's consumer stands on, without handlers: each batch is acked as it comes, in
one range. What a queue does not give to this, it gives to no consumer.
"""

from __future__ import annotations

import asyncio

from bench.movers import PREFETCH, Order
from redrive.amqp import connect, parse_addresses

_LAST_ACKS = 0.2
"""Seconds for acks that the broker's channel has not passed on: closed, it forgets them."""


async def consume(order: Order, stop: asyncio.Event) -> None:
    """Take what there is, then wait to be told to stop."""
    connection = await connect(parse_addresses(order.url), name="bench bare client")
    try:
        consumer = await (await connection.channel()).consume(order.source, prefetch=PREFETCH)
        left = int(order.target)
        while left:
            batch = await consumer.next_batch()
            consumer.ack(*batch)
            consumer.flush()
            left -= len(batch)
        await stop.wait()
        await asyncio.sleep(_LAST_ACKS)
    finally:
        await connection.close()
