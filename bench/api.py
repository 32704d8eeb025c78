"""The API: how long answers take in a large store, and what people who look on cost the collector.

- reading: lists, groups, stats and one letter over HTTP, with 10,000 letters and with a million.
- live: the collector with a server beside it, nobody listening, and with 50 clients that listen to
  its live events.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import httpx

from bench import reading
from bench.clients import MoverProcess
from bench.collector import ENGINES, empty_store, start_collector, timed
from bench.figures import Target, at_least, below, within_rounds
from bench.letters import dead_letters
from bench.movers import Order
from bench.options import Options
from bench.report import Result, Table, number
from bench.stage import SOURCE, BenchFailed, Stage, say
from redrive.broker.processes import GuardedProcess, free_ports
from tests.services.postgres import PrivatePostgres

_ROUNDS = 5
_CLIENTS = 50
_FULL, _QUICK = 40_000, 5_000
_TIMES, _TIMES_QUICK = 200, 20
_MOST = 3.0
_STARTS_WITHIN = 30.0
_PROMISED = ("letters", "groups")
_QUESTIONS = {
    "letters": "/api/v1/letters?limit=100",
    "letters of a state": "/api/v1/letters?limit=100&status=pending",
    "letters of a queue": "/api/v1/letters?limit=100&queue={queue}",
    "one letter": "/api/v1/letters/{letter}",
    "groups": "/api/v1/groups",
    "stats": "/api/v1/stats",
}

Waits = dict[str, float]
"""Milliseconds within which 95 of 100 answers came, by question."""


async def run(stage: Stage, options: Options) -> Result:
    """Both parts, on both engines."""
    few, many = (1_000, 10_000) if options.quick else (10_000, 1_000_000)
    times = _TIMES_QUICK if options.quick else _TIMES
    waits: dict[str, tuple[Waits, Waits]] = {}
    rates: dict[str, tuple[list[float], list[float]]] = {}
    with PrivatePostgres() as server:
        for engine in ENGINES:
            say(f"api, {engine}: {few:,} and {many:,} letters")
            async with empty_store(server, engine) as (url, store):
                await reading.fill(store, 0, few)
                first = await _ask(stage, url, times)
                await reading.fill(store, few, many)
                waits[engine] = (first, await _ask(stage, url, times))
        for engine in ENGINES:
            rates[engine] = await _live(stage, server, engine, options)
    return _result((few, many), waits, rates)


# Reading


async def _ask(stage: Stage, store_url: str, times: int) -> Waits:
    async with (
        _server(stage, store_url) as address,
        httpx.AsyncClient(base_url=address, trust_env=False, timeout=60) as client,
    ):
        newest = (await client.get("/api/v1/letters?limit=1")).json()["items"][0]
        words = {"letter": newest["id"], "queue": newest["origin"]["queue"]}
        found: dict[str, list[float]] = {name: [] for name in _QUESTIONS}
        for _ in range(times):
            for name, path in _QUESTIONS.items():
                began = time.perf_counter()
                answer = await client.get(path.format(**words))
                found[name].append((time.perf_counter() - began) * 1000)
                answer.raise_for_status()
    return {name: _p95(each) for name, each in found.items()}


def _p95(waits: Sequence[float]) -> float:
    return sorted(waits)[math.ceil(len(waits) * 0.95) - 1]


@asynccontextmanager
async def _server(stage: Stage, store_url: str) -> AsyncIterator[str]:
    """The product's server in a process of its own; its address."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="redrive-bench-") as folder:
        config = Path(folder) / "redrive.toml"
        config.write_text(
            f"[broker]\nurl = {json.dumps(stage.url)}\n[store]\nurl = {json.dumps(store_url)}\n"
            f"[server]\nport = {port}\n"
        )
        command = [sys.executable, "-m", "redrive", "run", "--roles", "server"]
        process = GuardedProcess(
            [*command, "--config", str(config)],
            env={"HOME": folder},
            cwd=Path(folder),
            output=Path(folder) / "log",
        )
        try:
            address = f"http://127.0.0.1:{port}"
            await _answers(address)
            yield address
        finally:
            await asyncio.to_thread(process.kill)


async def _answers(address: str) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                if (await client.get("/api/v1/session")).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
    raise BenchFailed("the server did not start")


# Live


async def _live(
    stage: Stage, server: PrivatePostgres, engine: str, options: Options
) -> tuple[list[float], list[float]]:
    """Messages a second that the collector takes, with nobody listening and with many."""
    alone: list[float] = []
    watched: list[float] = []
    for round_ in range(1 if options.quick else _ROUNDS):
        order = ((alone, 0), (watched, _CLIENTS))
        for rates, clients in order if round_ % 2 == 0 else reversed(order):
            rates.append(await _collect(stage, server, engine, clients, options))
        say(f"api, live, {engine}, round {round_ + 1}: {alone[-1]:,.0f}/s, {watched[-1]:,.0f}/s")
    return alone, watched


async def _collect(
    stage: Stage, server: PrivatePostgres, engine: str, clients: int, options: Options
) -> float:
    messages = _QUICK if options.quick else _FULL
    await stage.declare(SOURCE, "quorum")
    await stage.publish(dead_letters(SOURCE, messages))
    async with empty_store(server, engine) as (url, _), _server(stage, url) as address:
        order = Order(address, str(clients), "-")
        listeners = await MoverProcess.start("bench.movers.listeners", order)
        try:
            await listeners.go()
            rate, _ = await timed(stage, await start_collector(stage, url), messages)
            await listeners.finish()
        finally:
            await listeners.abandon()
    await stage.delete(SOURCE)
    return rate


def _result(
    sizes: tuple[int, int],
    waits: dict[str, tuple[Waits, Waits]],
    rates: dict[str, tuple[list[float], list[float]]],
) -> Result:
    tables = [
        Table(
            title=f"Answers over HTTP, {engine}: 95 of 100 came within",
            columns=("what", f"ms with {sizes[0]:,}", f"ms with {sizes[1]:,}", "ratio"),
            rows=[
                (name, number(few[name], 1), number(many[name], 1), f"{many[name] / few[name]:.2f}")
                for name in _QUESTIONS
            ],
        )
        for engine, (few, many) in waits.items()
    ]
    live = Table(
        title=f"Collecting with a server beside it, and {_CLIENTS} clients listening",
        columns=("store", "messages/s, nobody", f"messages/s, {_CLIENTS} clients", "ratio"),
        rows=[
            (
                engine,
                number(median(alone)),
                number(median(watched)),
                f"{within_rounds(watched, alone):.2f}",
            )
            for engine, (alone, watched) in rates.items()
        ],
    )
    targets: list[Target] = [
        below(f"The answer with {name}, {engine}", many[name] / few[name], _MOST, "times")
        for engine, (few, many) in waits.items()
        for name in _PROMISED
    ]
    targets += [
        at_least(f"Collecting while {_CLIENTS} listen, {engine}", within_rounds(*rate[::-1]), 0.95)
        for engine, rate in rates.items()
    ]
    data = {"milliseconds": waits, "rates": rates, "sizes": sizes}
    return Result(name="api", tables=[*tables, live], targets=targets, data=data)
