"""Metrics and alerts: what they cost the collector, and how fast `/metrics` answers.

- collecting: one collector at work, with metrics and alerts beside it in its process for a few
  seconds and without them for as long, many times over. Rates of whole runs differ by more than the
  cost that is looked for; those of two short spans, one after the other, hardly do.
- reading: `/metrics`, and all default alerts judged, with few letters and with a million.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

import psutil

from bench import reading
from bench.clients import MoverProcess
from bench.collector import ENGINES, empty_store, start_collector
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

_PAIRS, _PAIRS_QUICK = 40, 2
_SPAN, _SPAN_QUICK = 4.0, 1.0
"""Seconds. Everything is done at the beginning of each, so more often than every 15 s."""
_AHEAD = 160_000
"""More messages than two spans take, on most machines; else twice as many from then on."""
_MOST_COST = 3.0
"""Per cent of the rate."""
_MOST_MS = 100.0
_WATCHER = "bench.movers.collector_watched"
_WITH, _WITHOUT = "with", "without"
_BOTH = (_WITHOUT, _WITH)
_SIGNALS = {_WITH: signal.SIGUSR1, _WITHOUT: signal.SIGUSR2}

Asked = dict[int, dict[str, float]]
"""Milliseconds of each question, by the number of letters."""


@dataclass(frozen=True, slots=True)
class Spans:
    """One engine's, in pairs: messages a second, and µs of CPU of the process for each."""

    rates: dict[str, list[float]]
    costs: dict[str, list[float]]

    def ratio(self) -> float:
        return within_rounds(self.rates[_WITH], self.rates[_WITHOUT])


async def run(stage: Stage, options: Options) -> Result:
    """Both parts, on both engines."""
    spans: dict[str, Spans] = {}
    asked: dict[str, Asked] = {}
    with PrivatePostgres() as server:
        for engine in ENGINES:
            async with empty_store(server, engine) as (url, store):
                few, many = (1_000, 20_000) if options.quick else (10_000, 1_000_000)
                await reading.fill(store, 0, few)
                asked[engine] = {few: await _ask(store)}
                spans[engine] = await _collect(stage, engine, url, options)
                collected = (await store.books.ledger()).received
                say(f"metrics, {engine}: {collected:,} letters collected")
                if collected < many:
                    await reading.fill(store, collected, many)
                await store.books.compact()  # a janitor would have, at most half a minute ago
                asked[engine][max(collected, many)] = await _ask(store)
    return _result(spans, asked)


# Collecting


async def _collect(stage: Stage, engine: str, url: str, options: Options) -> Spans:
    pairs, seconds = (_PAIRS_QUICK, _SPAN_QUICK) if options.quick else (_PAIRS, _SPAN)
    found = Spans({_WITH: [], _WITHOUT: []}, {_WITH: [], _WITHOUT: []})
    await stage.declare(SOURCE, "quorum")
    ahead = published = _AHEAD
    await stage.publish(dead_letters(SOURCE, published))
    collector = await start_collector(stage, url, _WATCHER)
    try:
        await collector.go()
        while (pair := len(found.rates[_WITH])) < pairs:
            missing = ahead - await stage.depth(SOURCE)
            await stage.publish(dead_letters(SOURCE, missing, first=published))
            published += missing
            await asyncio.sleep(1.0)  # the broker digests what it got
            # In turns, so that neither always comes first.
            order = _BOTH if pair % 2 else (_WITH, _WITHOUT)
            spans = [(which, await _span(stage, collector, which, seconds)) for which in order]
            measured = [(which, span) for which, span in spans if span is not None]
            if len(measured) < len(spans):
                ahead *= 2
                say(f"metrics, {engine}: it had nothing left to do; {ahead:,} from now on")
                continue
            for which, (rate, cost) in measured:
                found.rates[which].append(rate)
                found.costs[which].append(cost)
            if (pair + 1) % 10 == 0:
                say(f"metrics, {engine}, {pair + 1} of {pairs}: {found.ratio():.3f} so far")
        os.kill(collector.pid, _SIGNALS[_WITHOUT])
        await stage.drain(SOURCE, 0)
        await collector.finish()
    finally:
        await collector.abandon()
    await stage.delete(SOURCE)
    return found


async def _span(
    stage: Stage, collector: MoverProcess, which: str, seconds: float
) -> tuple[float, float] | None:
    """Messages a second, and µs of CPU of the process for each; None if it took all there were."""
    process = psutil.Process(collector.pid)
    os.kill(collector.pid, _SIGNALS[which])
    began, before, cpu = time.monotonic(), await stage.depth(SOURCE), sum(process.cpu_times()[:2])
    await asyncio.sleep(seconds)
    after = await stage.depth(SOURCE)
    took, used = time.monotonic() - began, sum(process.cpu_times()[:2]) - cpu
    if after == 0:
        return None
    if before == after:
        raise BenchFailed("the collector takes nothing")
    return (before - after) / took, used / (before - after) * 1e6


# Asking


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


def _result(spans: dict[str, Spans], asked: dict[str, Asked]) -> Result:
    collecting = Table(
        title="Collecting with metrics and alerts in the same process, and without",
        columns=(
            "store",
            *(f"messages/s {which}" for which in _BOTH),
            "ratio",
            *(f"CPU µs {which}" for which in _BOTH),
        ),
        rows=[
            (
                engine,
                *(number(median(found.rates[which])) for which in _BOTH),
                number(found.ratio(), 3),
                *(number(median(found.costs[which]), 1) for which in _BOTH),
            )
            for engine, found in spans.items()
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
        below(f"Cost of metrics and alerts, {engine}", (1 - found.ratio()) * 100, _MOST_COST, "%")
        for engine, found in spans.items()
    ]
    for engine, sizes in asked.items():
        size = max(sizes)
        took = sizes[size]["/metrics"]
        targets.append(below(f"/metrics at {size:,} letters, {engine}", took, _MOST_MS, "ms"))
    data: dict[str, Any] = {
        "rates": {engine: found.rates for engine, found in spans.items()},
        "cpu_us": {engine: found.costs for engine, found in spans.items()},
        "asked": asked,
    }
    return Result(name="metrics", tables=[collecting, reading_], targets=targets, data=data)
