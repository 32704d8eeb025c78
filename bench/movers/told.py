"""How a mover's process and its parent talk: one line at a time, over stdin and stdout.

It says `ready`, waits for a line, moves until the next line (or the end of its input: the parent
is gone), and prints what that cost as JSON. Reading Python's modules in is not part of the cost.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import Awaitable, Callable

from redrive.cli.logs import silence_logs


async def move_until_told(
    move: Callable[[asyncio.Event], Awaitable[None]], prepare: Callable[[], None] = silence_logs
) -> None:
    """Run `move`, which ends when its event is set, between the parent's two words.

    `prepare` sets up the logs: stdout is what the parent reads.
    """
    prepare()
    print("ready", flush=True)
    await _line()
    before = resource.getrusage(resource.RUSAGE_SELF)
    stop = asyncio.Event()
    moving = asyncio.ensure_future(move(stop))
    told = asyncio.create_task(_line())
    await asyncio.wait((moving, told), return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await moving
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu_s": cpu, "memory_mb": after.ru_maxrss / 1024}), flush=True)


async def _line() -> str:
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
