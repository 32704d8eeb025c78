"""Replays that keep an order: one suite that SQLite and PostgreSQL both pass, for real.

After every test the books are exact, and every letter's history leads to what it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from redrive.domain.filters import Filters
from redrive.domain.letter import Claim, Result
from redrive.domain.replay import Replay, ReplayState
from redrive.domain.verdict import Receipt
from redrive.store.replays import Batch
from redrive.store.sendings import Outcome
from redrive.store.store import Store
from tests.services.jobs import ME, OTHER, ids_of, now, running, stop, take
from tests.services.plans import goes_by, statements
from tests.services.sending import (
    LEASE,
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    all_is_consistent,
    later,
    stored,
)

IN_ORDER: dict[str, Any] = {"ordered_by": "header:customer", "batch_size": 3}


@pytest.fixture(autouse=True)
async def _consistent(store: Store) -> AsyncIterator[None]:
    yield
    await all_is_consistent(store)


async def noted(store: Store, claims: Sequence[Claim]) -> None:
    outcomes = [Outcome(claim=claim, result=Result.SENT) for claim in claims]
    await store.replays.record(ME, outcomes, verdict_after=VERDICT_AFTER)


async def takes_and_sends(store: Store, job: Replay) -> list[str]:
    """What a batch has sent."""
    batch = await take(store, job)
    await noted(store, batch.claims)
    return ids_of(batch)


async def leaves_its_first_in_doubt(store: Store, job: Replay) -> None:
    """A batch of which the first letter was sent or was not, and is left to a person."""
    claims = (await take(store, job)).claims
    await noted(store, claims[1:])
    later(store, LEASE)
    await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER)
    await store.verdicts.leave_to_person(
        VHOST, QUEUE, "in doubt", looked_at=await store.verdicts.now()
    )


async def pauses_for(store: Store, job: Replay, letter_id: str, worker: str = ME) -> None:
    assert await take(store, job, worker) == Batch(ended=True)
    paused = await now(store, job)
    assert paused.state is ReplayState.PAUSED
    assert paused.reason.startswith(f"letter {letter_id} may or may not have been sent")


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("most", [None, 1, 2])
async def test_in_order_none_overtakes_a_letter_whose_sender_was_killed(
    store: Store, place: int, most: int | None
) -> None:
    """Wherever it is in the last batch, and however many batches went before."""
    ids = await stored(store, 12)
    job = await running(store, **IN_ORDER)
    for _ in range(2):
        await takes_and_sends(store, job)
    batch = await take(store, job, most=most)
    place = min(place, len(batch.claims) - 1)
    stuck = batch.claims.pop(place)
    await noted(store, batch.claims)
    later(store, LEASE)
    await store.replays.begin(job.id, OTHER, LEASE)
    await pauses_for(store, job, stuck.letter.id, OTHER)  # sending
    await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER)
    await store.replays.resume(job.id, ME)
    await pauses_for(store, job, stuck.letter.id)  # in doubt
    await store.verdicts.leave_to_person(
        VHOST, QUEUE, "in doubt", looked_at=await store.verdicts.now()
    )
    await store.replays.resume(job.id, ME)
    await pauses_for(store, job, stuck.letter.id)  # in doubt, and a person's
    await store.decisions.resolve([stuck.letter.id], "me")
    await store.replays.resume(job.id, ME)
    first = 6 + (most or 3)
    assert await takes_and_sends(store, job) == ids[first : first + 3]


async def test_in_order_none_overtakes_a_letter_in_doubt_that_the_job_went_back_before(
    store: Store,
) -> None:
    ids = await stored(store, 9)
    job = await running(store, **IN_ORDER)
    await takes_and_sends(store, job)
    claims = (await take(store, job)).claims
    outcomes = [Outcome(claim=claims[0], result=Result.REFUSED, reason="full")]
    outcomes += [Outcome(claim=claims[1], result=Result.SENT)]
    outcomes += [Outcome(claim=claims[2], result=Result.IN_DOUBT)]
    await store.replays.record(ME, outcomes, verdict_after=VERDICT_AFTER)
    await stop(store, job, 3)
    await store.replays.resume(job.id, ME)
    await pauses_for(store, job, ids[5])
    await store.verdicts.settle_receipts([Receipt(letter=ids[5], generation=1)])
    await store.replays.resume(job.id, ME)
    assert await takes_and_sends(store, job) == ids[3:4]
    assert await takes_and_sends(store, job) == ids[6:]


async def test_in_order_none_overtakes_a_letter_in_doubt_whose_next_sending_was_refused(
    store: Store,
) -> None:
    ids = await stored(store, 6)
    job = await running(store, **IN_ORDER)
    await leaves_its_first_in_doubt(store, job)
    other = await running(store, Filters(ids=(ids[0],)), doubtful=True)
    (again,) = (await take(store, other)).claims
    refused = Outcome(claim=again, result=Result.REFUSED, reason="full")
    await store.replays.record(ME, [refused], verdict_after=VERDICT_AFTER)
    await store.replays.begin(job.id, ME, LEASE)
    await pauses_for(store, job, ids[0])
    await store.replays.resume(job.id, ME)
    other = await running(store, Filters(ids=(ids[0],)), doubtful=True)
    await noted(store, (await take(store, other)).claims)
    assert await takes_and_sends(store, job) == ids[3:]


async def test_in_order_none_overtakes_a_letter_in_doubt_while_its_next_sending_is_under_way(
    store: Store,
) -> None:
    ids = await stored(store, 6)
    job = await running(store, **IN_ORDER)
    await leaves_its_first_in_doubt(store, job)
    other = await running(store, Filters(ids=(ids[0],)), doubtful=True)
    again = (await take(store, other)).claims
    await store.replays.begin(job.id, ME, LEASE)
    await pauses_for(store, job, ids[0])  # sending
    in_doubt = [Outcome(claim=claim, result=Result.IN_DOUBT) for claim in again]
    await store.replays.record(ME, in_doubt, verdict_after=VERDICT_AFTER)
    await store.replays.resume(job.id, ME)
    await pauses_for(store, job, ids[0])  # in doubt once more
    await store.verdicts.settle_receipts([Receipt(letter=ids[0], generation=2)])
    await store.replays.resume(job.id, ME)
    assert await takes_and_sends(store, job) == ids[3:]


async def test_in_order_a_letter_that_was_put_away_holds_nobody_once_those_behind_it_went(
    store: Store,
) -> None:
    ids = await stored(store, 12)
    job = await running(store, **IN_ORDER)
    await leaves_its_first_in_doubt(store, job)
    await store.decisions.discard([ids[0]], "me")
    for batch in (ids[3:6], ids[6:9]):
        assert await takes_and_sends(store, job) == batch
    await store.decisions.restore([ids[0]], "me")
    assert await takes_and_sends(store, job) == ids[9:]


async def test_in_order_a_batch_looks_at_letters_near_its_position_however_long_the_job_is(
    store: Store,
) -> None:
    await stored(store, 300)
    job = await running(store, **IN_ORDER)
    await takes_and_sends(store, job)
    with statements(store, "SELECT redrive_attempt.letter_id") as asked:
        assert len(await takes_and_sends(store, job)) == 3
    assert len(asked) == 1
    bounds = "position>? AND position<?" if store.database.is_sqlite else '"position" <='
    assert await goes_by(store, asked, bounds)
    if store.database.is_sqlite:  # PostgreSQL may take any index of tables so small
        assert not await goes_by(store, asked, "redrive_letter_status")
