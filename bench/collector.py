"""The collector: end to end into the store, against the shovel; and what a large store costs.

- collecting: the same dead messages taken from one queue by the collector (SQLite, PostgreSQL), and
  moved to another queue by the shovels. Every message must be in the store afterwards.
- memory: a million messages stream through the collector, and its process does not grow.
- reading: lists, filters and groups with 10,000 letters and with a million.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench import reading
from bench.clients import SHOVELS, MoverProcess, Moving, in_full
from bench.figures import Target, at_least, below, pace, within_rounds
from bench.letters import dead_letters
from bench.movers import Order
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import SOURCE, TARGET, BenchFailed, Stage, say
from redrive.store.engine import open_database
from redrive.store.store import Store, open_letter_store
from redrive.store.upgrade import upgrade
from tests.services.postgres import PrivatePostgres

_ROUNDS = 5
_FULL, _QUICK = 40_000, 5_000
_MANY, _WARM, _CHUNK, _AHEAD = 1_000_000, 50_000, 5_000, 20_000
_MAX_GROWTH_MB = 50
_STUCK_AFTER = 120.0
ENGINES = ("SQLite", "PostgreSQL")
_CLIENTS = (*ENGINES, *(shovel.name for shovel in SHOVELS))

Rates = dict[str, list[float]]
"""Messages a second of each, one for each round."""


async def run(stage: Stage, options: Options) -> Result:
    """All parts."""
    with PrivatePostgres() as server:
        rates: Rates = {name: [] for name in _CLIENTS}
        costs: Rates = {name: [] for name in ENGINES}
        for round_ in range(1 if options.quick else _ROUNDS):
            first = round_ % len(_CLIENTS)
            for name in (*_CLIENTS[first:], *_CLIENTS[:first]):
                await _round(stage, server, name, options, (rates, costs))
            say(f"collector, round {round_ + 1}: {_words(rates)}")
        grown = await _growth(stage, server, options)
        read = [await _reading(server, engine, options) for engine in ENGINES]
    return _result(rates, costs, grown, read)


def _words(rates: Rates) -> str:
    return ", ".join(f"{name} {found[-1]:,.0f}/s" for name, found in rates.items())


async def _round(
    stage: Stage, server: PrivatePostgres, name: str, options: Options, into: tuple[Rates, Rates]
) -> None:
    messages = _QUICK if options.quick else _FULL
    await stage.declare(SOURCE, "quorum")
    await stage.declare(TARGET, "quorum")
    await stage.publish(dead_letters(SOURCE, messages))
    if name in ENGINES:
        async with empty_store(server, name) as (url, store):
            moving: Moving = await start_collector(stage, url)
            rate, cpu = await timed(
                stage, moving, messages, last=functools.partial(stored, store, messages)
            )
        into[1][name].append(cpu)
    else:
        client = next(shovel for shovel in SHOVELS if shovel.name == name)
        moving = await client.prepare(stage, Order(stage.url, SOURCE, TARGET))
        rate, _ = await timed(stage, moving, messages)
    into[0][name].append(rate)
    await stage.delete(SOURCE, TARGET)


async def timed(
    stage: Stage,
    moving: Moving,
    messages: int,
    *,
    last: Callable[[], Awaitable[None]] | None = None,
) -> tuple[float, float]:
    """Messages a second, and µs of CPU of the client's own process for each. `last` is waited for
    before the client is told to stop."""
    try:
        await stage.calm()
        await moving.go()
        samples = await stage.drain(SOURCE, messages)
        if last is not None:
            await last()
        usage = await moving.finish()
    finally:
        await moving.abandon()
    return pace(samples), usage.cpu_s / messages * 1e6 if usage else 0.0


async def start_collector(
    stage: Stage, store_url: str, mover: str = "bench.movers.collector"
) -> MoverProcess:
    """The product's collector, of the queue `SOURCE`."""
    return await MoverProcess.start(mover, Order(stage.url, SOURCE, "-"), store_url)


@asynccontextmanager
async def empty_store(server: PrivatePostgres, engine: str) -> AsyncIterator[tuple[str, Store]]:
    """An empty store, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="redrive-bench-", dir="/var/tmp") as folder:
        if engine == "SQLite":
            url = f"sqlite:///{Path(folder) / 'redrive.db'}"
        else:
            url = server.url(server.create_database())
        database = open_database(url, ours=True)
        await upgrade(database)
        await database.close()
        store = await open_letter_store(url)
        try:
            yield url, store
        finally:
            await store.close()


# Memory


async def _growth(stage: Stage, server: PrivatePostgres, options: Options) -> dict[str, float]:
    """MB of the collector's process after a while, and the most after that."""
    messages, warm = (_MANY // 100, _WARM // 10) if options.quick else (_MANY, _WARM)
    await stage.declare(SOURCE, "quorum")
    async with empty_store(server, "PostgreSQL") as (url, store):
        collector = await start_collector(stage, url)
        try:
            await collector.go()
            process = psutil.Process(collector.pid)
            seen: list[float] = []
            for first in range(0, messages, _CHUNK):
                await _not_far_ahead(stage, f"the collector stopped before message {first}")
                await stage.publish(dead_letters(SOURCE, _CHUNK, first=first))
                if first >= warm:
                    seen.append(process.memory_info().rss / 2**20)
                if first and first % 100_000 == 0:
                    say(f"collector: {first:,} of {messages:,} messages streamed")
            await stored(store, messages)
            await collector.finish()
        finally:
            await collector.abandon()
    await stage.delete(SOURCE)
    return {"messages": messages, "warm_mb": seen[0], "peak_mb": max(seen), "last_mb": seen[-1]}


async def stored(store: Store, messages: int) -> None:
    """Wait until all are in the store: what is on its way to a collector that stops goes back."""
    deadline = time.monotonic() + _STUCK_AFTER
    while (there := (await store.books.ledger()).received) != messages:
        if time.monotonic() > deadline:
            raise BenchFailed(f"{there:,} of {messages:,} messages are stored")
        await asyncio.sleep(0.2)


async def _not_far_ahead(stage: Stage, trouble: str) -> None:
    began = time.monotonic()
    while await stage.depth(SOURCE) > _AHEAD:
        if time.monotonic() - began > _STUCK_AFTER:
            raise BenchFailed(trouble)
        await asyncio.sleep(0.02)


# Reading


async def _reading(server: PrivatePostgres, engine: str, options: Options) -> reading.Reading:
    few, many = (1_000, 10_000) if options.quick else (10_000, 1_000_000)
    async with empty_store(server, engine) as (_, store):
        say(f"reading, {engine}: {few:,} and {many:,} letters")
        return await reading.measure(store, engine, few, many)


def _result(
    rates: Rates, costs: Rates, grown: dict[str, float], read: Sequence[reading.Reading]
) -> Result:
    collecting = Table(
        title="Collecting 1 KB dead messages from a quorum queue, everything on",
        columns=("by", "messages/s", "CPU µs", *(f"of {in_full(s.name)}" for s in SHOVELS)),
        rows=[
            (
                name,
                number(median(rates[name])),
                number(median(costs[name]) if name in costs else None),
                *(number(within_rounds(rates[name], rates[s.name]), 2) for s in SHOVELS),
            )
            for name in _CLIENTS
        ],
    )
    memory = Table(
        title="Memory of the collector's process (PostgreSQL) while messages stream through it",
        columns=("messages", "MB after a while", "MB at the end", "MB at most"),
        rows=[
            (
                number(grown["messages"]),
                *(number(grown[key], 1) for key in ("warm_mb", "last_mb", "peak_mb")),
            )
        ],
    )
    targets: list[Target] = [
        at_least(
            f"Collecting into {engine} against {in_full(shovel.name)}",
            within_rounds(rates[engine], rates[shovel.name]),
            0.5,
        )
        for engine in ENGINES
        for shovel in SHOVELS
    ]
    growth = grown["peak_mb"] - grown["warm_mb"]
    targets.append(below("Growth of the collector's memory", growth, _MAX_GROWTH_MB, "MB"))
    targets += [target for each in read for target in each.targets()]
    data: dict[str, Any] = {
        "rates": rates,
        "cpu_us": costs,
        "memory": grown,
        "reading": [each.data() for each in read],
    }
    return Result(
        name="collector",
        tables=[collecting, memory, *(each.table() for each in read)],
        targets=targets,
        data=data,
    )
