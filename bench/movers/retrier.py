"""The retrier in a process of its own: `python -m bench.movers.retrier URL - - TIERS QUEUE`.

Says `ready`, waits for a line, retries until the next one, and prints what that cost. `QUEUE` names
the one queue to serve, or is `all`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys

import uvloop

from bench.movers import PREFETCH
from redrive.amqp import connect, parse_addresses
from redrive.cli.logs import silence_logs
from redrive.domain.policy import Policy, PolicyBook
from redrive.settings.sections import TopologySettings
from redrive.work.mover import Limits
from redrive.work.retrier import Retrier


def topology(tiers: str, queue_type: str = "quorum") -> TopologySettings:
    """The product's own topology with these tiers."""
    return TopologySettings.model_validate({"queue_type": queue_type, "tiers": tiers.split(",")})


async def _serve(url: str, tiers: str, queue: str) -> None:
    addresses = parse_addresses(url)
    book = PolicyBook(file=[Policy(name="#", max_retries=1_000)])
    retrier = Retrier(
        topology(tiers),
        (),
        lambda: book,
        connect=lambda name: connect(addresses, name=name),
        limits=Limits(prefetch=PREFETCH),
    )
    if queue != "all":
        retrier.movers = [mover for mover in retrier.movers if mover.queue == queue]
    await _line("ready")
    before = resource.getrusage(resource.RUSAGE_SELF)
    stopping = asyncio.Event()
    running = asyncio.create_task(retrier.run(stopping))
    await _line()
    stopping.set()
    await running
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu_s": cpu, "memory_mb": after.ru_maxrss / 1024}), flush=True)


async def _line(say: str = "") -> str:
    if say:
        print(say, flush=True)
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    silence_logs()  # stdout is what the parent reads
    uvloop.run(_serve(sys.argv[1], sys.argv[4], sys.argv[5]))
