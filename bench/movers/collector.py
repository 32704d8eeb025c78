"""The collector in a process of its own: `python -m bench.movers.collector URL QUEUE - STORE`.

As the product runs it: every feature on, its log written (to nowhere).
"""

from __future__ import annotations

import asyncio
import os
import sys

import uvloop

from bench.movers import PREFETCH
from bench.movers.told import move_until_told
from redrive.amqp import connect, parse_addresses
from redrive.broker.topology import describe
from redrive.cli.logs import configure_logs
from redrive.roles import tune_python
from redrive.settings.sections import TopologySettings
from redrive.store.store import open_letter_store
from redrive.work.collector import Collector
from redrive.work.mover import Limits
from redrive.work.understand import Understanding


async def collect(url: str, queue: str, store_url: str, stop: asyncio.Event) -> None:
    """Collect one queue until told to stop."""
    store = await open_letter_store(store_url)
    own = describe(TopologySettings()).queue_names()
    addresses = parse_addresses(url)
    collector = Collector(
        queue,
        store.letters,
        Understanding("/", own, {"dlq-queue", "redrive-receipts"}),
        connect=lambda name: connect(addresses, name=name),
        limits=Limits(prefetch=PREFETCH),
    )
    tune_python()  # as `redrive run` does
    running = asyncio.create_task(collector.run())
    await stop.wait()
    collector.stop()
    await running
    await store.close()


if __name__ == "__main__":
    _, url, queue, _, store_url = sys.argv
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open as long as the process lives
    uvloop.run(
        move_until_told(lambda stop: collect(url, queue, store_url, stop), prepare=configure_logs)
    )
