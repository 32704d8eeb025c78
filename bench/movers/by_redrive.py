"""Redrive as the product moves: the Mover, with the header surgery of every republish."""

from __future__ import annotations

import asyncio

from bench.movers import PREFETCH, NotTaken, Order
from redrive.amqp import Connection, Delivery, Publish, Refused, Returned, connect, parse_addresses
from redrive.amqp.republish import republished
from redrive.work.mover import Limits, Mover, Park, Stay


class ToQueue:
    """A plan: everything goes to one queue."""

    def __init__(self, target: str) -> None:
        self._target = target

    def decide(self, delivery: Delivery, user: str) -> Publish:
        return Publish("", self._target, republished(delivery, user=user), delivery.body)

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Publish:
        raise NotTaken(f"{delivery}: {outcome}")

    def poisoned(self, delivery: Delivery, reason: str) -> Park | Stay:
        raise NotTaken(f"{delivery}: {reason}")


def mover(order: Order) -> Mover:
    """A Mover for the order, with the product's own limits."""
    addresses = parse_addresses(order.url)

    async def open_connection(name: str) -> Connection:
        return await connect(addresses, name=name)

    return Mover(
        order.source,
        ToQueue(order.target),
        connect=open_connection,
        limits=Limits(prefetch=PREFETCH),
    )


async def move(order: Order, stop: asyncio.Event) -> None:
    """Move until told to stop."""
    moving = mover(order)
    running = asyncio.create_task(moving.run())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    moving.stop()
    await running
    if moving.counts.sessions > 1:
        raise NotTaken("the connection was lost on the way")
