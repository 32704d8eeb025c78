"""Replays that a worker runs by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redrive.amqp import Connection
from redrive.broker.topology import describe
from redrive.domain.breaker import Position
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Arrival
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Replay, ReplayOrder, ReplayState
from redrive.errors import CannotConnect
from redrive.store.store import Store
from redrive.work.replay_jobs import ReplayJobs
from redrive.work.sender import Sender
from tests.services.eventually import eventually_async
from tests.services.letters import arrival, died_in, letter_store
from tests.services.moving import connector, declare, holds
from tests.services.plugin import Vhost
from tests.services.retrying import declare_topology, topology
from tests.services.reviving import LEASE, VERDICT_AFTER, VHOST


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as opened:
        yield opened


class Broker:
    """A broker that is away when told to be."""

    def __init__(self, url: str) -> None:
        self._connect = connector(url)
        self.away = False
        self.asked = 0

    async def connect(self, name: str) -> Connection:
        self.asked += 1
        if self.away:
            raise CannotConnect("it is away")
        return await self._connect(name)


@asynccontextmanager
async def running(store: Store, broker: Broker) -> AsyncIterator[None]:
    settings = topology("quorum")
    jobs = ReplayJobs(
        "worker-1",
        VHOST,
        store.replays,
        lambda: Sender(
            broker.connect, settings.names.return_exchange, describe(settings).queue_names()
        ),
        PolicyBook,
        lease=LEASE,
        verdict_after=VERDICT_AFTER,
    )
    task = asyncio.create_task(jobs.run())
    try:
        yield
        assert not task.done()
    finally:
        jobs.stop()
        await asyncio.wait_for(task, 15)


async def job(store: Store, queue: str) -> Replay:
    made = await store.replays.create(
        letter_id(datetime.now(UTC), random.getrandbits(74)),
        VHOST,
        Filters(queue=queue),
        ReplayOrder(actor="ada", described=queue, pause=0),
    )
    assert made is not None
    return made


async def has_state(store: Store, replay: Replay, state: ReplayState) -> None:
    async def there() -> bool:
        found = await store.replays.get(replay.id)
        return found is not None and found.state is state

    await eventually_async(there, what=f"the job is {state.value}")


def of(queue: str, number: int) -> Arrival:
    return arrival(b"%d" % number, headers=died_in(queue))


async def lay_out(url: str, *queues: str) -> None:
    await declare_topology(url, topology("quorum"))
    for queue in queues:
        await declare(url, queue, "quorum")


async def test_a_job_that_is_paused_while_the_broker_is_away_does_not_end_the_worker(
    vhost: Vhost, store: Store
) -> None:
    await lay_out(vhost.url, "orders", "bills")
    await store.letters.add([of("orders", 1), of("bills", 2)])
    broker = Broker(vhost.url)
    broker.away = True
    first = await job(store, "orders")
    async with running(store, broker):
        await eventually_async(lambda: broker.asked > 0)
        await store.replays.pause(first.id, "wait")
        second = await job(store, "bills")
        broker.away = False
        await has_state(store, second, ReplayState.DONE)
        await holds(vhost.url, "bills", 1)
    await has_state(store, first, ReplayState.PAUSED)


async def test_a_job_that_a_breaker_holds_lets_others_go_first(vhost: Vhost, store: Store) -> None:
    await lay_out(vhost.url, "orders", "bills")
    await store.letters.add([of("orders", 1), of("bills", 2)])
    await store.breakers.force(VHOST, "orders", Position.OPEN)
    held = await job(store, "orders")
    async with running(store, Broker(vhost.url)):
        await asyncio.sleep(0)
        other = await job(store, "bills")
        await has_state(store, other, ReplayState.DONE)
        await has_state(store, held, ReplayState.RUNNING)
        await store.breakers.force(VHOST, "orders", None)
        await has_state(store, held, ReplayState.DONE)
    await holds(vhost.url, "orders", 1)
