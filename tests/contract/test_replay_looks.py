"""What can be known of a replay before and after, on both stores; looking changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.letter import Arrival, Head, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, ReplayOrder
from redrive.store.replay_looks import Prospect, ReplayLooks
from redrive.store.sendings import Outcome
from redrive.store.store import Store
from tests.services.letters import arrival, died_in, sent_by_a_worker

ORDER = ReplayOrder(actor="ann", described="all")
LETTERS = 1200
"""More than are looked at in one go."""


@pytest.fixture
def looks(store: Store) -> ReplayLooks:
    return ReplayLooks(store.database, store.replays)


async def prospects(
    looks: ReplayLooks,
    filters: Filters | None = None,
    *,
    limit: int | None = None,
    ordered: bool = False,
    doubtful: bool = False,
) -> list[Prospect]:
    found = looks.prospects(
        "/", filters or Filters(), limit=limit, ordered=ordered, doubtful=doubtful
    )
    return [each async for some in found for each in some]


async def test_every_letter_that_a_replay_would_come_to_is_seen_once_in_its_order(
    store: Store, looks: ReplayLooks
) -> None:
    added = await store.letters.add([arrival(b"%d" % number) for number in range(LETTERS)])
    found = [each.letter.id for each in await prospects(looks)]
    assert found == [each.letter.id for each in added]
    assert await looks.count("/", Filters(), limit=None) == LETTERS
    assert await looks.count("/", Filters(), limit=7) == 7
    assert await looks.count("elsewhere", Filters(), limit=None) == 0


async def test_the_oldest_failure_comes_first_where_order_is_kept(
    store: Store, looks: ReplayLooks
) -> None:
    late, early = arrival(b"1", headers=died_in("orders", at=60)), arrival(b"2")
    await store.letters.add([late, early])
    found = [each.letter.id for each in await prospects(looks, ordered=True, limit=1)]
    assert found == [early.letter.id]


async def test_what_is_outstanding_or_doubtful_is_left_out_with_its_reason(
    store: Store, looks: ReplayLooks
) -> None:
    outstanding, first = arrival(b"a"), arrival(b"b")
    copy = arrival(b"b", redelivered=True)
    for each in (outstanding, first, copy):
        await store.letters.add([each])
    await sent_by_a_worker(store, outstanding)
    every = Filters(status=tuple(State))
    reasons = {each.letter.id: each.why_not or "" for each in await prospects(looks, every)}
    assert "outstanding" in reasons[outstanding.letter.id]
    assert reasons[first.letter.id] == "another letter may be a second copy of it"
    assert reasons[copy.letter.id] == "it may be a second copy of another letter"
    told = {each.letter.id: each.why_not for each in await prospects(looks, every, doubtful=True)}
    assert told[first.letter.id] is None
    assert told[copy.letter.id] is None


async def copied(store: Store) -> tuple[Arrival, Arrival]:
    """A letter, and one that may be its second copy."""
    first, copy = arrival(b"b"), arrival(b"b", redelivered=True)
    await store.letters.add([first])
    await store.letters.add([copy])
    return first, copy


async def why_not(looks: ReplayLooks, letter: Arrival) -> str | None:
    found = {each.letter.id: each.why_not for each in await prospects(looks)}
    return found[letter.letter.id]


async def test_the_original_of_a_copy_that_was_discarded_is_sent_by_filter(
    store: Store, looks: ReplayLooks
) -> None:
    first, copy = await copied(store)
    await store.decisions.discard([copy.letter.id], "ann")
    assert await why_not(looks, first) is None
    await store.decisions.restore([copy.letter.id], "ann")
    assert await why_not(looks, first) == "another letter may be a second copy of it"


async def test_the_original_of_a_copy_that_may_have_been_consumed_is_left_out(
    store: Store, looks: ReplayLooks
) -> None:
    first, copy = await copied(store)
    await sent_by_a_worker(store, copy, state=State.MANUAL)
    await store.decisions.discard([copy.letter.id], "ann")
    assert await why_not(looks, first) == "another letter may be a second copy of it"


async def test_refusals_are_counted_by_reason(store: Store, looks: ReplayLooks) -> None:
    await store.letters.add([arrival(b"%d" % number) for number in range(3)])
    job = letter_id(datetime.now(UTC), 1)
    made = await store.replays.create(job, "/", Filters(), ORDER, worker="cli-1")
    assert made is not None

    def destination_of(letter: Letter | Head) -> Destination:
        return Destination(queue=letter.queue)

    batch = await store.replays.take_batch(made, "cli-1", destination_of)
    outcomes = [
        Outcome(claim=claim, result=Result.REFUSED, reason=reason)
        for claim, reason in zip(batch.claims, ("full", "gone", "full"), strict=True)
    ]
    await store.replays.record("cli-1", outcomes, verdict_after=timedelta(minutes=10))
    assert await looks.refusals(job) == {"full": 2, "gone": 1}
    assert await looks.refusals(letter_id(datetime.now(UTC), 2)) == {}


async def test_a_job_is_found_by_how_its_id_begins(store: Store, looks: ReplayLooks) -> None:
    await store.letters.add([arrival(b"a")])
    job = letter_id(datetime.now(UTC), 1)
    await store.replays.create(job, "/", Filters(), ORDER)
    assert await looks.ids_beginning(job[:10]) == [job]
    assert await looks.ids_beginning("ffffff") == []
    assert await looks.ids_beginning("no id") == []


async def test_a_job_that_is_made_for_a_process_is_not_taken_by_another(store: Store) -> None:
    await store.letters.add([arrival(b"a")])
    job = letter_id(datetime.now(UTC), 1)
    await store.replays.create(job, "/", Filters(), ORDER, worker="cli-1")
    assert await store.replays.take("/", "worker-1", timedelta(seconds=60)) is None
    await store.replays.pause(job, "")
    await store.replays.resume(job, "cli-2")
    assert await store.replays.take("/", "worker-1", timedelta(seconds=60)) is None
