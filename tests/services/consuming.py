"""What tests of the consumer SDK need: settings with short tiers, a consumer that serves."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from redrive import Consumer
from redrive.amqp import Delivery, Properties, Publish
from redrive.broker.live import SpareChannel
from redrive.domain import headers
from redrive.settings import Settings, load
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.moving import Kind, channel_to, publish

DEAD = "dlq-queue"
QUEUE = "settlement.requested"


def settings_for(url: str, kind: Kind, tiers: str = "100ms,200ms,300ms") -> Settings:
    """Settings that come from nowhere else."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as nothing:
        flags = {"broker.url": url, "topology.queue_type": kind, "topology.tiers": tiers}
        return load(flags=flags, config=Path(nothing.name), environ={"HOME": "/"}).settings


@asynccontextmanager
async def serving(consumer: Consumer, *, within: float = 30.0) -> AsyncIterator[None]:
    """The consumer serving until the block ends; then it drains."""
    stopping = asyncio.Event()
    running = asyncio.create_task(consumer.serve(stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(running, within)


async def consumed(url: str, queue: str = QUEUE) -> None:
    """Wait until the queue is there and has a consumer."""
    async with channel_to(url) as channel:
        spare = SpareChannel(channel.connection)

        async def has_consumer() -> bool:
            found = await spare.count(queue)
            return found is not None and found[1] > 0

        await eventually_async(has_consumer, what=f"a consumer of {queue}")


async def send(url: str, *identities: str, queue: str = QUEUE, exchange: str = "") -> None:
    """Publish a message for each identity."""

    def message(identity: str) -> Publish:
        properties = Properties.empty().with_text("message_id", identity).persistent()
        return Publish(exchange, queue, properties.raw, identity.encode())

    await publish(url, map(message, identities))


async def eventually(condition: Callable[[], object], what: str, within: float = DEADLINE) -> None:
    await eventually_async(condition, what=what, within=within)


def header(delivery: Delivery, name: str) -> object:
    return Properties.read(delivery.properties).header(name)


def error_of(delivery: Delivery) -> tuple[object, object]:
    return header(delivery, headers.ERROR_TYPE), header(delivery, headers.ERROR_REASON)
