"""A handler that does nothing: Redrive's consumer against aio-pika's and FastStream's.

Every round runs every consumer once on each queue type, each on a queue filled afresh with the same
number of messages (a classic queue is slower the longer it is), in an order that changes from round
to round. Ratios are taken within a round, so that a busy machine slows
both sides of one. The rate is that at which the queue empties; afterwards, with the consumer gone,
none may be left or have come back. A bare client, which has no handlers, is the control: what it
reaches is what the broker gives.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from bench.clients import MoverProcess
from bench.figures import Run, Target, at_least, others_share, pace, ratio, rows
from bench.movers import Order
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import CORES, SOURCE, BenchFailed, Stage, machine_busy, own_cpu, say

_FULL, _QUICK = 50_000, 20_000
_ROUNDS = 5
_WANTED = 5.0
_CONSUMERS = ("redrive", "aio-pika", "faststream", "bare client")
_BASELINES = ("aio-pika", "faststream")


async def run(stage: Stage, options: Options) -> Result:
    """All rounds."""
    messages = _QUICK if options.quick else _FULL
    runs: list[Run] = []
    for round_ in range(1, (1 if options.quick else _ROUNDS) + 1):
        first = (round_ - 1) % len(_CONSUMERS)
        for queue_type in options.queue_types:
            for name in (*_CONSUMERS[first:], *_CONSUMERS[:first]):
                done = await _run(stage, name, queue_type, round_, messages)
                say(f"round {round_}, {queue_type}, {name}: {done.per_second:,.0f}/s")
                runs.append(done)
    return _result(runs, options)


async def _run(stage: Stage, name: str, queue_type: str, round_: int, count: int) -> Run:
    await stage.declare(SOURCE, queue_type)
    await stage.fill(SOURCE, count)
    order = Order(stage.url, SOURCE, str(count))  # a consumer has no target, but an end
    process = await MoverProcess.start(
        "bench.consumers", order, name.replace("-", "_").replace(" ", "_")
    )
    try:
        await stage.calm()
        machine, broker, parent = machine_busy(), stage.broker_cpu(), own_cpu()
        began = time.monotonic()
        await process.go()
        samples = await stage.drain(SOURCE, count)
        seconds = time.monotonic() - began
        usage = await process.finish()
    finally:
        await process.abandon()
    if left := await stage.depth(SOURCE):
        raise BenchFailed(f"{name}: {left} of {count} messages came back")
    await stage.delete(SOURCE)
    broker_cpu = stage.broker_cpu() - broker
    return Run(
        round=round_,
        queue_type=queue_type,
        client=name,
        messages=count,
        per_second=pace(samples),
        client_cpu_us=usage.cpu_s / count * 1e6,
        broker_cpu_us=broker_cpu / count * 1e6,
        client_memory_mb=usage.memory_mb,
        others_share=others_share(
            busy=machine_busy() - machine,
            ours=broker_cpu + own_cpu() - parent + usage.cpu_s,
            seconds=seconds,
            cores=CORES,
        ),
    )


def _result(runs: list[Run], options: Options) -> Result:
    summary = sorted(
        rows(runs, list(_BASELINES)),
        key=lambda row: (row.queue_type, _CONSUMERS.index(row.client)),
    )
    table = Table(
        title="Consuming 1 KB persistent messages with a handler that does nothing",
        columns=("queue", "consumer", "messages/s", "CPU µs", "MB", "of aio-pika", "of FastStream"),
        rows=[
            (
                row.queue_type,
                row.client,
                number(row.per_second),
                number(row.client_cpu_us, 1),
                number(row.client_memory_mb),
                *(number(row.ratios[baseline], 2) for baseline in _BASELINES),
            )
            for row in summary
        ],
    )
    data = {"summary": [asdict(row) for row in summary], "runs": [asdict(run) for run in runs]}
    return Result(name="consumer", tables=[table], targets=targets(runs, options), data=data)


def targets(runs: list[Run], options: Options) -> list[Target]:
    """What the SDK promises."""
    return [
        at_least(
            f"Redrive's consumer against {baseline}'s, {queue_type} queues",
            ratio(runs, queue_type, "redrive", baseline),
            _WANTED,
        )
        for queue_type in options.queue_types
        for baseline in _BASELINES
    ]
