"""The sweep of a dead letter queue, half of it over the limit, against the loop of seed 002.

The same dead messages, 1 KB each: swept by Redrive, and moved one at a time by pika, which gets,
publishes, waits for the confirm and acks (few of them: the rate is what counts). Then a queue of a
tenth of the size, for whether the time grows with the number of messages and not faster. Every
message must be where it belongs afterwards.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median
from typing import Any

from bench.clients import CLIENTS, MoverProcess
from bench.figures import Target, at_least, below, pace, within_rounds
from bench.messages import BODY
from bench.movers import Order
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import SOURCE, TARGET, BenchFailed, Stage, say
from redrive.amqp import Properties, Publish, fields

_ROUNDS = 5
_FULL, _QUICK = 100_000, 4_000
_WANTED = 20.0
_NOT_SLOWER = 0.7
"""How fast a message of the large queue is at least, against one of a queue of a tenth."""
_MAX_GROWTH_MB = 20
_STUCK_AFTER = 600.0

_DIED_AT = datetime(2024, 1, 1, tzinfo=UTC)

Rounds = dict[str, list[float]]


def dead_letters(queue: str, count: int) -> Iterator[Publish]:
    """Messages that were tried once and five times, in turn."""
    sections = [_tried(1), _tried(5)]
    for number_ in range(count):
        named = sections[number_ % 2].with_text("message_id", f"bench-{number_:012}")
        yield Publish("", queue, named.raw, BODY)


def _tried(times: int) -> Properties:
    death = fields.table(
        {
            "count": fields.int64(times),
            "reason": fields.longstr("rejected"),
            "queue": fields.longstr("orders"),
            "time": fields.timestamp(_DIED_AT),
            "exchange": fields.longstr("shop"),
            "routing-keys": fields.array([fields.longstr("order.created")]),
        }
    )
    return Properties.empty().with_headers({"x-death": fields.array([death])}).persistent()


async def run(stage: Stage, options: Options) -> Result:
    """Both sizes and pika, on each queue type, round by round."""
    many = _QUICK if options.quick else _FULL
    found: dict[str, Rounds] = {}
    growth: dict[str, float] = {}
    for kind in options.queue_types:
        rounds: Rounds = {"sweep": [], "sweep of a tenth": [], "pika": []}
        for round_ in range(1 if options.quick else _ROUNDS):
            large = await _sweep(stage, kind, many)
            small = await _sweep(stage, kind, many // 10)
            rounds["sweep"].append(large["rate"])
            rounds["sweep of a tenth"].append(small["rate"])
            rounds["pika"].append(await _pika(stage, kind, min(2_000, many // 4)))
            growth[kind] = max(growth.get(kind, 0.0), large["peak_mb"] - large["warm_mb"])
            rates = ", ".join(f"{name} {each[-1]:,.0f}/s" for name, each in rounds.items())
            say(f"sweep, {kind}, round {round_ + 1}: {rates}")
        found[kind] = rounds
    return _result(found, growth, many)


async def _sweep(stage: Stage, kind: str, messages: int) -> dict[str, Any]:
    """What the sweep's process told, and its messages a second."""
    await stage.declare(SOURCE, kind)
    await stage.declare(TARGET, kind)
    await stage.publish(dead_letters(SOURCE, messages))
    await stage.calm()
    process = await MoverProcess.start(
        "bench.movers.sweep", Order(stage.url, SOURCE, TARGET), stage.node.management_url
    )
    try:
        await process.go()
        async with asyncio.timeout(_STUCK_AFTER):
            answer = await process.line()
    finally:
        await process.abandon()
    told: dict[str, Any] = json.loads(answer) if answer else {}
    half = messages // 2
    if told.get("moved") != half or told.get("left") != half:
        raise BenchFailed(f"the sweep of {messages} did not move half of them: {told}")
    await _until_there(stage, half)
    await stage.delete(SOURCE, TARGET)
    return told | {"rate": messages / told["seconds"]}


async def _until_there(stage: Stage, half: int) -> None:
    await stage.watch(SOURCE, half)
    await stage.watch(TARGET, half)


async def _pika(stage: Stage, kind: str, messages: int) -> float:
    client = next(client for client in CLIENTS if client.module == "pika_one_at_a_time")
    await stage.declare(SOURCE, kind)
    await stage.declare(TARGET, kind)
    await stage.publish(dead_letters(SOURCE, messages))
    await stage.calm()
    moving = await client.prepare(stage, Order(stage.url, SOURCE, TARGET))
    try:
        await moving.go()
        samples = await stage.watch(TARGET, messages)
        await moving.finish()
    finally:
        await moving.abandon()
    await stage.delete(SOURCE, TARGET)
    return pace(samples)


def _result(found: dict[str, Rounds], growth: dict[str, float], many: int) -> Result:
    table = Table(
        title=f"Sweeping {many:,} dead messages of 1 KB, half of them over the limit",
        columns=("queue", "by", "messages/s", "of pika's"),
        rows=[
            (kind, name, number(median(rates)), number(within_rounds(rates, rounds["pika"]), 1))
            for kind, rounds in found.items()
            for name, rates in rounds.items()
        ],
    )
    return Result(
        name="sweep",
        tables=[table],
        targets=[target for kind in found for target in targets(kind, found[kind], growth[kind])],
        data={"rates": found, "growth_mb": growth},
    )


def targets(kind: str, rounds: Rounds, growth: float) -> list[Target]:
    """What is promised of the sweep."""
    against = within_rounds(rounds["sweep"], rounds["pika"])
    linear = within_rounds(rounds["sweep"], rounds["sweep of a tenth"])
    return [
        at_least(
            f"Sweep against a get/publish/ack loop with pika, {kind} queues", against, _WANTED
        ),
        at_least(
            f"A message of the whole against one of a tenth, {kind} queues", linear, _NOT_SLOWER
        ),
        below(f"Growth of the sweep's memory, {kind} queues", growth, _MAX_GROWTH_MB, "MB"),
    ]
