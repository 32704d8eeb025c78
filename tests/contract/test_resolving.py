"""Letters that are resolved about when a replay is ordered: one suite that SQLite and PostgreSQL
both pass, for real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from redrive.domain.replay import RESOLVED_SINCE, Destination, Replay, ReplayOrder
from redrive.domain.verdict import Receipt, on_silence
from redrive.errors import StoreError
from redrive.store import resolving
from redrive.store.replays import Batch
from redrive.store.resolving import begin_resolving
from redrive.store.schema import redrive_history
from redrive.store.store import Store
from tests.services.eventually import eventually_async
from tests.services.sending import (
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    all_is_consistent,
    later,
    letter,
    new_id,
    sending,
    sent,
    stored,
)

ME = "job-1"
OUTSTANDING = Filters(status=(State.PROCESSING,))
Resolve = Callable[[Store, str], Awaitable[None]]
# What one waits for who resolves a letter while its history is locked, and one who orders then.
HISTORY = "locktype = 'relation' AND relation = 'redrive_history'::regclass"
RESOLVED = "locktype = 'advisory'"


@pytest.fixture(autouse=True)
async def _consistent(store: Store) -> AsyncIterator[None]:
    yield
    await all_is_consistent(store)


async def by_its_receipt(store: Store, letter_id: str) -> None:
    await store.verdicts.settle_receipts([Receipt(letter=letter_id, generation=1)])


async def by_a_person(store: Store, letter_id: str) -> None:
    await store.decisions.resolve([letter_id], "me")


async def by_silence(store: Store, _: str) -> None:
    await store.verdicts.settle_silent(
        VHOST, None, lambda _, sent: on_silence(sent, dead_letters=True)
    )


in_any_way = pytest.mark.parametrize("resolve", [by_its_receipt, by_a_person, by_silence])


async def outstanding(store: Store) -> str:
    """A letter that was sent, and of which nothing was heard for long."""
    (letter_id,) = await stored(store)
    await sent(store, sending(None, exchange="shop"))
    later(store, VERDICT_AFTER)
    return letter_id


async def ordered(store: Store, filters: Filters = OUTSTANDING) -> Replay | None:
    order = ReplayOrder(actor="me", described="", doubtful=True)
    return await store.replays.create(new_id(), VHOST, filters, order, worker=ME)


async def waits_for(connection: AsyncConnection, lock: str) -> bool:
    """Whether somebody waits for such a lock of PostgreSQL's in this database."""
    query = (
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        f" WHERE NOT granted AND datname = current_database() AND {lock}"
    )
    return bool((await connection.execute(text(query))).scalar_one())


async def taken(store: Store, job: Replay | None) -> Batch:
    assert job is not None
    return await store.replays.take_batch(job, ME, lambda _: Destination(queue=QUEUE))


@in_any_way
async def test_what_is_being_resolved_while_a_replay_is_ordered_is_not_sent_by_it(
    store: Store, resolve: Resolve
) -> None:
    letter_id = await outstanding(store)
    async with store.database.writing() as connection:
        if not store.database.is_sqlite:  # where a writer is alone
            await connection.execute(text("LOCK TABLE redrive_history"))
        resolving = asyncio.ensure_future(resolve(store, letter_id))
        if not store.database.is_sqlite:
            # It has looked at the clock, and cannot write what it decided.
            await eventually_async(lambda: waits_for(connection, HISTORY), what="it resolves")
        ordering = asyncio.ensure_future(ordered(store))
        if not store.database.is_sqlite:

            async def waits() -> bool:
                return ordering.done() or await waits_for(connection, RESOLVED)

            await eventually_async(waits, what="the replay waits, or did not")
    await resolving
    job = await ordering
    assert job is None or (await taken(store, job)).claims == []
    assert (await letter(store, letter_id)).status is State.RESOLVED


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)  # on SQLite a writer is alone
async def test_a_process_that_was_stopped_as_it_resolved_letters_keeps_nobody_else_from_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who orders a replay waits for it, in turns: the others go on, and at last it is told."""
    monkeypatch.setattr(resolving, "_TURN", 300)
    letter_id = await outstanding(store)
    async with store.database.writing() as connection:
        await begin_resolving(connection, store.clock)
        ordering = asyncio.ensure_future(ordered(store))
        async with store.database.reading() as looking:
            await eventually_async(lambda: waits_for(looking, RESOLVED), what="the replay waits")
        await by_its_receipt(store, letter_id)
        assert not ordering.done()
        with pytest.raises(StoreError, match="does not come to an end"):
            await ordering
    assert (await letter(store, letter_id)).status is State.RESOLVED


@in_any_way
async def test_what_was_resolved_in_the_moment_of_the_order_is_not_sent_again(
    store: Store, resolve: Resolve
) -> None:
    letter_id = await outstanding(store)
    job = await ordered(store)
    assert job is not None
    await resolve(store, letter_id)
    async with store.database.writing() as connection:
        await connection.execute(update(redrive_history).values(at=job.created_at))
    assert (await taken(store, job)).skipped == [(letter_id, RESOLVED_SINCE)]


@in_any_way
async def test_what_was_resolved_before_is_sent_again_when_it_is_asked_for(
    store: Store, resolve: Resolve
) -> None:
    letter_id = await outstanding(store)
    await resolve(store, letter_id)
    later(store, timedelta(milliseconds=1))
    job = await ordered(store, Filters(status=(State.RESOLVED,)))
    assert [claim.letter.id for claim in (await taken(store, job)).claims] == [letter_id]
