"""The retrier: each hop against the shovel, the way back with many queues, and punctuality.

- hop: `retry-queue` to a tier, policy and headers included, against the shovel (over TCP, and
  inside the broker) moving the same messages between the same queues; once into an empty tier,
  once into one where 100,000 wait. The exchange before the tiers costs the broker much, so the
  shovel also goes through it as the retrier does, and a control does without it.
- return: `retry-queue-1` to origin queues, one and 1,000 of them; see bench/returns.py.
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

from bench import returns
from bench.clients import SHOVELS, Client, Moving, in_full, start_retrier
from bench.figures import Target, at_least, below, pace, within_rounds
from bench.messages import BODY
from bench.movers import Order
from bench.movers.retrier import topology
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import BenchFailed, Stage, say
from redrive.amqp import Channel, Connection, Properties, Publish, connect, parse_addresses
from redrive.broker.topology import describe

_ROUNDS = 5
_HOUR, _SECOND = "1h", "1s"
_RETRY, _TIER = "retry-queue", "queue.delay.1"
_DELAY_KEY = "binding.order.created.1"
"""With which the retrier sends these messages into that tier."""
_RETRIER, _FULL_TIER = "retrier", "retrier, full tier"
_STRAIGHT = Client("mover alone, straight to the tier", "redrive", 1.0)
_BY_EXCHANGE = Client("shovel, by the exchange before the tiers", "", 1.0)
_SHOVELS = (*SHOVELS, _BY_EXCHANGE)
_PEERS = (*_SHOVELS, _STRAIGHT)
_CLIENTS = (_RETRIER, *(peer.name for peer in _PEERS))
_PER_SECOND = 1_000
_LATE_MS = 250

Hops = dict[str, list[float]]
"""Messages a second of each client, one for each round."""


async def run(stage: Stage, options: Options) -> Result:
    """All parts, interleaved within each round."""
    rounds = 1 if options.quick else _ROUNDS
    messages = 5_000 if options.quick else 40_000
    waiting = 5_000 if options.quick else 100_000
    hops: Hops = {name: [] for name in (*_CLIENTS, _FULL_TIER)}
    back: dict[returns.Case, list[float]] = {case: [] for case in returns.CASES}
    for round_ in range(1, rounds + 1):
        async with laid_out(stage, _HOUR) as channel:
            first = (round_ - 1) % len(_CLIENTS)
            for client in (*_CLIENTS[first:], *_CLIENTS[:first]):
                hops[client].append(await _hop(stage, channel, client, messages, 0))
            await stage.fill(_TIER, waiting)
            hops[_FULL_TIER].append(await _hop(stage, channel, _RETRIER, messages, waiting))
            for case, rate in (await returns.measure(stage, round_, _HOUR, messages)).items():
                back[case].append(rate)
        say(f"retrier, round {round_}: {_words(hops, back)}")
    late = await _lateness(stage, 5 if options.quick else 30)
    return _result(hops, back, late)


def _words(hops: Hops, back: returns.Rates) -> str:
    parts = [f"{name} {rates[-1]:,.0f}/s" for name, rates in hops.items()]
    parts += [f"back, {case.name} {rates[-1]:,.0f}/s" for case, rates in back.items()]
    return ", ".join(parts)


@asynccontextmanager
async def laid_out(stage: Stage, tiers: str) -> AsyncIterator[Channel]:
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
    moving = await _hopper(stage, client)
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


async def _hopper(stage: Stage, client: str) -> Moving:
    straight = Order(stage.url, _RETRY, _TIER)
    by_exchange = Order(stage.url, _RETRY, "route-delay", key=_DELAY_KEY)
    for peer in _PEERS:
        if peer.name == client:
            order = by_exchange if peer is _BY_EXCHANGE else straight
            return await peer.prepare(stage, order)
    return await start_retrier(stage, _HOUR, _RETRY)


async def _lateness(stage: Stage, seconds: int) -> list[float]:
    """Seconds by which each message came back later than its tier's delay."""
    async with laid_out(stage, _SECOND) as channel:
        await channel.declare_queue(
            "punctual",
            arguments={
                "x-queue-type": "quorum",
                "x-dead-letter-exchange": "retry-exchange",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        )
        moving = await start_retrier(stage, _SECOND, "all")
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


def _result(hops: Hops, back: returns.Rates, late: Sequence[float]) -> Result:
    cuts = quantiles(late, n=1000)
    p50, p99, p999 = (cuts[at] * 1000 for at in (499, 989, 998))
    lateness = Table(
        title=f"Lateness over a tier of 1 s at {_PER_SECOND:,} messages a second",
        columns=("messages", "p50 ms", "p99 ms", "p99.9 ms", "most ms"),
        rows=[(number(len(late)), *(number(ms) for ms in (p50, p99, p999, max(late) * 1000)))],
    )
    data: dict[str, Any] = {
        "hops": hops,
        "returns": {case.name: rates for case, rates in back.items()},
        "lateness_ms": {"p50": p50, "p99": p99, "p99.9": p999, "max": max(late) * 1000},
    }
    return Result(
        name="retrier",
        tables=[_hop_table(hops), returns.table(back), lateness],
        targets=[
            *hop_targets(hops),
            *returns.targets(back),
            below("Lateness, p99", p99, _LATE_MS, "ms"),
        ],
        data=data,
    )


def _hop_table(hops: Hops) -> Table:
    tiers = dict.fromkeys(_CLIENTS, "an empty tier") | {_FULL_TIER: "a full tier"}
    return Table(
        title="From retry-queue into a tier, 1 KB messages, quorum queues",
        columns=("into", "client", "messages/s", *(f"of {peer.name}" for peer in _SHOVELS)),
        rows=[
            (
                tier,
                _RETRIER if name == _FULL_TIER else name,
                number(median(hops[name])),
                *(number(within_rounds(hops[name], hops[shovel.name]), 2) for shovel in _SHOVELS),
            )
            for name, tier in tiers.items()
        ],
    )


def hop_targets(hops: Hops) -> list[Target]:
    """Against the shovel the same, however that connects; and against itself with a full tier."""
    return [
        *(
            at_least(
                f"One hop against {in_full(shovel.name)}",
                within_rounds(hops[_RETRIER], hops[shovel.name]),
                1.0,
            )
            for shovel in _SHOVELS
        ),
        at_least(
            "One hop while 100,000 wait against an empty tier",
            within_rounds(hops[_FULL_TIER], hops[_RETRIER]),
            0.9,
        ),
    ]
