"""Scale-out: `redrive run` in 1, 2 and 4 processes, against one PostgreSQL and a cluster of three.

- collecting, `--roles collector`: `dlq-queue` into PostgreSQL.
- retrying, `--roles retrier`: `retry-queue` into a tier.
- reviving, `--roles worker`: letters that are due, out of PostgreSQL into their origin queue.

The processes are what a user starts, with default settings but for the tier (an hour, so that
nothing comes back meanwhile), a policy and a rule for everything. Nothing is measured of their
start: when all of them work (each has logged `run.ready`), they are paused (SIGSTOP), the queue is
filled or the letters become due, and all go on at once. The rate is that from the first message
seen to have moved to the last. Of `dlq-queue` only what is ready is seen, so what the processes
have in hand counts neither at the beginning nor at the end, where it is the same: their prefetch.
Afterwards every message must be in the store, in the tier, or in the origin queue, once.

Beside the rate stands what each message costs in CPU on each side, over the same stretch. Here they
all share a few cores, so the rate ends where the cores do; the costs say what each side would need
elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

import psutil
from sqlalchemy import update

from bench.collector import empty_store, stored
from bench.figures import Sample, pace, within_rounds
from bench.letters import dead_letters
from bench.movers import PREFETCH
from bench.options import Options
from bench.reading import fill
from bench.replay import analyze
from bench.report import Result, Table, number
from bench.retrier import laid_out
from bench.stage import CORES, TARGET, BenchFailed, Stage, machine_busy, say
from redrive.amqp import Properties, connect, parse_addresses
from redrive.broker.private import PrivateCluster
from redrive.broker.processes import GuardedProcess
from redrive.broker.topology import return_key
from redrive.domain import headers
from redrive.domain.strategy import Strategy
from redrive.store.schema import redrive_letter
from redrive.store.store import Store
from redrive.work.understand import utc_now
from tests.acceptance.command_line import ENDS_WITHIN, CommandLine
from tests.services.eventually import eventually_async
from tests.services.postgres import PrivatePostgres

_ROUNDS = 5
_QUICK = 4
"""The part of the messages: more than four processes fetch before they begin."""
_PROCESSES = (1, 2, 4)
_HOUR = "1h"
_DEAD, _RETRY, _TIER = "dlq-queue", "retry-queue", "queue.delay.1"
_SETTINGS = """\
[[policy]]
name = "#"
[[classify]]
error_type = "*"
strategy = "immediate"
"""
_DUE_IN = timedelta(seconds=30)
"""What four processes have to start."""


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
    """All roles, every number of processes, interleaved within each round."""
    found: Shares = {role: {count: [] for count in _PROCESSES} for role in _MEASURED}
    with PrivatePostgres() as postgres:
        async with _cluster() as (cluster, looking):
            ground = Ground(looking, cluster, postgres)
            for round_ in range(1 if options.quick else _ROUNDS):
                for role, (measure, full) in _MEASURED.items():
                    messages = full // _QUICK if options.quick else full
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
    async with _empty(ground) as (url, store):
        async with _paused(ground, url, "collector", count) as processes:
            await stage.publish(dead_letters(_DEAD, messages))
            share = await _measured(ground, processes, lambda: stage.drain(_DEAD, messages))
            await stored(store, messages)
        received = (await store.books.ledger()).received
        if received != messages or await stage.depth(_DEAD):
            raise BenchFailed(f"{count} collectors: not every message is in the store once")
    return share


async def _retrying(ground: Ground, count: int, messages: int) -> Share:
    stage = ground.stage
    async with _empty(ground) as (url, _):
        async with _paused(ground, url, "retrier", count) as processes:
            await stage.fill(_RETRY, messages)
            share = await _measured(ground, processes, lambda: stage.watch(_TIER, messages))
        depths = [await stage.depth(queue) for queue in (_TIER, _RETRY, _DEAD)]
        if depths != [messages, 0, 0]:
            raise BenchFailed(f"{count} retriers: not every message is in the tier once")
    return share


async def _reviving(ground: Ground, count: int, letters: int) -> Share:
    stage = ground.stage
    async with _empty(ground) as (url, store):
        await stage.declare(TARGET, "quorum")
        await stage.channel.bind_queue(TARGET, "redrive-return", return_key(TARGET))
        await fill(store, 0, letters)
        await _become_due(store)
        await analyze(store)
        due_at = time.monotonic() + _DUE_IN.total_seconds()
        async with _paused(ground, url, "worker", count) as processes:
            if await stage.depth(TARGET):
                raise BenchFailed(f"{count} workers: letters were due before all had started")
            await asyncio.sleep(due_at - time.monotonic())
            share = await _measured(ground, processes, lambda: stage.watch(TARGET, letters))
        if await stage.depth(TARGET) != letters or await _letters_in(stage, letters) != letters:
            raise BenchFailed(f"{count} workers: not every letter is in its origin queue once")
        await stage.delete(TARGET)
    return share


_MEASURED = {
    "collecting": (_collecting, 40_000),
    "retrying": (_retrying, 40_000),
    "reviving": (_reviving, 4_000),
}
"""Each role, with the messages of a full run."""


async def _become_due(store: Store) -> None:
    """As a worker leaves letters that it looked at for the first time: with a strategy, and due a
    little later."""
    async with store.database.writing() as connection:
        await connection.execute(
            update(redrive_letter).values(
                queue=TARGET, strategy=Strategy.IMMEDIATE, next_retry_at=utc_now() + _DUE_IN
            )
        )


async def _letters_in(stage: Stage, messages: int) -> int:
    """How many letters these messages are of."""
    connection = await connect(parse_addresses(stage.url), name="bench count")
    try:
        consumer = await (await connection.channel()).consume(TARGET, prefetch=PREFETCH)
        found: list[object] = []
        while len(found) < messages:
            for delivery in await consumer.next_batch():
                found.append(Properties.read(delivery.properties).header(headers.LETTER))
                consumer.ack(delivery)
            consumer.flush()
    finally:
        await connection.close()
    return len(set(found))


@asynccontextmanager
async def _empty(ground: Ground) -> AsyncIterator[tuple[str, Store]]:
    """Empty queues and an empty store, gone afterwards."""
    async with (
        laid_out(ground.stage, _HOUR),
        empty_store(ground.postgres, "PostgreSQL") as (url, store),
    ):
        yield url, store


@asynccontextmanager
async def _paused(
    ground: Ground, store_url: str, role: str, count: int
) -> AsyncIterator[list[GuardedProcess]]:
    """`redrive run` with one role, so many times: at work, and paused. At the end they drain."""
    with tempfile.TemporaryDirectory(prefix="redrive-bench-", dir="/var/tmp") as folder:
        redrive = CommandLine(
            Path(folder),
            ground.cluster.url(),
            [_HOUR],
            store_url=store_url,
            more=_SETTINGS,
            environment={key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ},
        )
        redrive.write_settings()
        processes = [redrive.start("run", "--roles", role) for _ in range(count)]
        try:
            await _all_ready(redrive, count)
            for process in processes:
                process.pause()
            yield processes
            ends = (asyncio.to_thread(process.terminate, ENDS_WITHIN) for process in processes)
            if not all(await asyncio.gather(*ends)) or any(each.exit_code for each in processes):
                raise BenchFailed(f"{count} of {role}: not all of them ended in good order")
        finally:
            for process in processes:
                process.kill()


async def _all_ready(redrive: CommandLine, count: int) -> None:
    try:
        await eventually_async(
            lambda: len(redrive.logged("run.ready")) == count, what=f"{count} processes are ready"
        )
    except AssertionError as error:
        raise BenchFailed(str(error)) from error


async def _measured(
    ground: Ground,
    processes: Sequence[GuardedProcess],
    done: Callable[[], Awaitable[list[Sample]]],
) -> Share:
    await ground.stage.calm()
    before = _used(ground, processes)
    for process in processes:
        process.send(signal.SIGCONT)
    samples = await done()
    used = [b - a for a, b in zip(before, _used(ground, processes), strict=True)]
    (began, already), (ended, moved) = samples[0], samples[-1]
    redrive, brokers, postgres = (each / (moved - already) * 1e6 for each in used[:3])
    return Share(
        per_second=pace(samples),
        redrive_us=redrive,
        brokers_us=brokers,
        postgres_us=postgres,
        busy=used[3] / (ended - began) / CORES,
    )


def _used(ground: Ground, processes: Sequence[GuardedProcess]) -> tuple[float, ...]:
    """Seconds of CPU: of Redrive, the brokers, PostgreSQL, and of anybody."""
    redrive = sum(_cpu(process.pid) for process in processes)
    return redrive, ground.brokers_cpu(), _cpu(ground.postgres.pid), machine_busy()


def _cpu(pid: int) -> float:
    """Seconds that a process and all that it ever started have used."""
    process = psutil.Process(pid)
    used = sum(process.cpu_times()[:4])  # with those of its children that have ended
    return used + sum(sum(child.cpu_times()[:4]) for child in process.children(recursive=True))


# The table


def _result(found: Shares) -> Result:
    table = Table(
        title="`redrive run` with one role: one PostgreSQL, three nodes, quorum queues",
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
