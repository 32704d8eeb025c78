"""Redrive's Mover watching its own memory.

`python -m bench.movers.growth URL SOURCE TARGET N WARM` says `ready`, waits for a line, moves N
messages, and prints as JSON its resident memory when WARM had been moved, when all had, and the
most it saw in between.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import psutil
import uvloop

from bench.movers import Order
from bench.movers.by_redrive import mover
from redrive.cli.logs import silence_logs

_LOOK_EVERY = 0.02


async def _grow(order: Order, messages: int, warm: int) -> None:
    process = psutil.Process()
    moving = mover(order)
    began = time.monotonic()
    running = asyncio.create_task(moving.run())
    seen: list[float] = []
    while moving.counts.moved < messages and not running.done():
        if moving.counts.moved >= warm:
            seen.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(_LOOK_EVERY)
    seconds = time.monotonic() - began
    seen.append(process.memory_info().rss / 2**20)
    moving.stop()
    await running
    found = {"messages": messages, "warm": warm, "seconds": seconds}
    found |= {"warm_mb": seen[0], "last_mb": seen[-1], "peak_mb": max(seen)}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    silence_logs()  # stdout is what the parent reads
    print("ready", flush=True)
    if sys.stdin.readline():
        uvloop.run(_grow(Order(*sys.argv[1:4]), int(sys.argv[4]), int(sys.argv[5])))
