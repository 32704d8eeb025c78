"""Metrics and alerts: what they cost the collector, and how fast `/metrics` answers.

- collecting: the same dead messages with metrics and alerts beside the collector, and without.
- reading: `/metrics`, and all default alerts judged, with few letters and with a million.
"""

from __future__ import annotations

from datetime import timedelta
from statistics import median
from typing import Any

from bench import reading
from bench.collector import ENGINES, Rates, empty_store, start_collector, timed
from bench.figures import Target, below, within_rounds
from bench.letters import dead_letters
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import SOURCE, BenchFailed, Stage, say
from redrive.domain.alerting import DEFAULT_RULES
from redrive.server.metrics import expose
from redrive.store.store import Store
from redrive.work.alert_message import AlertWords
from redrive.work.alert_sinks import Sinks
from redrive.work.alert_watch import AlertWatch
from redrive.work.redact import NO_REDACTION
from tests.services.postgres import PrivatePostgres

_ROUNDS = 5
_FULL, _QUICK = 100_000, 10_000
_MOST_COST = 3.0
"""Per cent of the rate."""
_MOST_MS = 100.0
_MOVERS = {"plain": "bench.movers.collector", "watched": "bench.movers.collector_watched"}


async def run(stage: Stage, options: Options) -> Result:
    """Both parts."""
    with PrivatePostgres() as server:
        rates: dict[str, Rates] = {engine: {name: [] for name in _MOVERS} for engine in ENGINES}
        costs: dict[str, Rates] = {engine: {name: [] for name in _MOVERS} for engine in ENGINES}
        for round_ in range(1 if options.quick else _ROUNDS):
            for engine in ENGINES:
                # In turns, so that neither always comes first.
                names = list(_MOVERS) if round_ % 2 else list(reversed(_MOVERS))
                for name in names:
                    rate, cpu = await _round(stage, server, engine, name, options)
                    rates[engine][name].append(rate)
                    costs[engine][name].append(cpu)
                say(f"metrics, round {round_ + 1}, {engine}: {_words(rates[engine])}")
        asked = {engine: await _asking(server, engine, options) for engine in ENGINES}
    return _result(rates, costs, asked)


def _words(rates: Rates) -> str:
    return ", ".join(f"{name} {found[-1]:,.0f}/s" for name, found in rates.items())


async def _round(
    stage: Stage, server: PrivatePostgres, engine: str, name: str, options: Options
) -> tuple[float, float]:
    """Messages a second, and µs of CPU of the process for each."""
    messages = _QUICK if options.quick else _FULL
    await stage.declare(SOURCE, "quorum")
    await stage.publish(dead_letters(SOURCE, messages))
    async with empty_store(server, engine) as (url, store):
        moving = await start_collector(stage, url, _MOVERS[name])
        rate, cpu = await timed(stage, moving, messages)
        if (await store.books.ledger()).received != messages:
            raise BenchFailed(f"{engine}, {name}: not every message is in the store")
    await stage.delete(SOURCE)
    return rate, cpu


# Asking


async def _asking(
    server: PrivatePostgres, engine: str, options: Options
) -> dict[int, dict[str, float]]:
    """Milliseconds of each question, by the number of letters."""
    sizes = (1_000, 20_000) if options.quick else (10_000, 1_000_000)
    found: dict[int, dict[str, float]] = {}
    async with empty_store(server, engine) as (_, store):
        before = 0
        for size in sizes:
            say(f"metrics, {engine}: {size:,} letters")
            await reading.fill(store, before, size)
            found[size], before = await _ask(store), size
    return found


async def _ask(store: Store) -> dict[str, float]:
    sinks = Sinks(())
    alerts = AlertWatch(store.alerts, DEFAULT_RULES, sinks, AlertWords(NO_REDACTION, None))

    async def scrape() -> None:
        expose(await store.figures.read())

    async def judge() -> None:
        store.clock.ahead += timedelta(seconds=15)  # or it would have been done in this step
        await alerts.round()

    await judge()  # the first checks the ledger, as every fortieth does
    asked = {
        "/metrics": await reading.time_of(scrape),
        "all alerts judged": await reading.time_of(judge),
    }
    sinks.close()
    return asked


def _result(
    rates: dict[str, Rates],
    costs: dict[str, Rates],
    asked: dict[str, dict[int, dict[str, float]]],
) -> Result:
    ratios = {
        engine: within_rounds(found["watched"], found["plain"]) for engine, found in rates.items()
    }
    collecting = Table(
        title="Collecting with metrics and alerts in the same process, and without",
        columns=(
            "store",
            "messages/s without",
            "messages/s with",
            "ratio",
            "CPU µs without",
            "CPU µs with",
        ),
        rows=[
            (
                engine,
                number(median(found["plain"])),
                number(median(found["watched"])),
                number(ratios[engine], 3),
                *(number(median(costs[engine][name]), 1) for name in _MOVERS),
            )
            for engine, found in rates.items()
        ],
    )
    reading_ = Table(
        title="What an answer takes",
        columns=("store", "letters", "/metrics, ms", "all alerts judged, ms"),
        rows=[
            (engine, number(size), *(number(took, 1) for took in found.values()))
            for engine, sizes in asked.items()
            for size, found in sizes.items()
        ],
    )
    targets: list[Target] = [
        below(f"Cost of metrics and alerts, {engine}", (1 - ratio) * 100, _MOST_COST, "%")
        for engine, ratio in ratios.items()
    ]
    for engine, sizes in asked.items():
        size = max(sizes)
        took = sizes[size]["/metrics"]
        targets.append(below(f"/metrics at {size:,} letters, {engine}", took, _MOST_MS, "ms"))
    data: dict[str, Any] = {"rates": rates, "cpu_us": costs, "asked": asked}
    return Result(name="metrics", tables=[collecting, reading_], targets=targets, data=data)
