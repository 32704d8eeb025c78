"""A replay in a process of its own: `python -m bench.movers.replay URL - QUEUE STORE`.

As `redrive replay --pause 0 --batch-size 1000` runs it, log and all, redirected to one queue. The
job is made before it is told to go.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from datetime import UTC, datetime

import uvloop

from bench.movers.told import move_until_told
from redrive.amqp import connect, parse_addresses
from redrive.broker.topology import describe
from redrive.cli.logs import configure_logs
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Destination, ReplayOrder
from redrive.roles import tune_python
from redrive.settings.sections import TopologySettings, WorkerSettings
from redrive.store.store import open_letter_store
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from redrive.work.sender import Sender

_BATCH = 1000


async def replay(url: str, queue: str, store_url: str, stop: asyncio.Event) -> None:
    """Send every letter of the store to one queue."""
    settings, worker = TopologySettings(), WorkerSettings()
    store = await open_letter_store(store_url)
    addresses = parse_addresses(url)
    sender = Sender(
        lambda name: connect(addresses, name=name),
        settings.names.return_exchange,
        describe(settings).queue_names(),
    )
    redirect = Destination(queue=queue)
    order = ReplayOrder(
        actor="bench", described="all", destination=redirect, batch_size=_BATCH, pause=0
    )
    made = await store.replays.create(
        letter_id(datetime.now(UTC), random.getrandbits(74)), "/", Filters(), order
    )
    assert made is not None
    await sender.open()
    ours = await store.replays.begin(made.id, "bench", worker.lease)
    tune_python()  # as `redrive run` does
    runner = ReplayRunner(
        "bench",
        store.replays,
        sender,
        verdict_after=worker.verdict_after,
        lease=worker.lease,
        stopping=stop,
    )
    await runner.run(ours, destinations(PolicyBook, redirect))
    await stop.wait()
    await sender.close()
    await store.close()


if __name__ == "__main__":
    _, url, _, queue, store_url = sys.argv
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open as long as the process lives
    uvloop.run(
        move_until_told(lambda stop: replay(url, queue, store_url, stop), prepare=configure_logs)
    )
