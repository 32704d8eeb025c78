"""Moving from queue to queue: Redrive against the broker's shovel and the Python clients.

The shovel is measured twice: over TCP, as every other client connects, and inside the broker, where
nothing crosses a socket.

Every round runs every client once on each queue type, each on queues filled afresh, in an order
that changes from round to round. Ratios are taken within a round, so that a busy machine slows
both sides of one. After each run every message must be in the target queue, once, and none left.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.clients import CLIENTS, SHOVEL, SHOVEL_INSIDE, Client, in_full
from bench.figures import Run, Target, at_least, others_share, pace, ratio, rows
from bench.movers import Order
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import CORES, SOURCE, TARGET, BenchFailed, Stage, machine_busy, own_cpu, say

_FULL, _QUICK = 60_000, 10_000
_ROUNDS = 5
_QUIET = 0.1
_BASELINES = {SHOVEL: "of shovel", SHOVEL_INSIDE: "of shovel inside", "aio-pika": "of aio-pika"}
"""Who the others are compared with, and the column that says it."""


async def run(stage: Stage, options: Options) -> Result:
    """All rounds."""
    messages = _QUICK if options.quick else _FULL
    runs: list[Run] = []
    for queue_type in options.queue_types:
        say(f"warming the broker up, {queue_type}")
        await _run(stage, CLIENTS[0], queue_type, 0, _QUICK)
    for number_ in range(1, (1 if options.quick else _ROUNDS) + 1):
        for queue_type in options.queue_types:
            first = (number_ - 1) % len(CLIENTS)
            for client in (*CLIENTS[first:], *CLIENTS[:first]):
                done = await _run(stage, client, queue_type, number_, messages)
                say(
                    f"round {number_}, {queue_type}, {client.name}: "
                    f"{done.messages:,} messages, {done.per_second:,.0f}/s "
                    f"(others used {done.others_share:.0%} of the machine)"
                )
                runs.append(done)
    return _result(runs, options)


async def _run(stage: Stage, client: Client, queue_type: str, round_: int, messages: int) -> Run:
    count = int(messages * client.share)
    await stage.declare(SOURCE, queue_type)
    await stage.declare(TARGET, queue_type)
    await stage.fill(SOURCE, count)
    moving = await client.prepare(stage, Order(stage.url, SOURCE, TARGET))
    try:
        await stage.calm()
        before, began = _Clocks.read(stage), time.monotonic()
        await moving.go()
        samples = await stage.watch(TARGET, count)
        after, seconds = _Clocks.read(stage), time.monotonic() - began
        usage = await moving.finish()
    finally:
        await moving.abandon()
    left, arrived = await stage.depth(SOURCE), await stage.depth(TARGET)
    if left or arrived != count:
        raise BenchFailed(f"{client.name}: {arrived} of {count} arrived, {left} were left")
    await stage.delete(SOURCE, TARGET)
    broker_cpu = after.broker - before.broker
    ours = broker_cpu + (after.parent - before.parent) + (usage.cpu_s if usage else 0.0)
    return Run(
        round=round_,
        queue_type=queue_type,
        client=client.name,
        messages=count,
        per_second=pace(samples),
        client_cpu_us=usage.cpu_s / count * 1e6 if usage else None,
        broker_cpu_us=broker_cpu / count * 1e6,
        client_memory_mb=usage.memory_mb if usage else None,
        others_share=others_share(
            busy=after.machine - before.machine,
            ours=ours,
            seconds=seconds,
            cores=CORES,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Clocks:
    """Seconds of CPU used so far."""

    machine: float
    broker: float
    parent: float

    @classmethod
    def read(cls, stage: Stage) -> _Clocks:
        return cls(machine_busy(), stage.broker_cpu(), own_cpu())


def _result(runs: list[Run], options: Options) -> Result:
    order = [client.name for client in CLIENTS]
    summary = sorted(
        rows(runs, list(_BASELINES)), key=lambda row: (row.queue_type, order.index(row.client))
    )
    table = Table(
        title="Moving 1 KB persistent messages: consume, publish mandatory, confirm, ack",
        columns=(
            "queue",
            "client",
            "messages/s",
            "CPU µs",
            "broker CPU µs",
            "MB",
            *_BASELINES.values(),
        ),
        rows=[
            (
                row.queue_type,
                row.client,
                number(row.per_second),
                number(row.client_cpu_us),
                number(row.broker_cpu_us),
                number(row.client_memory_mb),
                *(number(row.ratios[baseline], 2) for baseline in _BASELINES),
            )
            for row in summary
        ],
    )
    data: dict[str, Any] = {
        "summary": [asdict(row) for row in summary],
        "runs": [asdict(run) for run in runs],
    }
    others = median(run.others_share for run in runs)
    notes = []
    if others > _QUIET:
        notes.append(
            f"other programs used {others:.0%} of the machine meanwhile: "
            "repeat this on a quiet one before believing a rate"
        )
    return Result(
        name="wire", tables=[table], targets=targets(runs, options), data=data, notes=notes
    )


def targets(runs: list[Run], options: Options) -> list[Target]:
    """What Redrive promises: against the shovel the same, however that connects."""
    wanted = {
        ("quorum", SHOVEL): 1.2,
        ("classic", SHOVEL): 1.0,
        ("quorum", SHOVEL_INSIDE): 1.2,
        ("classic", SHOVEL_INSIDE): 1.0,
        ("quorum", "aio-pika"): 8.0,
        ("classic", "aio-pika"): 8.0,
    }
    return [
        at_least(
            f"Redrive against {in_full(baseline)}, {queue_type} queues",
            ratio(runs, queue_type, "redrive", baseline),
            least,
        )
        for (queue_type, baseline), least in wanted.items()
        if queue_type in options.queue_types
    ]
