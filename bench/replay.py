"""A bulk replay: letters back to a queue, against the shovel; and choosing few letters of many.

- sending: a job sends every letter of a store to one quorum queue, and the shovels move the same
  messages there from another. Every letter must be in the queue, and `sent`, afterwards.
- choosing: a job for 10,000 letters is made in a store of 50,000, of which they are all that match,
  and in one of a million.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from statistics import median
from typing import Any

from sqlalchemy import text

from bench.clients import SHOVELS, MoverProcess, Moving, in_full
from bench.collector import ENGINES, empty_store
from bench.figures import Target, at_least, below, pace, within_rounds
from bench.letters import ERRORS, dead_letters
from bench.movers import Order
from bench.options import Options
from bench.reading import fill
from bench.report import Result, Table, number
from bench.stage import SOURCE, TARGET, BenchFailed, Stage, say
from redrive.broker.topology import return_key
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Result as Sending
from redrive.domain.replay import ReplayOrder
from redrive.settings.sections import TopologySettings
from redrive.store.store import Store
from tests.services.postgres import PrivatePostgres

_ROUNDS = 5
_FULL, _QUICK = 40_000, 5_000
_TIMES = 5
_CHOSEN = 10_000
_MOST = 3.0
_CLIENTS = (*ENGINES, *(shovel.name for shovel in SHOVELS))

Rates = dict[str, list[float]]
"""Letters a second of each, one for each round."""


async def run(stage: Stage, options: Options) -> Result:
    """Both parts."""
    rates: Rates = {name: [] for name in _CLIENTS}
    costs: Rates = {name: [] for name in ENGINES}
    exchange = TopologySettings().names.return_exchange
    await stage.channel.declare_exchange(exchange, "topic")
    with PrivatePostgres() as server:
        for round_ in range(1 if options.quick else _ROUNDS):
            first = round_ % len(_CLIENTS)
            for name in (*_CLIENTS[first:], *_CLIENTS[:first]):
                await _round(stage, server, name, options, (rates, costs))
            words = ", ".join(f"{name} {found[-1]:,.0f}/s" for name, found in rates.items())
            say(f"replay, round {round_ + 1}: {words}")
        chosen = {engine: await _choosing(server, engine, options) for engine in ENGINES}
    return _result(rates, costs, chosen)


async def _round(
    stage: Stage, server: PrivatePostgres, name: str, options: Options, into: tuple[Rates, Rates]
) -> None:
    letters = _QUICK if options.quick else _FULL
    await stage.declare(TARGET, "quorum")
    exchange = TopologySettings().names.return_exchange
    await stage.channel.bind_queue(TARGET, exchange, return_key(TARGET))
    if name in ENGINES:
        async with empty_store(server, name) as (url, store):
            await fill(store, 0, letters)
            order = Order(stage.url, "-", TARGET)
            moving: Moving = await MoverProcess.start("bench.movers.replay", order, url)
            rate, cpu = await _measure(stage, moving, letters)
            await _require_sent(store, name, letters)
        into[1][name].append(cpu)
    else:
        await stage.declare(SOURCE, "quorum")
        await stage.publish(dead_letters(SOURCE, letters))
        client = next(shovel for shovel in SHOVELS if shovel.name == name)
        moving = await client.prepare(stage, Order(stage.url, SOURCE, TARGET))
        rate, _ = await _measure(stage, moving, letters)
        await stage.delete(SOURCE)
    into[0][name].append(rate)
    await stage.delete(TARGET)


async def _measure(stage: Stage, moving: Moving, letters: int) -> tuple[float, float]:
    """Letters a second, and µs of CPU of the client's own process for each."""
    try:
        await stage.calm()
        await moving.go()
        samples = await stage.watch(TARGET, letters)
        usage = await moving.finish()
    finally:
        await moving.abandon()
    return pace(samples), usage.cpu_s / letters * 1e6 if usage else 0.0


async def _require_sent(store: Store, engine: str, letters: int) -> None:
    (job,) = (await store.replays.page()).items
    if await store.replays.results(job.id) != {Sending.SENT: letters}:
        raise BenchFailed(f"{engine}: not every letter is recorded as sent")


# Choosing


async def _choosing(server: PrivatePostgres, engine: str, options: Options) -> tuple[float, float]:
    """Milliseconds for a job of the same size, with few letters and with many."""
    chosen, many = (200, 20_000) if options.quick else (_CHOSEN, 1_000_000)
    async with empty_store(server, engine) as (_, store):
        just_enough = chosen * len(ERRORS)
        say(f"choosing, {engine}: {chosen:,} of {just_enough:,} and of {many:,} letters")
        await fill(store, 0, just_enough)
        few = await _time(store, chosen)
        await fill(store, just_enough, many)
        return few, await _time(store, chosen)


async def analyze(store: Store) -> None:
    """As PostgreSQL does by itself within a minute; a store is filled faster than that here."""
    if not store.database.is_sqlite:
        async with store.database.writing() as connection:
            await connection.execute(text("ANALYZE"))


async def _time(store: Store, chosen: int) -> float:
    """By a filter that an index serves, as a group or a queue is."""
    await analyze(store)
    found = []
    for _ in range(_TIMES):
        name = letter_id(datetime.now(UTC), random.getrandbits(74))
        order = ReplayOrder(actor="bench", described="chosen")
        began = time.perf_counter()
        job = await store.replays.create(
            name, "/", Filters(error_type="TIMEOUT_ERROR"), order, limit=chosen
        )
        found.append((time.perf_counter() - began) * 1000)
        if job is None or job.letters != chosen:
            raise BenchFailed("not as many letters were chosen as there are")
    return median(found)


def _result(rates: Rates, costs: Rates, chosen: dict[str, tuple[float, float]]) -> Result:
    sending = Table(
        title="Sending letters of 1 KB to a quorum queue, everything on",
        columns=("by", "letters/s", "CPU µs", *(f"of {in_full(s.name)}" for s in SHOVELS)),
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
    choosing = Table(
        title="Making a job of as many letters, of few and of many",
        columns=("store", "ms of few", "ms of many", "ratio"),
        rows=[
            (engine, number(few, 1), number(many, 1), f"{many / few:.2f}")
            for engine, (few, many) in chosen.items()
        ],
    )
    targets: list[Target] = [
        at_least(
            f"Replay from {engine} against {in_full(shovel.name)}",
            within_rounds(rates[engine], rates[shovel.name]),
            0.4,
        )
        for engine in ENGINES
        for shovel in SHOVELS
    ]
    targets += [
        below(f"Choosing, {engine}, many against few", many / few, _MOST, "times")
        for engine, (few, many) in chosen.items()
    ]
    data: dict[str, Any] = {"rates": rates, "cpu_us": costs, "choosing": chosen}
    return Result(name="replay", tables=[sending, choosing], targets=targets, data=data)
