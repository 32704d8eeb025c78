"""A move that loses its connections, its broker or its own life at random points loses no message.

Messages are told apart by `message_id` and counted by identity. What was in flight when something
broke may arrive twice: no more than the window (prefetch) each time, and one of the two copies says
so in `redrive-redelivered`. Points are random in the stream of bytes, not in time: the proxy
strikes when a given number of messages has moved, in the middle of whatever passes just then.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from redrive.amqp import Delivery
from redrive.work.mover import Instruction, Limits
from tests.services import scale
from tests.services.eventually import eventually_async
from tests.services.moving import (
    SOURCE,
    TARGET,
    Kind,
    MoveTo,
    Running,
    channel_to,
    copies,
    identity,
    lay_out,
    marked,
    message,
    moving,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, OwnNode, Vhost
from tests.services.proxy import Direction, Proxy, ProxyConnection

pytestmark = pytest.mark.soak

PREFETCH = 100
WINDOW = Limits(prefetch=PREFETCH)
COUNT = scale.messages(100_000)
DEADLINE = scale.seconds(1800, quick=90)
BODY = 1024


@pytest.fixture
def chance() -> random.Random:
    """Randomness whose seed is shown when the test fails; REDRIVE_SEED repeats it."""
    seed = int(os.environ.get("REDRIVE_SEED") or random.randrange(1 << 32))
    print(f"REDRIVE_SEED={seed}")  # noqa: T201
    return random.Random(seed)


@dataclass
class Witness(MoveTo):
    """Remembers in which session each identity was under way."""

    running: Running | None = None
    sessions: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def decide(self, delivery: Delivery, user: str) -> Instruction:
        assert self.running is not None
        self.sessions[identity(delivery)].append(self.running.sessions)
        return self.copy_of(delivery, user)

    def under_way_when_lost(self) -> Counter[int]:
        """For each session, how many identities it had under way that a later one took up again."""
        return Counter(each for taken in self.sessions.values() for each in taken[:-1])


@dataclass
class Tally:
    """What arrived, against what was sent."""

    lost: set[str]
    duplicates: int
    unmarked: list[str]

    @classmethod
    def of(cls, arrived: list[Delivery]) -> Tally:
        found = copies(arrived)
        assert set(found) <= {str(number) for number in range(COUNT)}
        several = {name: each for name, each in found.items() if len(each) > 1}
        return cls(
            lost={str(number) for number in range(COUNT)} - set(found),
            duplicates=sum(len(each) - 1 for each in several.values()),
            unmarked=[name for name, each in several.items() if not any(map(marked, each))],
        )


def strike_at(
    way: Proxy,
    moved: Callable[[], int],
    points: list[int],
    strike: Callable[[ProxyConnection], None],
    chance: random.Random,
) -> None:
    """Let part of a chunk pass and then strike, each time that so many messages have moved."""
    loop = asyncio.get_running_loop()
    due = False

    def now(connection: ProxyConnection) -> None:
        nonlocal due
        due = False
        strike(connection)

    def watch(connection: ProxyConnection, _: Direction, data: bytes) -> bytes | None:
        nonlocal due
        if due or not points or moved() < points[0]:
            return None
        points.pop(0)
        due = True
        loop.call_soon(now, connection)
        return data[: chance.randrange(len(data) + 1)]

    way.hook = watch


def report(what: str, tally: Tally, faults: int, began: float) -> None:
    took = time.monotonic() - began
    print(  # noqa: T201  # `pytest -s` shows the figures
        f"{what}: {COUNT} messages, {faults} faults, lost {len(tally.lost)}, duplicates"
        f" {tally.duplicates}, of those without a mark {len(tally.unmarked)}, {took:.1f} s"
    )


def check_the_window(plan: Witness) -> None:
    worst = plan.under_way_when_lost()
    assert all(count <= PREFETCH for count in worst.values()), worst


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_connections_cut_at_random_points_lose_nothing_and_double_no_more_than_the_window(
    vhost: Vhost, proxy: NewProxy, chance: random.Random, kind: Kind
) -> None:
    began = time.monotonic()
    cuts = scale.faults(50, quick=5)
    await lay_out(vhost.url, kind)
    await publish(vhost.url, (message(n, body=bytes(BODY)) for n in range(COUNT)))
    way = await proxy("127.0.0.1", vhost.node.port)
    plan = Witness()
    points = sorted(chance.sample(range(COUNT - PREFETCH), cuts))

    struck = 0

    def cut(connection: ProxyConnection) -> None:
        """One of the two connections, or both."""
        nonlocal struck
        struck = running.sessions
        if chance.random() < 0.5:
            connection.cut()
        else:
            way.cut()

    async with moving(way.through(vhost.url), plan, limits=WINDOW) as running:
        plan.running = running

        def moved() -> int:
            """Not twice in one session: the next cut waits for the next one."""
            return running.moved if running.sessions > struck else -1

        strike_at(way, moved, points, cut, chance)
        await moved_everything(vhost.url, running)
    assert points == [], "every cut was made"
    # a cut may hit a connection that was going anyway, and then costs no session of its own
    assert cuts // 2 < running.sessions <= cuts + 1
    tally = Tally.of(await take_all(vhost.url, TARGET))
    report(f"{cuts} cuts, {kind}", tally, cuts, began)
    assert tally.lost == set()
    assert tally.unmarked == []
    assert tally.duplicates <= sum(plan.under_way_when_lost().values())
    check_the_window(plan)


async def moved_everything(url: str, running: Running) -> None:
    """Wait until the source is empty and all that was under way has landed."""
    await eventually_async(lambda: running.settled >= COUNT, within=DEADLINE)
    await eventually_async(lambda: empty(url), within=DEADLINE)


async def empty(url: str) -> bool:
    return await ready(url, SOURCE) == 0


async def test_a_broker_killed_at_random_points_loses_nothing_and_doubles_no_more_than_the_window(
    own_node: OwnNode, proxy: NewProxy, chance: random.Random
) -> None:
    began = time.monotonic()
    kills = scale.faults(5, quick=1)
    node = await asyncio.to_thread(own_node)
    way = await proxy("127.0.0.1", node.port)
    kinds: tuple[Kind, ...] = ("quorum", "classic")
    plans = {kind: Witness() for kind in kinds}
    for kind in kinds:
        await asyncio.to_thread(node.create_vhost, kind)
        await lay_out(node.url(kind), kind)
    await asyncio.to_thread(node.settle)  # else a kill may take the queues with it
    for kind in kinds:
        await publish(node.url(kind), (message(n, body=bytes(BODY)) for n in range(COUNT)))
    # both together, so that each kill hits both; the points are those of the slower one
    points = sorted(chance.sample(range(COUNT - PREFETCH), kills))
    killed = asyncio.Event()

    def kill(_: ProxyConnection) -> None:
        node.kill()
        killed.set()

    async with AsyncExitStack() as movers:
        running = {
            kind: await movers.enter_async_context(
                moving(way.through(node.url(kind)), plans[kind], limits=WINDOW)
            )
            for kind in kinds
        }
        for kind in kinds:
            plans[kind].running = running[kind]

        def moved() -> int:
            return min(each.moved for each in running.values()) if node.running else -1

        strike_at(way, moved, points, kill, chance)
        for _ in range(kills):
            await asyncio.wait_for(killed.wait(), DEADLINE)
            killed.clear()
            await asyncio.to_thread(node.restart)
        for kind in kinds:
            await moved_everything(node.url(kind), running[kind])
    tallies = {kind: Tally.of(await take_all(node.url(kind), TARGET)) for kind in kinds}
    for kind, tally in tallies.items():
        report(f"{kills} kill -9 of the broker, {kind}", tally, kills, began)
    assert all(tally.lost == set() for tally in tallies.values())
    assert tallies["quorum"].unmarked == []
    check_the_window(plans["quorum"])
    # A classic queue forgets the acks that it had not written when it was killed: what it had
    # delivered and got acked comes again, however much that is. Not ours to bound.


RUNS_A_MOVER = """
import asyncio, sys
from redrive.work.mover import Limits, Mover
from tests.services.moving import QUICK, SOURCE, MoveTo, connector
url, prefetch = sys.argv[1:]
plan = MoveTo(remembers=False)
limits = Limits(prefetch=int(prefetch))
asyncio.run(Mover(SOURCE, plan, connect=connector(url), limits=limits, backoff=QUICK).run())
"""


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_mover_killed_at_random_points_loses_nothing_and_doubles_no_more_than_the_window(
    vhost: Vhost, proxy: NewProxy, chance: random.Random, kind: Kind
) -> None:
    began = time.monotonic()
    kills = 10
    await lay_out(vhost.url, kind)
    await publish(vhost.url, (message(n, body=bytes(BODY)) for n in range(COUNT)))
    way = await proxy("127.0.0.1", vhost.node.port)
    for left in range(kills, 0, -1):
        await move_until_killed(way, vhost.url, left, chance)
    async with moving(vhost.url, MoveTo(remembers=False), limits=WINDOW):
        await eventually_async(lambda: empty(vhost.url), within=DEADLINE)
    assert await ready(vhost.url, SOURCE) == 0, "nothing came back after the last Mover's end"
    tally = Tally.of(await take_all(vhost.url, TARGET))
    report(f"{kills} kill -9 of the mover, {kind}", tally, kills, began)
    assert tally.lost == set()
    assert tally.unmarked == []
    assert tally.duplicates <= PREFETCH * kills


async def move_until_killed(way: Proxy, url: str, left: int, chance: random.Random) -> None:
    """Run a Mover and kill it after some random part of the bytes that the rest will take."""
    remaining = await ready(url, SOURCE) * BODY  # each way; so this is less than half of it
    passes = chance.randrange(max(1, int(remaining * 1.5 / (left + 1))))
    mover = start_a_mover(way.through(url))
    passed = 0

    def watch(_: ProxyConnection, __: Direction, data: bytes) -> bytes | None:
        nonlocal passed
        passed += len(data)
        if passed < passes:
            return None
        mover.kill()
        return data[: max(0, len(data) - (passed - passes))]

    way.hook = watch
    try:
        await eventually_async(lambda: mover.poll() is not None, within=DEADLINE)
        assert mover.returncode == -signal.SIGKILL, "it did not end by itself"
    finally:
        way.hook = None
        mover.kill()
        mover.wait()
    await eventually_async(lambda: not way.open, what="the end of the dead Mover's connections")
    # Until the broker has noticed, what the dead one held is neither ready nor anybody's.
    await eventually_async(lambda: nobody_consumes(url), what="its consumer's end")


async def nobody_consumes(url: str) -> bool:
    async with channel_to(url) as channel:
        return (await channel.inspect_queue(SOURCE))[1] == 0


def start_a_mover(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RUNS_A_MOVER, url, str(PREFETCH)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
