"""A replay without pauses: one half of a batch is sent while the other is recorded and claimed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select

from redrive.broker.topology import describe
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Claim, Result
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Replay, ReplayOrder, ReplayState
from redrive.errors import StoreError
from redrive.store.replays import Batch
from redrive.store.schema import redrive_attempt
from redrive.store.store import Store
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from redrive.work.sender import Sender, Sent
from tests.services.letters import arrival, died_in, letter_store
from tests.services.moving import connector, declare, holds
from tests.services.plugin import Vhost
from tests.services.retrying import declare_topology, topology
from tests.services.reviving import LEASE, VERDICT_AFTER, VHOST

BATCH = 10
LETTERS = 6 * BATCH


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as opened:
        yield opened


@pytest.fixture
async def job(vhost: Vhost, store: Store) -> Replay:
    await declare_topology(vhost.url, topology("quorum"))
    await declare(vhost.url, "orders", "quorum")
    await store.letters.add(
        [arrival(b"%d" % number, headers=died_in("orders")) for number in range(LETTERS)]
    )
    made = await store.replays.create(
        letter_id(datetime.now(UTC), random.getrandbits(74)),
        VHOST,
        Filters(),
        ReplayOrder(actor="ada", described="all", pause=0, batch_size=BATCH),
    )
    assert made is not None
    return await store.replays.begin(made.id, "worker-1", LEASE)


async def run(url: str, store: Store, replay: Replay) -> None:
    settings = topology("quorum")
    sender = Sender(
        connector(url), settings.names.return_exchange, describe(settings).queue_names()
    )
    await sender.open()
    runner = ReplayRunner(
        "worker-1",
        store.replays,
        sender,
        verdict_after=VERDICT_AFTER,
        stopping=asyncio.Event(),
        lease=LEASE,
    )
    try:
        await runner.run(replay, destinations(PolicyBook))
    finally:
        await sender.close()


async def count(store: Store, result: Result) -> int:
    query = select(func.count()).where(redrive_attempt.c.result == result.value)
    async with store.database.reading() as connection:
        return int((await connection.execute(query)).scalar_one())


async def test_never_more_than_a_batch_is_claimed_and_not_recorded(
    vhost: Vhost, store: Store, job: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, outstanding = store.replays.take_batch, []

    async def noted(*args: object, **options: object) -> Batch:
        batch = await take(*args, **options)  # type: ignore[arg-type]
        outstanding.append(await count(store, Result.SENDING))
        return batch

    monkeypatch.setattr(store.replays, "take_batch", noted)
    await run(vhost.url, store, job)
    # The first half alone, then each behind another that is being sent.
    assert outstanding == [BATCH // 2] + [BATCH] * (LETTERS // (BATCH // 2) - 1)
    assert await count(store, Result.SENT) == LETTERS
    await holds(vhost.url, "orders", LETTERS)


async def test_what_was_sent_is_recorded_also_if_no_more_can_be_claimed(
    vhost: Vhost, store: Store, job: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, taken = store.replays.take_batch, 0

    async def failing(*args: object, **options: object) -> Batch:
        nonlocal taken
        taken += 1
        if taken == 4:
            raise StoreError("it is away")
        return await take(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store.replays, "take_batch", failing)
    with pytest.raises(StoreError):
        await run(vhost.url, store, job)
    assert await count(store, Result.SENDING) == 0
    assert await count(store, Result.SENT) == 3 * BATCH // 2
    await holds(vhost.url, "orders", 3 * BATCH // 2)


async def test_a_connection_that_is_lost_behind_a_full_queue_leaves_the_job_paused_at_that(
    vhost: Vhost, store: Store, job: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half behind it was claimed already. Else the job would go on behind what was refused."""
    halves = 0

    async def full_then_lost(_: Sender, claims: list[Claim]) -> list[Sent]:
        nonlocal halves
        halves += 1
        lost = halves == 2
        why = Sent(
            claim=claims[0],
            result=Result.REFUSED,
            reason="lost" if lost else "full",
            passing=True,
            unwritten=lost,
        )
        sent = [replace(why, claim=claim) for claim in claims]
        return sent if lost else [Sent(claim=claims[0], result=Result.SENT), *sent[1:]]

    monkeypatch.setattr(Sender, "send", full_then_lost)
    await run(vhost.url, store, job)
    stopped = await store.replays.get(job.id)
    assert stopped is not None
    assert (halves, stopped.state, stopped.position) == (2, ReplayState.PAUSED, 1)
    assert "full" in stopped.reason
