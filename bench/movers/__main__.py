"""The process that a client is measured in: `python -m bench.movers URL SOURCE TARGET CLIENT`.

It says `ready`, waits for a line, moves until the next line (or the end of its input: the parent
is gone), and prints what that cost as JSON. Reading Python's modules in is not part of the cost.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import resource
import sys

import uvloop

from bench.movers import Order
from redrive.cli.logs import silence_logs


async def _move_until_told(client: str, order: Order) -> None:
    move = importlib.import_module(f"bench.movers.by_{client}").move
    await _line("ready")
    before = resource.getrusage(resource.RUSAGE_SELF)
    stop = asyncio.Event()
    moving = asyncio.create_task(move(order, stop))
    told = asyncio.create_task(_line())
    await asyncio.wait((moving, told), return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await moving
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu_s": cpu, "memory_mb": after.ru_maxrss / 1024}), flush=True)


async def _line(say: str = "") -> str:
    if say:
        print(say, flush=True)
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    silence_logs()  # stdout is what the parent reads
    uvloop.run(_move_until_told(sys.argv[4], Order(*sys.argv[1:4])))
