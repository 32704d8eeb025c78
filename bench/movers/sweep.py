"""Redrive's sweep of one queue, watching its own memory.

`python -m bench.movers.sweep URL SOURCE TARGET MANAGEMENT_URL` says `ready`, waits for a line,
sweeps what is over three retries, and prints as JSON what it did, how long that took, and its
resident memory when a tenth had been looked at and at most after that. Like the command, it asks
the management API of which type the queue is.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import psutil
import uvloop

from bench.movers import Order
from redrive.amqp import Connection, connect, parse_addresses
from redrive.broker.management import Management
from redrive.cli.logs import silence_logs
from redrive.work.queue_site import QueueSite
from redrive.work.sweep import Sweeper, SweepOrder

_LOOK_EVERY = 0.02


async def _sweep(order: Order, management_url: str) -> None:
    addresses = parse_addresses(order.url)
    broker = addresses[0]
    management = Management(management_url, broker.user, broker.password, broker.vhost)

    async def open_connection(name: str) -> Connection:
        return await connect(addresses, name=name)

    site = QueueSite(await open_connection("bench sweep"), management, open_connection)
    asked = SweepOrder(queues=[order.source], target=order.target, max_retries=3)
    sweeper = Sweeper(asked, site)
    (leg,) = (await sweeper.itinerary()).legs
    began = time.monotonic()
    sweeping = asyncio.create_task(sweeper.sweep(leg))
    seen = await _watch(sweeper, sweeping)
    outcome = await sweeping
    found = {
        "seconds": time.monotonic() - began,
        "examined": outcome.examined,
        "moved": outcome.moved,
        "left": outcome.left,
        "error": outcome.error,
        "warm_mb": seen[0],
        "peak_mb": max(seen),
    }
    print(json.dumps(found), flush=True)
    await site.connection.close()


async def _watch(sweeper: Sweeper, sweeping: asyncio.Task[object]) -> list[float]:
    process = psutil.Process()
    seen: list[float] = []
    while not sweeping.done():
        look = sweeper.under_way
        if look is not None and look.passed.examined * 10 > look.passed.present > 0:
            seen.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(_LOOK_EVERY)
    return [*seen, process.memory_info().rss / 2**20]


if __name__ == "__main__":
    silence_logs()  # stdout is what the parent reads
    print("ready", flush=True)
    if sys.stdin.readline():
        uvloop.run(_sweep(Order(*sys.argv[1:4]), sys.argv[4]))
