"""Scale-out: one role in 1, 2 and 4 processes, against one PostgreSQL and one cluster of three.

- collecting: `dlq-queue` into PostgreSQL.
- retrying: `retry-queue` into a tier.

Beside the rate stands what each message costs in CPU on each side. Here they all share a few cores,
so the rate ends where the cores do; the costs say what each side would need elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from statistics import median

import psutil

from bench.clients import MoverProcess, start_retrier
from bench.collector import empty_store, start_collector
from bench.figures import Sample, pace, within_rounds
from bench.letters import dead_letters
from bench.options import Options
from bench.report import Result, Table, number
from bench.retrier import laid_out
from bench.stage import CORES, SOURCE, BenchFailed, Stage, machine_busy, say
from redrive.amqp import connect, parse_addresses
from redrive.broker.private import PrivateCluster
from tests.services.postgres import PrivatePostgres

_ROUNDS = 5
_FULL, _QUICK = 40_000, 4_000
_PROCESSES = (1, 2, 4)
_COLLECTING, _RETRYING = "collecting", "retrying"
_HOUR = "1h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One run: its rate, and µs of CPU a message on each side."""

    per_second: float
    redrive_us: float
    brokers_us: float
    postgres_us: float
    busy: float
    """Of all cores, by anybody."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What the processes work on."""

    stage: Stage
    cluster: PrivateCluster
    postgres: PrivatePostgres

    def brokers_cpu(self) -> float:
        return sum(_cpu(node.pid) for node in self.cluster)


Shares = dict[str, dict[int, list[Share]]]


async def run(stage: Stage, options: Options) -> Result:
    """Both roles, every number of processes, interleaved within each round."""
    messages = _QUICK if options.quick else _FULL
    found: Shares = {role: {count: [] for count in _PROCESSES} for role in _MEASURED}
    with PrivatePostgres() as postgres:
        async with _cluster() as (cluster, looking):
            ground = Ground(looking, cluster, postgres)
            for round_ in range(1 if options.quick else _ROUNDS):
                for role, measure in _MEASURED.items():
                    first = round_ % len(_PROCESSES)
                    for count in (*_PROCESSES[first:], *_PROCESSES[:first]):
                        found[role][count].append(await measure(ground, count, messages))
                say(f"scaleout, round {round_ + 1}: {_words(found)}")
    return _result(found)


@asynccontextmanager
async def _cluster() -> AsyncIterator[tuple[PrivateCluster, Stage]]:
    say("starting a private cluster of three")
    cluster = PrivateCluster()
    try:
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(cluster.wait_ready)
        node = cluster.nodes[0]
        connection = await connect(parse_addresses(node.url()), name="bench")
        try:
            version = str(connection.server_properties.get("version", "unknown"))
            yield cluster, Stage(node, await connection.channel(), version)
        finally:
            await connection.close()
    finally:
        await asyncio.to_thread(cluster.close)


def _words(found: Shares) -> str:
    return ", ".join(
        f"{role} by {count} {shares[-1].per_second:,.0f}/s"
        for role, counts in found.items()
        for count, shares in counts.items()
    )


# One run each


async def _collecting(ground: Ground, count: int, messages: int) -> Share:
    stage = ground.stage
    await stage.declare(SOURCE, "quorum")
    await stage.publish(dead_letters(SOURCE, messages))
    async with empty_store(ground.postgres, "PostgreSQL") as (url, store):
        movers = [await start_collector(stage, url) for _ in range(count)]
        share = await _measured(ground, movers, messages, lambda: stage.drain(SOURCE, messages))
        if (await store.books.ledger()).received != messages:
            raise BenchFailed(f"{count} collectors: not every message is in the store once")
    await stage.delete(SOURCE)
    return share


async def _retrying(ground: Ground, count: int, messages: int) -> Share:
    stage = ground.stage
    async with laid_out(stage, _HOUR):
        await stage.fill("retry-queue", messages)
        movers = [await start_retrier(stage, _HOUR, "retry-queue") for _ in range(count)]
        return await _measured(
            ground, movers, messages, lambda: stage.watch("queue.delay.1", messages)
        )


_MEASURED = {_COLLECTING: _collecting, _RETRYING: _retrying}


async def _measured(
    ground: Ground,
    movers: Sequence[MoverProcess],
    messages: int,
    done: Callable[[], Awaitable[list[Sample]]],
) -> Share:
    try:
        await ground.stage.calm()
        before = (machine_busy(), ground.brokers_cpu(), _cpu(ground.postgres.pid))
        for mover in movers:
            await mover.go()
        samples = await done()
        busy = machine_busy() - before[0]
        used = [(await mover.finish()).cpu_s for mover in movers]
        brokers = ground.brokers_cpu() - before[1]
        postgres = _cpu(ground.postgres.pid) - before[2]
    finally:
        for mover in movers:
            await mover.abandon()
    return Share(
        per_second=pace(samples),
        redrive_us=sum(used) / messages * 1e6,
        brokers_us=brokers / messages * 1e6,
        postgres_us=postgres / messages * 1e6,
        busy=busy / (samples[-1][0] - samples[0][0]) / CORES,
    )


def _cpu(pid: int) -> float:
    """Seconds that a process and all that it ever started have used."""
    process = psutil.Process(pid)
    used = sum(process.cpu_times()[:4])  # with those of its children that have ended
    return used + sum(sum(child.cpu_times()[:4]) for child in process.children(recursive=True))


# The table


def _result(found: Shares) -> Result:
    table = Table(
        title="One role in several processes, one PostgreSQL, three nodes, quorum queues",
        columns=(
            "role",
            "processes",
            "messages/s",
            "of one",
            "CPU µs Redrive",
            "CPU µs brokers",
            "CPU µs PostgreSQL",
            "machine busy",
        ),
        rows=[
            (role, str(count), *_cells(shares, counts[1]))
            for role, counts in found.items()
            for count, shares in counts.items()
        ],
    )
    data = {
        role: {count: [asdict(share) for share in shares] for count, shares in counts.items()}
        for role, counts in found.items()
    }
    return Result(name="scaleout", tables=[table], targets=[], data=data)


def _cells(shares: Sequence[Share], alone: Sequence[Share]) -> tuple[str, ...]:
    rates, one = ([each.per_second for each in group] for group in (shares, alone))
    return (
        number(median(rates)),
        number(within_rounds(rates, one), 2),
        number(median(each.redrive_us for each in shares)),
        number(median(each.brokers_us for each in shares)),
        number(median(each.postgres_us for each in shares)),
        f"{median(each.busy for each in shares) * 100:.0f} %",
    )
