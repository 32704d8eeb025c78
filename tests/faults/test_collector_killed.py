"""kill -9 of the collector, the broker and PostgreSQL at every step between delivery and ack.

Nothing is lost, by identity. What a crash doubled is marked, all copies but one, each as the copy
of another of them; nothing else is marked. The books are exact. That the step was reached is proven
by exit code -9, and by the copies that a kill between commit and ack must leave.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from redrive.broker.private import PrivateNode
from redrive.store.store import Store
from redrive.work.mover import Limits
from tests.faults.collector_process import Scene, Step, Trap
from tests.services import scale
from tests.services.collecting import (
    Found,
    collecting,
    coming_back_quickly,
    dead_messages,
    found_in,
    has_all,
    has_emptied,
    is_empty,
)
from tests.services.eventually import eventually_async
from tests.services.letters import letter_store
from tests.services.moving import declare, publish
from tests.services.plugin import Vhost
from tests.services.postgres import PrivatePostgres

log = structlog.get_logger()
pytestmark = pytest.mark.soak

MESSAGES = scale.messages(20_000)
KILLS = scale.faults(10, quick=1)
PREFETCH = max(20, MESSAGES // 40)
WITHIN = scale.seconds(600, quick=60)
QUEUES = {"dead.classic": "classic", "dead.quorum": "quorum"}


def at_steps(*quick: Step) -> pytest.MarkDecorator:
    """At every step in full; at these otherwise, since servers take long to restart."""
    steps = tuple(Step) if scale.FULL else quick
    return pytest.mark.parametrize("step", steps, ids=[step.name.lower() for step in steps])


def expected() -> list[str]:
    return [f"m{number}" for number in range(MESSAGES)]


async def fill(url: str) -> None:
    """Half of the messages for each kind of queue, all shapes in each."""
    await declare(url, "dead.classic", "classic")
    await declare(url, "dead.quorum", "quorum")
    half = MESSAGES // 2
    await publish(url, dead_messages(expected()[:half], "dead.classic"))
    await publish(url, dead_messages(expected()[half:], "dead.quorum"))


async def collect_the_rest(url: str, store: Store) -> Found:
    """One more life, without a fault, until nothing is left; what the store has then."""
    async with collecting(url, store.letters, *QUEUES, limits=Limits(prefetch=PREFETCH)):
        await has_all(store, expected(), within=WITHIN)
        last = await has_emptied(url, store, QUEUES, within=WITHIN)
    assert await is_empty(url, *QUEUES)
    return await found_in(store, [*expected(), *last])


def check(found: Found, step: Step) -> None:
    log.info("found", step=step.value, expected=found.expected, doubled=len(found.doubled))
    assert found.sound, found
    if step is Step.COMMITTED:
        assert found.doubled, "stored and not acked: without a second copy it was not reached"


def nths() -> list[int]:
    """After how many messages each kill comes: few enough that some are left for the next life."""
    chance = random.Random(4)
    return [chance.randint(1, MESSAGES // (2 * KILLS + 1)) for _ in range(KILLS)]


@pytest.mark.timeout(WITHIN * 3)
@pytest.mark.parametrize(
    ("engine", "step"),
    [
        pytest.param(engine, step, id=f"{engine}-{step.name.lower()}")
        for engine in ("sqlite", "postgresql")
        for step in Step
        # What is in memory only does not depend on the engine.
        if scale.FULL or engine == "sqlite" or step in (Step.IN_TRANSACTION, Step.COMMITTED)
    ],
)
async def test_a_collector_killed_between_delivery_and_ack_loses_nothing(
    request: pytest.FixtureRequest, vhost: Vhost, tmp_path: Path, engine: str, step: Step
) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    if engine == "postgresql":
        url = request.getfixturevalue("database")
    output = tmp_path / "collector.log"
    await fill(vhost.url)
    async with letter_store(url) as store:
        for nth in nths():
            scene = Scene(
                url=vhost.url,
                store_url=url,
                queues=tuple(QUEUES),
                prefetch=PREFETCH,
                step=step,
                nth=nth,
            )
            process = scene.start(output)
            try:
                await eventually_async(lambda: not process.alive, within=WITHIN)  # noqa: B023
                assert process.exit_code == -9, output.read_text()
            finally:
                process.kill()
        found = await collect_the_rest(vhost.url, store)
    check(found, step)


# The broker


@pytest.fixture(scope="module")
def broker(rabbitmq_root: Path | None) -> Iterator[PrivateNode]:
    """A broker that the tests of this file may kill."""
    with PrivateNode(root=rabbitmq_root) as node:
        yield node


@pytest.mark.timeout(WITHIN * 3)
@at_steps(Step.COMMITTED)
async def test_a_broker_killed_between_delivery_and_ack_loses_nothing(
    broker: PrivateNode, tmp_path: Path, step: Step
) -> None:
    url = broker.url()
    await fill(url)
    await asyncio.to_thread(broker.settle)
    trap = Trap(step, MESSAGES // 3, broker.kill)
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        limits = Limits(prefetch=PREFETCH)
        with trap.set(), coming_back_quickly():
            async with collecting(url, store.letters, *QUEUES, limits=limits):
                await eventually_async(lambda: trap.sprung, within=WITHIN)
                await asyncio.to_thread(broker.restart)
                await has_all(store, expected(), within=WITHIN)
                last = await has_emptied(url, store, QUEUES, within=WITHIN)
        assert await is_empty(url, *QUEUES)
        found = await found_in(store, [*expected(), *last])
    check(found, step)


# PostgreSQL


def crash(postgres: PrivatePostgres) -> None:
    """kill -9 of it now, and back in a moment, while the collector tries."""
    postgres.kill()
    threading.Thread(target=postgres.restart).start()


@pytest.mark.timeout(WITHIN * 3)
@at_steps(Step.IN_TRANSACTION, Step.COMMITTED)
async def test_a_database_killed_between_delivery_and_ack_loses_nothing_and_doubles_nothing(
    vhost: Vhost, postgres: PrivatePostgres, database: str, step: Step
) -> None:
    await fill(vhost.url)
    trap = Trap(step, MESSAGES // 3, lambda: crash(postgres))
    limits = Limits(prefetch=PREFETCH)
    async with letter_store(database) as store:
        with trap.set(), coming_back_quickly():
            async with collecting(vhost.url, store.letters, *QUEUES, limits=limits) as running:
                await eventually_async(lambda: trap.sprung, within=WITHIN)
                await eventually_async(lambda: running.acked >= MESSAGES, within=WITHIN)
        assert running.acked == MESSAGES
        assert await is_empty(vhost.url, *QUEUES)
        found = await found_in(store, expected())
    assert found.sound, found
    assert not found.doubled
