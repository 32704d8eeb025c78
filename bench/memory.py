"""Memory: a million messages move, and the mover's process does not grow.

The source is filled while it is emptied and the target keeps only the newest messages, so the
broker never holds the million. The mover's process looks at its own resident memory.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from bench.clients import MoverProcess
from bench.figures import below
from bench.movers import Order
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import SOURCE, TARGET, BenchFailed, Stage, say

_MESSAGES, _WARM = 1_000_000, 50_000
_AHEAD = 20_000
_CHUNK = 5_000
_LIMIT_MB = 50
_STUCK_AFTER = 120.0


async def run(stage: Stage, options: Options) -> Result:
    """Move them on quorum queues, the product's default."""
    messages, warm = (_MESSAGES // 100, _WARM // 100) if options.quick else (_MESSAGES, _WARM)
    await stage.declare(SOURCE, "quorum")
    await stage.declare(TARGET, "quorum", **{"x-max-length": _AHEAD})
    order = Order(stage.url, SOURCE, TARGET)
    mover = await MoverProcess.start("bench.movers.growth", order, str(messages), str(warm))
    try:
        await mover.go()
        report = asyncio.create_task(mover.line())
        await _feed(stage, messages, report)
        async with asyncio.timeout(_STUCK_AFTER):
            answer = await report
    finally:
        await mover.abandon()
    if not answer:
        raise BenchFailed("the mover's process ended early")
    await stage.delete(SOURCE, TARGET)
    return _result(json.loads(answer))


async def _feed(stage: Stage, messages: int, report: asyncio.Task[str]) -> None:
    """Keep the source filled, but never far ahead of the mover."""
    said = 0
    for first in range(0, messages, _CHUNK):
        progress_at = time.monotonic()
        while await stage.depth(SOURCE) > _AHEAD:
            if report.done() or time.monotonic() - progress_at > _STUCK_AFTER:
                raise BenchFailed(f"the mover stopped before message {first}")
            await asyncio.sleep(0.02)
        await stage.fill(SOURCE, min(_CHUNK, messages - first), first=first)
        if first - said >= 100_000:
            said = first
            say(f"memory: {first:,} of {messages:,} messages")


def _result(found: dict[str, Any]) -> Result:
    table = Table(
        title="Resident memory of Redrive's process while messages stream through it",
        columns=("messages", "messages/s", "after", "MB then", "MB at the end", "MB at most"),
        rows=[
            (
                number(found["messages"]),
                number(found["messages"] / found["seconds"]),
                number(found["warm"]),
                number(found["warm_mb"], 1),
                number(found["last_mb"], 1),
                number(found["peak_mb"], 1),
            )
        ],
    )
    growth = found["peak_mb"] - found["warm_mb"]
    target = below(
        f"Growth of memory from message {found['warm']:,} to {found['messages']:,}",
        growth,
        _LIMIT_MB,
        "MB",
    )
    data = found | {"growth_mb": growth}
    return Result(name="memory", tables=[table], targets=[target], data=data)
