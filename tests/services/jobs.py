"""What tests of replays as jobs need, in a store whose clock is set by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from redrive.domain.filters import Filters
from redrive.domain.letter import Head, Letter
from redrive.domain.replay import Destination, Replay, ReplayOrder
from redrive.store.replays import Batch, Stop
from redrive.store.store import Store
from tests.services.sending import LEASE, VHOST, new_id

ME, OTHER = "job-1", "job-2"


async def ordered(store: Store, filters: Filters | None = None, **more: Any) -> Replay:
    """A job that nobody runs yet."""
    limit = more.pop("limit", None)
    order = ReplayOrder(actor="me", described="as the test wants it", **more)
    job = await store.replays.create(new_id(), VHOST, filters or Filters(), order, limit=limit)
    assert job is not None
    return job


async def running(store: Store, filters: Filters | None = None, **more: Any) -> Replay:
    """A job of this process."""
    return await store.replays.begin((await ordered(store, filters, **more)).id, ME, LEASE)


def to_origin(one: Letter | Head) -> Destination | None:
    return None if one.queue is None else Destination(queue=one.queue)


async def take(store: Store, job: Replay, worker: str = ME, **more: Any) -> Batch:
    return await store.replays.take_batch(job, worker, to_origin, **more)


async def stop(store: Store, job: Replay, position: int) -> None:
    """A job stops at a letter that was not sent, with nothing else to note."""
    at = Stop(replay_id=job.id, position=position, reason="the queue is full")
    await store.replays.record(ME, [], verdict_after=timedelta(0), stop=at)


def ids_of(batch: Batch) -> list[str]:
    return [claim.letter.id for claim in batch.claims]


async def now(store: Store, job: Replay) -> Replay:
    found = await store.replays.get(job.id)
    assert found is not None
    return found
