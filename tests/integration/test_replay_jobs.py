"""Replays that a worker runs by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from redrive.amqp import Connection
from redrive.broker.topology import describe
from redrive.domain.breaker import Position
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Arrival, Result
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Replay, ReplayOrder, ReplayState
from redrive.errors import CannotConnect, ConnectionLost, StoreError, StoreUnreachable
from redrive.store.replays import Batch
from redrive.store.store import Store
from redrive.work.replay_jobs import ReplayJobs
from redrive.work.return_path import ReturnPath
from redrive.work.sender import Sender, Sent
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.letters import arrival, died_in, letter_store
from tests.services.moving import connector, declare, holds, take_all
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


async def job(store: Store, queue: str, **order: Any) -> Replay:
    made = await store.replays.create(
        letter_id(datetime.now(UTC), random.getrandbits(74)),
        VHOST,
        Filters(queue=queue),
        ReplayOrder(actor="ada", described=queue, **{"pause": 0, **order}),
    )
    assert made is not None
    return made


async def has_state(
    store: Store, replay: Replay, state: ReplayState, *, within: float = DEADLINE
) -> None:
    async def there() -> bool:
        found = await store.replays.get(replay.id)
        return found is not None and found.state is state

    await eventually_async(there, within=within, what=f"the job is {state.value}")


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


def failing(store: Store, replay: Replay, error: StoreError, times: int) -> Any:
    """A store that fails so often as a batch of this job is taken."""
    take_batch, left = store.replays.take_batch, times

    async def take(job: Replay, *args: Any, **named: Any) -> Batch:
        nonlocal left
        if job.id == replay.id and left > 0:
            left -= 1
            raise error
        return await take_batch(job, *args, **named)

    return patch.object(store.replays, "take_batch", take)


async def test_a_job_that_an_outage_of_the_store_cut_short_waits_for_no_lease(
    vhost: Vhost, store: Store
) -> None:
    await lay_out(vhost.url, "orders")
    await store.letters.add([of("orders", 1)])
    cut_short = await job(store, "orders")
    with failing(store, cut_short, StoreUnreachable("it is away"), times=2):
        async with running(store, Broker(vhost.url)):
            await has_state(store, cut_short, ReplayState.DONE, within=LEASE.total_seconds() / 2)
    await holds(vhost.url, "orders", 1)


async def test_a_job_that_the_store_cannot_go_on_with_lets_others_go_first(
    vhost: Vhost, store: Store
) -> None:
    await lay_out(vhost.url, "orders", "bills")
    await store.letters.add([of("orders", 1), of("bills", 2)])
    stuck, other = await job(store, "orders"), await job(store, "bills")
    with failing(store, stuck, StoreError("not with this one"), times=1_000):
        async with running(store, Broker(vhost.url)):
            await has_state(store, other, ReplayState.DONE)
            await has_state(store, stuck, ReplayState.RUNNING)


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


async def test_a_job_with_an_order_that_is_taken_no_more_is_paused_and_the_worker_goes_on(
    vhost: Vhost, store: Store
) -> None:
    """As a version before may have left it in the store."""
    await lay_out(vhost.url, "orders", "bills")
    await store.letters.add([of("orders", 1), of("bills", 2)])
    old = await job(store, "orders", ordered_by="$[?search(@.name, '(a|a)*b')]")
    async with running(store, Broker(vhost.url)):
        await has_state(store, old, ReplayState.PAUSED)
        other = await job(store, "bills")
        await has_state(store, other, ReplayState.DONE)
    found = await store.replays.get(old.id)
    assert found is not None
    assert "expected the path of one" in found.reason
    assert await take_all(vhost.url, "orders") == []


HOW = [{}, {"pause": 0.01}, {"ordered_by": "$.customer"}]
IN_WORDS = ["in halves", "in turn", "in order"]


BODIES = [b'{"customer": "ann", "order": %d}' % number for number in range(20)]


async def runs_by_itself(store: Store, url: str, how: dict[str, Any]) -> None:
    """A job ends without a person, and every letter of it was sent, once."""
    await lay_out(url, "orders")
    await store.letters.add([arrival(body, headers=died_in("orders")) for body in BODIES])
    async with running(store, Broker(url)):
        replay = await job(store, "orders", batch_size=10, **how)
        await has_state(store, replay, ReplayState.DONE)
    assert await store.replays.results(replay.id) == {Result.SENT: len(BODIES)}
    bodies = [delivery.body for delivery in await take_all(url, "orders")]
    assert sorted(bodies) == sorted(BODIES)
    assert bodies == BODIES or "ordered_by" not in how


@pytest.mark.parametrize("how", HOW, ids=IN_WORDS)
async def test_what_was_not_written_as_the_connection_was_lost_behind_a_letter_is_sent_by_the_job(
    vhost: Vhost, store: Store, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """The first letter to an exchange goes alone: the others of its batch were not refused."""
    send, groups = Sender._send_all, 0

    async def cut_behind_the_first(sender: Sender, some: Any) -> list[Sent]:
        nonlocal groups
        groups += 1
        sent = await send(sender, some)
        if groups == 1:
            sender.abort()
        return sent

    monkeypatch.setattr(Sender, "_send_all", cut_behind_the_first)
    await runs_by_itself(store, vhost.url, how)


@pytest.mark.parametrize("how", HOW, ids=IN_WORDS)
async def test_a_job_goes_on_by_itself_if_the_connection_was_lost_that_looked_for_a_queue(
    vhost: Vhost, store: Store, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """Returned as unbound while the broker restarts: nothing of that is for a person."""
    restore, asked = ReturnPath.restore, 0

    async def lost_at_first(path: ReturnPath, queue: str) -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ConnectionLost("the broker restarts")
        return await restore(path, queue)

    monkeypatch.setattr(ReturnPath, "restore", lost_at_first)
    await runs_by_itself(store, vhost.url, how)
