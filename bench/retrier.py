"""The retrier: each hop against the shovel, the way back with many queues, and punctuality.

- hop: `retry-queue` to a tier, policy and headers included, against the shovel moving the same
  messages between the same queues; once into an empty tier, once into one where 100,000 wait.
- return: `retry-queue-1` to origin queues, with one enrolled queue and with 1,000.
- lateness: a consumer rejects 1,000 messages a second; how much later than its tier's delay does
  each come back?
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median, quantiles
from typing import Any

from bench.clients import MoverProcess, Moving, Shovel
from bench.figures import at_least, below, pace
from bench.messages import BODY, dead_letters
from bench.movers import Order
from bench.movers.retrier import topology
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import BenchFailed, Stage, say
from redrive.amqp import Channel, Connection, Properties, Publish, connect, fields, parse_addresses
from redrive.broker.topology import describe, return_key
from redrive.domain import headers

_ROUNDS = 5
_HOUR, _SECOND = "1h", "1s"
_RETRY, _TIER, _WAITED = "retry-queue", "queue.delay.1", "retry-queue-1"
_MANY = 1_000
_PER_SECOND = 1_000
_LATE_MS = 250


async def run(stage: Stage, options: Options) -> Result:
    """All parts, interleaved within each round."""
    rounds = 1 if options.quick else _ROUNDS
    messages = 5_000 if options.quick else 40_000
    waiting = 5_000 if options.quick else 100_000
    hops: dict[str, list[float]] = {"retrier": [], "shovel": [], "retrier, full tier": []}
    returns: dict[int, list[float]] = {1: [], _MANY: []}
    for round_ in range(1, rounds + 1):
        async with _laid_out(stage, _HOUR) as channel:
            for client in ("retrier", "shovel") if round_ % 2 else ("shovel", "retrier"):
                hops[client].append(await _hop(stage, channel, client, messages, 0))
            await stage.fill(_TIER, waiting)
            hops["retrier, full tier"].append(
                await _hop(stage, channel, "retrier", messages, waiting)
            )
            for queues in (1, _MANY) if round_ % 2 else (_MANY, 1):
                returns[queues].append(await _return(stage, channel, queues, messages))
        say(f"retrier, round {round_}: {_words(hops, returns)}")
    late = await _lateness(stage, 5 if options.quick else 30)
    return _result(hops, returns, late)


def _words(hops: dict[str, list[float]], returns: dict[int, list[float]]) -> str:
    parts = [f"{name} {rates[-1]:,.0f}/s" for name, rates in hops.items()]
    parts += [f"back to {queues:,} {rates[-1]:,.0f}/s" for queues, rates in returns.items()]
    return ", ".join(parts)


@asynccontextmanager
async def _laid_out(stage: Stage, tiers: str) -> AsyncIterator[Channel]:
    """The product's topology, gone afterwards."""
    wanted = describe(topology(tiers))
    channel = stage.channel
    for exchange in wanted.exchanges:
        await channel.declare_exchange(exchange.name, exchange.kind)
    for queue in wanted.queues:
        await channel.declare_queue(queue.name, arguments={**queue.arguments})
    for binding in wanted.bindings:
        await channel.bind_queue(binding.queue, binding.exchange, binding.routing_key)
    try:
        yield channel
    finally:
        for queue in wanted.queues:
            await channel.delete_queue(queue.name)
        for exchange in wanted.exchanges:
            await channel.delete_exchange(exchange.name)


async def _hop(stage: Stage, channel: Channel, client: str, messages: int, already: int) -> float:
    """Messages a second from `retry-queue` into the tier."""
    await stage.fill(_RETRY, messages)
    moving: Moving
    if client == "shovel":
        moving = Shovel(stage, Order(stage.url, _RETRY, _TIER))
    else:
        moving = await _retrier(stage, _HOUR, _RETRY)
    try:
        await stage.calm()
        await moving.go()
        samples = await stage.watch(_TIER, already + messages)
        await moving.finish()
    finally:
        await moving.abandon()
    if await stage.depth(_RETRY) or await stage.depth("dlq-queue"):
        raise BenchFailed(f"{client}: not every message went into the tier")
    await channel.purge_queue(_TIER)
    return pace([(at, depth - already) for at, depth in samples])


async def _retrier(stage: Stage, tiers: str, queue: str) -> MoverProcess:
    order = Order(stage.url, "-", "-")
    return await MoverProcess.start("bench.movers.retrier", order, tiers, queue)


async def _return(stage: Stage, channel: Channel, queues: int, messages: int) -> float:
    """Messages a second from `retry-queue-1` back to their queues, spread over all of them."""
    names = [f"origin-{number}" for number in range(queues)]
    for name in names:
        await channel.declare_queue(name, arguments={"x-queue-type": "classic"})
        await channel.bind_queue(name, "redrive-return", return_key(name))
    await stage.publish(_waited(names[n % queues], n) for n in range(messages))
    moving = await _retrier(stage, _HOUR, _WAITED)
    try:
        await stage.calm()
        await moving.go()
        samples = await stage.drain(_WAITED, messages)
        await _all_back(stage, names, messages)
        await moving.finish()
    finally:
        await moving.abandon()
    for name in names:
        await channel.delete_queue(name)
    return pace(samples)


async def _all_back(stage: Stage, names: Sequence[str], messages: int) -> None:
    """Wait for the last of them: a retrier that is stopped too early gives some back unread."""
    deadline = time.monotonic() + 60
    while (back := sum([await stage.depth(name) for name in names])) != messages:
        if time.monotonic() > deadline:
            raise BenchFailed(f"{back} of {messages} messages came back")


def _waited(queue: str, index: int) -> Publish:
    """A message as it leaves a tier."""
    put = {
        headers.QUEUE: fields.longstr(queue),
        headers.EXCHANGE: fields.longstr("shop"),
        headers.ROUTING_KEY: fields.longstr("order.created"),
        headers.ATTEMPT: fields.int32(1),
        headers.ID: fields.longstr("0190d6e4-7a3b-8c00-9000-0123456789ab"),
    }
    (died,) = dead_letters(_WAITED, 1, first=index)
    properties = Properties.read(died.properties).with_headers(put)
    return Publish("", _WAITED, properties.raw, died.body)


async def _lateness(stage: Stage, seconds: int) -> list[float]:
    """Seconds by which each message came back later than its tier's delay."""
    async with _laid_out(stage, _SECOND) as channel:
        await channel.declare_queue(
            "punctual",
            arguments={
                "x-queue-type": "quorum",
                "x-dead-letter-exchange": "retry-exchange",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        )
        moving = await _retrier(stage, _SECOND, "all")
        connection = await connect(parse_addresses(stage.url), name="bench lateness")
        try:
            await moving.go()
            return await _measure_lateness(connection, seconds * _PER_SECOND)
        finally:
            await moving.abandon()
            await connection.close()
            await channel.delete_queue("punctual")


async def _measure_lateness(connection: Connection, messages: int) -> list[float]:
    publisher = await (await connection.channel()).publisher()
    consumer = await (await connection.channel()).consume("punctual", prefetch=1_000)
    rejected: dict[str, float] = {}
    late: list[float] = []

    async def consume() -> None:
        while len(late) < messages:
            for delivery in await consumer.next_batch():
                now = time.monotonic()
                name = str(Properties.read(delivery.properties).get("message_id"))
                if name in rejected:
                    late.append(now - rejected[name] - 1.0)
                    consumer.ack(delivery)
                else:
                    rejected[name] = now
                    consumer.reject(delivery)
            consumer.flush()

    consuming = asyncio.create_task(consume())
    began = time.monotonic()
    plain = Properties.empty().persistent()
    for number_ in range(messages):
        behind = began + number_ / _PER_SECOND - time.monotonic()
        if behind > 0:
            await asyncio.sleep(behind)
        properties = plain.with_text("message_id", str(number_)).raw
        publisher.publish(Publish("", "punctual", properties, BODY))
    async with asyncio.timeout(60):
        await consuming
    return late


def _result(
    hops: dict[str, list[float]], returns: dict[int, list[float]], late: Sequence[float]
) -> Result:
    cuts = quantiles(late, n=1000)
    p50, p99, p999 = (cuts[at] * 1000 for at in (499, 989, 998))
    rates = Table(
        title="Hops of the retrier, 1 KB messages, quorum queues",
        columns=("hop", "messages/s", "ratio"),
        rows=[
            ("shovel, retry-queue to tier", number(median(hops["shovel"])), "1.00"),
            *(
                (f"{name}, retry-queue to tier", number(median(hops[name])), _times(hops, name))
                for name in ("retrier", "retrier, full tier")
            ),
            *(
                (f"back to {queues:,} queues", number(median(rates_)), "-")
                for queues, rates_ in returns.items()
            ),
        ],
    )
    lateness = Table(
        title=f"Lateness over a tier of 1 s at {_PER_SECOND:,} messages a second",
        columns=("messages", "p50 ms", "p99 ms", "p99.9 ms", "most ms"),
        rows=[(number(len(late)), *(number(ms) for ms in (p50, p99, p999, max(late) * 1000)))],
    )
    targets = [
        at_least("One hop against the shovel", _ratio(hops["retrier"], hops["shovel"]), 1.0),
        at_least(
            "One hop while 100,000 wait against an empty tier",
            _ratio(hops["retrier, full tier"], hops["retrier"]),
            0.9,
        ),
        at_least("Return with 1,000 queues against one", _ratio(returns[_MANY], returns[1]), 0.8),
        below("Lateness, p99", p99, _LATE_MS, "ms"),
    ]
    data: dict[str, Any] = {
        "hops": hops,
        "returns": {str(queues): found for queues, found in returns.items()},
        "lateness_ms": {"p50": p50, "p99": p99, "p99.9": p999, "max": max(late) * 1000},
    }
    return Result(name="retrier", tables=[rates, lateness], targets=targets, data=data)


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Within each round, then the median."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def _times(hops: dict[str, list[float]], name: str) -> str:
    return f"{_ratio(hops[name], hops['shovel']):.2f}"
