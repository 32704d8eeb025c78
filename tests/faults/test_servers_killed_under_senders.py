"""kill -9 of the broker and of PostgreSQL at every step between claim and record, under a worker
and under a replay job.

The sender stands still at the step until the server is dead, and goes on while that comes back.
Letters are counted by identity: none is lost, and each ends resolved, or with a person and in
doubt. What may be in a queue is not sent again, but by the operator who sends what is in doubt. The
books are exact, and every letter's history leads to what it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import pytest
import structlog

from redrive.broker.private import PrivateNode
from redrive.domain.filters import Filters
from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from redrive.domain.revival import FULL_AGAIN
from redrive.store.store import Store
from redrive.work.replay_jobs import ReplayJobs
from redrive.work.worker import Worker
from tests.faults.worker_process import Step, Trap
from tests.services import scale
from tests.services.collecting import has_consumers
from tests.services.eventually import eventually_async
from tests.services.letters import letter_store
from tests.services.moving import empty, take_all
from tests.services.plugin import Vhost
from tests.services.postgres import PrivatePostgres
from tests.services.reviving import QUEUE, VERDICT_AFTER, VHOST, reviver
from tests.services.sending import all_is_consistent
from tests.services.settling import (
    Consumer,
    all_letters,
    coming_back_quickly,
    consuming,
    doubtful,
    fill,
    lay_out,
    operator_sends_doubtful,
    ordered,
    settle_in_doubt,
    watch_of,
)

log = structlog.get_logger()
pytestmark = pytest.mark.soak

LETTERS = 25
BATCH = 10
NTH = 5
"""In the first batch of a worker, and the first half of a replay's: its first letter has gone alone
by then, or would go alone, and others behind it together."""
AT_A_BROKER = tuple(Step) if scale.FULL else (Step.CLAIMED, Step.PUBLISHED, Step.CONFIRMED)
"""It takes long to restart."""
JOB_LEASE = timedelta(hours=1)
"""A job that is cut short must not wait for it."""


class Role(StrEnum):
    """Who sends."""

    WORKER = "worker"
    REPLAY = "replay job"


each_role = pytest.mark.parametrize("role", Role, ids=[role.name.lower() for role in Role])


def at_steps(*steps: Step) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("step", steps, ids=[step.name.lower() for step in steps])


@dataclass(frozen=True)
class Found:
    """What became of letters whose senders lost a server."""

    held: frozenset[str]
    """Those that were at the step."""
    in_doubt: set[str]
    seen: set[str]
    """What a consumer had before the operator sent what was in doubt."""
    once: set[str]
    """Those that were claimed once only."""


@asynccontextmanager
async def at_work(role: Role, url: str, store: Store) -> AsyncIterator[Worker | ReplayJobs]:
    """Who sends, as `redrive run` has it, until the block ends; then it finishes what it has in
    hand. Raises what it died of."""
    parts = reviver(url, store, delays=(timedelta(0),))
    sender: Worker | ReplayJobs = parts.worker
    if role is Role.REPLAY:
        sender = ReplayJobs(
            "replays-1",
            VHOST,
            store.replays,
            parts.make_sender,
            lambda: parts.policies,
            lease=JOB_LEASE,
            verdict_after=VERDICT_AFTER,
        )
    running = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        sender.stop()
        await asyncio.wait_for(running, 60)


async def sends_all(
    role: Role, url: str, store: Store, trap: Trap, server: PrivateNode | PrivatePostgres
) -> None:
    """Every letter is claimed and sent, although the server is killed at the trap's step."""
    with trap.set(), coming_back_quickly():
        async with at_work(role, url, store) as sender:

            async def none_waits() -> bool:
                if not any(one.status is State.PENDING for one in await all_letters(store)):
                    return True
                if isinstance(sender, Worker):
                    # What certainly was not sent is due again in a minute.
                    store.clock.ahead += FULL_AGAIN
                    sender.wake()
                return False

            await eventually_async(lambda: trap.sprung, what="the step")
            await asyncio.to_thread(server.restart)
            await eventually_async(none_waits, what="every letter claimed")


async def outlives(
    role: Role, step: Step, server: PrivateNode | PrivatePostgres, url: str, store: Store
) -> Found:
    """Letters are sent although the server is killed at the step; then what is in doubt is settled,
    and sent again by an operator."""
    await fill(store, LETTERS)
    if role is Role.REPLAY:
        await ordered(store, Filters(), batch_size=BATCH)
    trap = Trap(step, NTH, server.kill)
    await sends_all(role, url, store, trap, server)
    async with consuming(url, receipts=False) as consumer:
        await has_consumers(url, 1, QUEUE)
        await empty(url, QUEUE)
        watch = watch_of(url, store)
        await settle_in_doubt(url, store, watch)
        await settle_in_doubt(url, store, watch)
        watch.close()
        in_doubt = await doubtful(store)
        await consumer.has_seen_all_but(in_doubt, store)
        await ended_lawfully(store, consumer, in_doubt)
        once = {letter.id for letter in await all_letters(store) if letter.generation == 1}
        found = Found(trap.held, in_doubt, set(consumer.seen), once)
        log.info("found", role=role.value, step=step.value, in_doubt=len(in_doubt))
        await operator_sends_doubtful(url, store)
        await eventually_async(lambda: len(consumer.seen) == LETTERS, what="every letter consumed")
        twice = {letter for letter, times in consumer.seen.items() if times > 1}
        assert twice <= in_doubt
        assert max(consumer.seen.values()) <= 2
    await all_is_consistent(store)
    return found


async def ended_lawfully(store: Store, consumer: Consumer, in_doubt: set[str]) -> None:
    """Each letter went out once at most, and its state says what is known of that."""
    letters = await all_letters(store)
    assert len(letters) == LETTERS
    for letter in letters:
        *before, last = [each.result for each in await store.letters.attempts(letter.id)]
        assert set(before) <= {Result.REFUSED}, "what may be in a queue was sent again"
        settled = (
            (State.MANUAL, Result.IN_DOUBT)
            if letter.id in in_doubt
            else (State.RESOLVED, Result.RESOLVED)
        )
        assert (letter.status, last) == settled
    assert consumer.seen.keys() <= {letter.id for letter in letters}
    assert set(consumer.seen.values()) == {1}
    await all_is_consistent(store)


# The broker


@pytest.fixture(scope="module")
def broker(rabbitmq_root: Path | None) -> Iterator[PrivateNode]:
    """A broker with all queues that the tests of this file may kill."""
    with PrivateNode(root=rabbitmq_root) as node:
        asyncio.run(lay_out(node.url()))
        node.settle()
        yield node


@each_role
@at_steps(*AT_A_BROKER)
async def test_a_broker_killed_between_claim_and_record_loses_no_letter_and_has_none_sent_twice(
    broker: PrivateNode, tmp_path: Path, role: Role, step: Step
) -> None:
    url = broker.url()
    await take_all(url, QUEUE)  # what another test left there, had it failed
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        found = await outlives(role, step, broker, url, store)
    assert len(found.in_doubt) <= BATCH
    if step in (Step.CLAIMED, Step.PUBLISHED):
        assert found.in_doubt <= found.held
    else:
        assert not found.in_doubt & found.held, "they were confirmed"
    if step is not Step.CLAIMED:
        assert found.held <= found.once, "what was written was taken for not sent"
    else:
        assert found.in_doubt, "what is written to a broker that is gone is not known to be lost"


# PostgreSQL


@each_role
@at_steps(*Step)
async def test_a_database_killed_between_claim_and_record_loses_no_letter_and_has_none_sent_twice(
    vhost: Vhost, postgres: PrivatePostgres, database: str, role: Role, step: Step
) -> None:
    await lay_out(vhost.url)
    async with letter_store(database) as store:
        found = await outlives(role, step, postgres, vhost.url, store)
    assert not found.in_doubt & found.seen, "what was sent is recorded when the database is back"
    if role is Role.WORKER:
        # A replay claims the next letters meanwhile, and may not hear that it has.
        assert not found.in_doubt
