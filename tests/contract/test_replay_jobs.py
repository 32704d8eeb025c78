"""Replays as jobs: one suite that SQLite and PostgreSQL both pass, for real.

After every test the books are exact, and every letter's history leads to what it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from redrive.amqp import fields
from redrive.domain.breaker import USUAL, Position
from redrive.domain.editing import PreparedEdit
from redrive.domain.filters import Filters
from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import (
    IS_OUTSTANDING,
    SENT_BEFORE,
    Destination,
    Replay,
    ReplayOrder,
    ReplayState,
)
from redrive.domain.revival import LeaveToPerson
from redrive.domain.verdict import Receipt
from redrive.errors import CursorRefused, OrderRefused, StoreError
from redrive.store import replay_choice, replay_looks, replays
from redrive.store.replay_looks import ReplayLooks
from redrive.store.replays import Batch, Stop
from redrive.store.sendings import Outcome
from redrive.store.store import Store
from tests.services.failing import failing
from tests.services.jobs import ME, OTHER, ids_of, now, ordered, running, stop, take
from tests.services.letters import BEGAN, arrival, died_in
from tests.services.sending import (
    LEASE,
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    Places,
    all_is_consistent,
    claimed,
    come_back,
    in_doubt,
    last_attempt,
    later,
    letter,
    new_id,
    sending,
    sent,
    stored,
)


@pytest.fixture(autouse=True)
async def _consistent(store: Store) -> AsyncIterator[None]:
    yield
    await all_is_consistent(store)


async def left_out(store: Store, job: Replay) -> list[str]:
    """Why the letters of a job are left out; nothing is sent."""
    batch = await take(store, job)
    assert batch.claims == []
    return [reason for _, reason in batch.skipped]


# Making


TAGGED = {**died_in("billing"), "redrive-tags": fields.longstr("vip,eu")}
FOUND_BY = {
    "queue": Filters(queue="billing"),
    "queue glob": Filters(queue="b?ll*"),
    "tag": Filters(tag="vip"),
    "tag glob": Filters(tag="v*"),
    "search": Filters(search="NEEDLE"),
    "error type": Filters(error_type="REJECTED", queue="billing"),
    "exchange": Filters(exchange="shop", tag="eu"),
    "routing key": Filters(routing_key="order.*", tag="eu"),
    "source": Filters(source="checkout"),
    "from": Filters(created_from=BEGAN + timedelta(days=1)),
    "until, and search": Filters(created_until=BEGAN + timedelta(days=2), search="needle"),
    "status": Filters(status=(State.PENDING,), tag="vip"),
}


async def test_a_job_is_made_of_the_letters_that_match(store: Store) -> None:
    await stored(store, 3)
    wanted = arrival(
        b"a NEEDLE", headers=TAGGED, properties={"app_id": "checkout", "message_id": "needle"},
        at=timedelta(days=1),
    )  # fmt: skip
    await store.letters.add([wanted])
    by_name = {
        **FOUND_BY,
        "id": Filters(ids=(wanted.letter.id,)),
        "group": Filters(group=wanted.letter.fingerprint),
    }
    for name, filters in by_name.items():
        job = await running(store, filters)
        assert job.letters == 1, name
        async with store.database.reading() as connection:
            ids = await replays._next_ids(connection, job.id, 0, 10)
        assert ids == [wanted.letter.id], name


async def test_where_nothing_matches_there_is_no_job(store: Store) -> None:
    await stored(store)
    order = ReplayOrder(actor="me", described="")
    nothing = Filters(queue="nowhere")
    assert await store.replays.create(new_id(), VHOST, nothing, order) is None
    assert await store.replays.create(new_id(), "other", Filters(), order) is None
    assert (await store.replays.page()).items == ()


async def test_a_job_is_as_it_was_ordered(store: Store) -> None:
    await stored(store, 2)
    job = await ordered(
        store, destination=Destination(exchange="shop"), batch_size=7, pause=0.5, rate=3.0,
        doubtful=True, ordered_by="header:customer", limit=1,
    )  # fmt: skip
    assert await now(store, job) == job
    assert (job.letters, job.position, job.state) == (1, 0, ReplayState.RUNNING)
    assert (job.destination, job.filters) == ("exchange:shop", "as the test wants it")


async def test_letters_go_oldest_first_and_no_more_than_the_limit(store: Store) -> None:
    ids = await stored(store, 4)
    assert ids_of(await take(store, await running(store, limit=3))) == ids[:3]


async def test_where_order_matters_letters_go_by_their_first_failure(store: Store) -> None:
    given = [arrival() for _ in range(3)]
    given = [
        replace(
            each,
            letter=replace(each.letter, first_failed_at=BEGAN - timedelta(hours=number)),
        )
        for number, each in enumerate(given)
    ]
    await store.letters.add(given)
    job = await running(store, ordered_by="header:customer", limit=2)
    assert ids_of(await take(store, job)) == [given[2].letter.id, given[1].letter.id]


async def test_jobs_are_listed_newest_first(store: Store) -> None:
    await stored(store)
    jobs = [await ordered(store) for _ in range(3)]
    page = await store.replays.page(limit=2)
    assert page.items == (jobs[2], jobs[1])
    assert (await store.replays.page(limit=2, after=page.next)).items == (jobs[0],)
    with pytest.raises(CursorRefused):
        await store.replays.page(after="nonsense")


# Running


async def test_a_job_goes_on_behind_what_was_claimed(store: Store) -> None:
    ids = await stored(store, 5)
    job = await running(store, batch_size=2)
    assert ids_of(await take(store, job)) == ids[:2]
    assert (await now(store, job)).position == 2
    assert ids_of(await take(store, job, most=1)) == ids[2:3]
    last = await take(store, job)
    assert (ids_of(last), last.ended) == (ids[3:], True)
    ended = await now(store, job)
    assert (ended.state, ended.position, ended.locked_by) == (ReplayState.DONE, 5, None)
    assert await take(store, job) == Batch(ended=True)


async def test_what_a_job_claims_is_told_as_its_own(store: Store) -> None:
    (letter_id,) = await stored(store)
    job = await running(store)
    await take(store, job)
    attempt = await last_attempt(store, letter_id)
    assert (attempt.replay_id, attempt.strategy) == (job.id, "manual")
    assert (attempt.worker_id, attempt.queue) == (ME, QUEUE)


@pytest.mark.parametrize("state", [State.MANUAL, State.FAILED, State.RESOLVED])
async def test_letters_are_sent_by_a_person_from(store: Store, state: State) -> None:
    (letter_id,) = await stored(store)
    if state is State.MANUAL:
        await claimed(store, lambda *_: LeaveToPerson(reason="odd"))
    elif state is State.FAILED:
        for _ in range(5):
            await come_back(store, await sent(store))
        later(store, USUAL.wait)  # so many failures have opened the breaker
    else:
        await sent(store)
        await store.verdicts.settle_receipts([Receipt(letter=letter_id, generation=1)])
        later(store, timedelta(seconds=1))
    assert (await letter(store, letter_id)).status is state
    batch = await take(store, await running(store, Filters(status=(state,))))
    assert ids_of(batch) == [letter_id]
    assert (await last_attempt(store, letter_id)).before is state


async def test_a_batch_has_no_more_bytes_than_memory_should_hold(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_choice, "MOST_BYTES", 100)
    await stored(store, 3, body=b"x" * 40)
    await stored(store, 1, body=b"x" * 400)
    job = await running(store)
    sizes = [[claim.letter.size for claim in (await take(store, job)).claims] for _ in range(3)]
    assert sizes == [[40, 40], [40], [400]]
    assert (await now(store, job)).state is ReplayState.DONE


async def test_what_became_of_a_jobs_letters_is_counted(store: Store) -> None:
    await stored(store, 4)
    job = await running(store)
    claims = (await take(store, job)).claims
    await come_back(store, claims[:2])
    await store.verdicts.settle_receipts([Receipt(letter=claims[2].letter.id, generation=1)])
    await sent(store)  # of a worker, and so not of the job
    found = await store.replays.results(job.id)
    assert found == {Result.RETURNED: 2, Result.RESOLVED: 1, Result.SENDING: 1}


async def test_the_letters_of_a_job_are_listed_with_what_became_of_them(store: Store) -> None:
    ids = await stored(store, 4)
    job = await running(store)
    await store.decisions.discard([ids[0]], "me")
    claims = (await take(store, job)).claims
    await come_back(store, claims[:1])
    looks, failures = ReplayLooks(store.database, store.replays), (Result.RETURNED,)
    begun = await now(store, job)
    first = await looks.letters(begun, failures, left_out=True, limit=1)
    rest = await looks.letters(begun, failures, left_out=True, limit=1, after=first.next)
    found = [(one.id, one.result) for one in (*first.items, *rest.items)]
    assert found == [(ids[0], None), (ids[1], Result.RETURNED)]
    assert rest.next is None
    only = await looks.letters(begun, (Result.SENDING,), left_out=False, limit=9)
    assert [(one.id, one.letter and one.letter.id) for one in only.items] == [
        (id_, id_) for id_ in ids[2:]
    ]
    with pytest.raises(CursorRefused):
        await looks.letters(begun, failures, left_out=True, limit=1, after="x")


async def test_a_job_that_stopped_lists_the_letter_it_stopped_at_and_what_is_behind_it(
    store: Store,
) -> None:
    ids = await stored(store, 4)
    job = await running(store, batch_size=3)
    claims = (await take(store, job)).claims
    await come_back(store, claims[1:])
    await stop(store, job, 1)
    looks, stopped = ReplayLooks(store.database, store.replays), await now(store, job)
    page = await looks.letters(stopped, (Result.RETURNED,), left_out=True, limit=9)
    assert stopped.position == 1
    assert [(one.id, one.result) for one in page.items] == [
        (id_, Result.RETURNED) for id_ in ids[1:3]
    ]


async def test_a_job_stops_in_the_transaction_that_notes_what_was_not_sent(
    store: Store, store_url: str
) -> None:
    """Killed in between, it would go on behind that, and in order what is behind would overtake."""
    (refused, _) = await stored(store, 2)
    job = await running(store, batch_size=1, ordered_by="header:customer")
    (claim,) = (await take(store, job)).claims
    at = Stop(replay_id=job.id, position=0, reason="the queue is full")
    outcome = Outcome(claim=claim, result=Result.REFUSED, reason="full", after=State.PENDING)
    async with failing(store_url, "UPDATE", "redrive_replay"):
        with pytest.raises(StoreError):
            await store.replays.record(ME, [outcome], verdict_after=VERDICT_AFTER, stop=at)
    assert (await last_attempt(store, refused)).result is Result.SENDING
    await store.replays.record(ME, [outcome], verdict_after=VERDICT_AFTER, stop=at)
    stopped = await now(store, job)
    assert (stopped.state, stopped.position) == (ReplayState.PAUSED, 0)
    assert ids_of(await take(store, await store.replays.resume(job.id, ME))) == [refused]


async def test_a_page_of_a_jobs_letters_looks_at_some_of_them_and_says_where_to_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_looks, "WALKED", 2)
    ids = await stored(store, 5)
    job = await running(store)
    claims = (await take(store, job)).claims
    await come_back(store, claims[4:])
    looks, begun = ReplayLooks(store.database, store.replays), await now(store, job)
    found: list[list[str]] = []
    after: str | None = None
    while not found or after is not None:
        page = await looks.letters(begun, (Result.RETURNED,), left_out=True, limit=9, after=after)
        found.append([one.id for one in page.items])
        after = page.next
    assert found == [[], [], [ids[4]]]


# Leaving out


async def test_what_is_outstanding_is_left_out(store: Store) -> None:
    await stored(store, 2)
    job = await running(store)
    await sent(store, limit=1)
    await claimed(store, limit=1)
    assert all("outstanding" in reason for reason in await left_out(store, job))
    ended = await now(store, job)
    assert (ended.skipped, ended.state) == (2, ReplayState.DONE)


async def test_what_a_job_sent_is_not_sent_again_where_it_goes_on_with_a_letter_before_it(
    store: Store,
) -> None:
    refused, returned, outstanding = await stored(store, 3)
    job = await running(store)
    claims = (await take(store, job)).claims
    outcomes = [Outcome(claim=claims[0], result=Result.REFUSED, reason="full")]
    outcomes += [Outcome(claim=claim, result=Result.SENT) for claim in claims[1:]]
    await store.replays.record(ME, outcomes, verdict_after=VERDICT_AFTER)
    await come_back(store, claims[1:2])
    await stop(store, job, 0)
    batch = await take(store, await store.replays.resume(job.id, ME))
    assert ids_of(batch) == [refused]
    assert batch.skipped == [(returned, SENT_BEFORE), (outstanding, IS_OUTSTANDING)]
    assert ids_of(await take(store, await running(store))) == [returned]


async def test_a_job_goes_back_to_the_first_letter_that_only_the_connection_kept_from_being_sent(
    store: Store,
) -> None:
    archived_first, sent_, unsent, archived, sent_behind = ids = await stored(store, 5)
    job = await running(store)
    await store.decisions.discard([archived_first, archived], "me")
    batch = await take(store, job)
    assert (ids_of(batch), (await now(store, job)).skipped) == ([sent_, unsent, sent_behind], 2)
    outcomes = {claim.letter.id: Outcome(claim=claim, result=Result.SENT) for claim in batch.claims}
    back = replace(outcomes.pop(unsent), result=Result.REFUSED, reason="the broker was away")
    await store.replays.record(ME, list(outcomes.values()), verdict_after=VERDICT_AFTER)
    await store.replays.give_back(job.id, ME, batch, [back], ids.index(unsent))
    there = await now(store, job)
    assert (there.state, there.position, there.skipped) == (ReplayState.RUNNING, 2, 1)
    again = await take(store, await store.replays.begin(job.id, ME, LEASE))
    assert ids_of(again) == [unsent]
    assert [id_ for id_, _ in again.skipped] == [archived, sent_behind]
    assert (await now(store, job)).skipped == 3


async def test_what_is_archived_or_gone_is_left_out(store: Store) -> None:
    archived, deleted = await stored(store, 2)
    job = await running(store)
    await store.decisions.discard([archived], "me")
    await claimed(store)
    await store.decisions.resolve([deleted], "me")
    later(store, timedelta(seconds=1))
    await store.expiry.delete_resolved([deleted], await store.expiry.now())
    first, second = await left_out(store, job)
    assert "archived" in first
    assert "deleted" in second


async def test_what_was_resolved_since_the_order_is_not_sent_again(store: Store) -> None:
    (letter_id,) = await stored(store)
    job = await running(store)
    later(store, timedelta(seconds=1))
    await sent(store)
    await store.verdicts.settle_receipts([Receipt(letter=letter_id, generation=1)])
    (reason,) = await left_out(store, job)
    assert "resolved" in reason


async def test_resolved_letters_are_not_taken_unless_asked_for(store: Store) -> None:
    resolved, pending = await stored(store, 2)
    await sent(store, limit=1)
    await store.verdicts.settle_receipts([Receipt(letter=resolved, generation=1)])
    assert ids_of(await take(store, await running(store))) == [pending]


async def test_what_has_no_destination_is_left_out(store: Store) -> None:
    await store.letters.add([arrival(headers={})])
    (reason,) = await left_out(store, await running(store))
    assert "--to" in reason


async def silent_in_doubt(store: Store) -> None:
    await stored(store)
    await in_doubt(store)
    await store.verdicts.leave_to_person(
        VHOST, QUEUE, "in doubt", looked_at=await store.verdicts.now()
    )


async def sent_to_a_queue_that_is_gone(store: Store) -> None:
    await stored(store)
    await sent(store)
    await store.verdicts.leave_to_person(VHOST, QUEUE, "gone", looked_at=await store.verdicts.now())


async def two_copies(store: Store) -> None:
    await store.letters.add([arrival(b"tick")])
    await store.letters.add([arrival(b"tick", redelivered=True)])


DOUBTFUL = {
    "in doubt": (silent_in_doubt, 1),
    "sent to a queue that is gone": (sent_to_a_queue_that_is_gone, 1),
    "two copies": (two_copies, 2),
}


@pytest.mark.parametrize("name", DOUBTFUL)
async def test_what_may_have_been_consumed_is_sent_only_when_asked_for(
    store: Store, name: str
) -> None:
    make, number = DOUBTFUL[name]
    await make(store)
    assert len(await left_out(store, await running(store))) == number
    assert len((await take(store, await running(store, doubtful=True))).claims) == number


async def test_what_was_in_doubt_and_came_back_is_sent(store: Store) -> None:
    await stored(store)
    claims = await in_doubt(store)
    await store.verdicts.leave_to_person(
        VHOST, QUEUE, "in doubt", looked_at=await store.verdicts.now()
    )
    await come_back(store, claims)
    assert len((await take(store, await running(store))).claims) == 1


# Whose it is


async def test_the_oldest_job_that_nobody_runs_is_taken(store: Store) -> None:
    await stored(store)
    first, second = await ordered(store), await ordered(store)
    assert await store.replays.take("other", ME, LEASE) is None
    taken = [await store.replays.take(VHOST, worker, LEASE) for worker in (ME, OTHER, ME)]
    assert [each and (each.id, each.locked_by) for each in taken] == [
        (first.id, ME),
        (second.id, OTHER),
        None,
    ]


async def test_of_many_that_take_at_once_one_has_each_job(store: Store) -> None:
    await stored(store)
    jobs = {(await ordered(store)).id for _ in range(2)}
    found: Sequence[Replay | None] = await asyncio.gather(
        *(store.replays.take(VHOST, f"job-{number}", LEASE) for number in range(8))
    )
    taken = [each.id for each in found if each is not None]
    assert len(taken) == len(set(taken))
    assert set(taken) <= jobs


async def test_only_the_holder_of_the_lease_takes_batches(store: Store) -> None:
    await stored(store, 2)
    job = await running(store, batch_size=1)
    assert await take(store, job, OTHER) == Batch(ended=True)
    with pytest.raises(OrderRefused, match=f"being run by {ME}"):
        await store.replays.begin(job.id, OTHER, LEASE)
    assert await store.replays.take(VHOST, OTHER, LEASE) is None
    assert len((await take(store, job)).claims) == 1


async def test_two_that_believe_they_hold_a_job_never_claim_the_same_letter(store: Store) -> None:
    ids = await stored(store, 12)
    job = await running(store, batch_size=1)
    batches = await asyncio.gather(*(take(store, job) for _ in range(12)))
    assert sorted(each for batch in batches for each in ids_of(batch)) == ids
    assert (await now(store, job)).position == 12


@pytest.mark.parametrize("how", ["take", "begin"])
async def test_a_job_whose_process_is_silent_is_taken_over(store: Store, how: str) -> None:
    ids = await stored(store, 3)
    job = await running(store, batch_size=1)
    await take(store, job)
    later(store, LEASE)
    taken = (
        await store.replays.take(VHOST, OTHER, LEASE)
        if how == "take"
        else await store.replays.begin(job.id, OTHER, LEASE)
    )
    assert taken is not None
    assert taken.position == 1
    assert await take(store, job) == Batch(ended=True)
    assert ids_of(await take(store, job, OTHER)) == ids[1:2]


async def test_a_sign_of_life_keeps_a_job(store: Store) -> None:
    await stored(store)
    job = await running(store)
    later(store, LEASE - timedelta(seconds=1))
    assert await store.replays.renew(job.id, ME, "waits for something")
    assert not await store.replays.renew(job.id, OTHER, "")
    later(store, LEASE - timedelta(seconds=30))
    assert await store.replays.take(VHOST, OTHER, LEASE) is None
    assert (await now(store, job)).reason == "waits for something"


async def test_a_job_that_is_left_is_taken_by_the_next(store: Store) -> None:
    await stored(store)
    job = await running(store)
    await store.replays.release(job.id, OTHER)
    assert await store.replays.take(VHOST, OTHER, LEASE) is None
    await store.replays.release(job.id, ME)
    assert await store.replays.take(VHOST, OTHER, LEASE) is not None


# What people say


async def in_replay_state(store: Store, state: ReplayState) -> Replay:
    await stored(store)
    job = await running(store)
    match state:
        case ReplayState.PAUSED:
            await store.replays.pause(job.id, "lunch")
        case ReplayState.CANCELLED:
            await store.replays.cancel(job.id, "a mistake")
        case ReplayState.DONE:
            await take(store, job)
        case ReplayState.RUNNING:
            pass
    return await now(store, job)


@pytest.mark.parametrize("state", ReplayState)
async def test_jobs_are_switched_where_it_makes_sense_and_refused_elsewhere(
    store: Store, state: ReplayState
) -> None:
    after = {
        "pause": (ReplayState.PAUSED, {ReplayState.RUNNING}),
        "resume": (ReplayState.RUNNING, {ReplayState.PAUSED}),
        "cancel": (ReplayState.CANCELLED, {ReplayState.RUNNING, ReplayState.PAUSED}),
    }
    for word, (then, allowed) in after.items():
        job = await in_replay_state(store, state)
        arguments = () if word == "resume" else ("because",)
        switch = getattr(store.replays, word)
        if state in allowed:
            switched = await switch(job.id, *arguments)
            assert (switched.state, switched.locked_by) == (then, None)
            assert await now(store, job) == switched
        else:
            with pytest.raises(OrderRefused, match=f"{job.id} is {state.value}"):
                await switch(job.id, *arguments)
            assert await now(store, job) == job


async def test_a_job_that_is_not_there_is_refused(store: Store) -> None:
    nobody = new_id()
    for refused in (
        store.replays.pause(nobody, ""),
        store.replays.resume(nobody),
        store.replays.cancel(nobody, ""),
        store.replays.begin(nobody, ME, LEASE),
    ):
        with pytest.raises(OrderRefused, match="there is no replay"):
            await refused
    assert await store.replays.get(nobody) is None


async def test_a_paused_job_takes_nothing_and_goes_on_where_it_was(store: Store) -> None:
    ids = await stored(store, 2)
    job = await running(store, batch_size=1)
    await take(store, job)
    await store.replays.pause(job.id, "lunch")
    assert await take(store, job) == Batch(ended=True)
    assert await store.replays.take(VHOST, ME, LEASE) is None
    with pytest.raises(OrderRefused, match="paused"):
        await store.replays.begin(job.id, ME, LEASE)
    await store.replays.resume(job.id, ME)
    assert ids_of(await take(store, job)) == ids[1:]


async def test_what_a_cancelled_job_did_not_send_stays_as_it_is(store: Store) -> None:
    ids = await stored(store, 2)
    job = await running(store, batch_size=1)
    await take(store, job)
    await store.replays.cancel(job.id, "a mistake")
    assert await take(store, job) == Batch(ended=True)
    assert (await letter(store, ids[1])).status is State.PENDING


# Breakers


async def test_a_job_waits_for_an_open_breaker_and_then_sends_one_letter(store: Store) -> None:
    await stored(store, 5)
    await come_back(store, await sent(store))
    job = await running(store)
    batch = await take(store, job)
    (breaker,) = await store.breakers.all()
    assert (batch.claims, batch.held_by, batch.ended) == ([], QUEUE, False)
    assert batch.wait_until == breaker.breaker.next_probe_at()
    assert QUEUE in (await now(store, job)).reason
    later(store, USUAL.wait)
    probe = await take(store, job)
    assert (len(probe.claims), probe.held_by) == (1, QUEUE)
    assert (await take(store, job)).claims == []
    await store.verdicts.settle_receipts([Receipt(letter=ids_of(probe)[0], generation=2)])
    assert len((await take(store, job)).claims) == 4


async def test_a_job_of_another_process_takes_no_probe(store: Store) -> None:
    await stored(store, 5)
    await come_back(store, await sent(store))
    job = await running(store)
    later(store, USUAL.wait)
    await take(store, job, OTHER)
    (found,) = await store.breakers.all()
    assert found.breaker.state is Position.OPEN


async def test_what_goes_to_an_exchange_waits_for_no_breaker(store: Store) -> None:
    await stored(store, 5)
    await come_back(store, await sent(store))
    job = await running(store)
    batch = await store.replays.take_batch(job, ME, lambda _: Destination(exchange="shop"))
    assert {(claim.queue, claim.exchange) for claim in batch.claims} == {(None, "shop")}


# Room


async def test_a_letter_without_a_place_is_not_claimed_and_pauses_the_job_until_there_is_one(
    store: Store,
) -> None:
    ids = await stored(store, 5)
    job = await running(store)
    room = Places(orders=2)
    first = await take(store, job, room=room)
    assert (ids_of(first), first.ended, first.behind) == (ids[:2], False, 2)
    again = await take(store, job, room=room)
    assert (again.claims, again.ended, again.look_at) == ([], False, frozenset({QUEUE}))
    assert (await now(store, job)).state is ReplayState.RUNNING
    assert (await take(store, job, room=Places(orders=0))).ended
    paused = await now(store, job)
    assert (paused.state, paused.position, paused.skipped) == (ReplayState.PAUSED, 2, 0)
    assert paused.locked_by is None
    assert paused.reason.startswith(f"letter {ids[2]} was not sent: orders is full; make room")
    waiting = [await letter(store, id_) for id_ in ids[2:]]
    assert {(one.status, one.generation) for one in waiting} == {(State.PENDING, 0)}
    assert await store.replays.results(job.id) == {Result.SENDING: 2}
    await store.replays.resume(job.id, ME)
    rest = await take(store, job, room=Places(orders=9))
    assert (ids_of(rest), rest.ended) == (ids[2:], True)


async def test_nothing_is_claimed_before_somebody_has_looked_at_all_queues_of_a_batch(
    store: Store,
) -> None:
    first = await stored(store, 2)
    second = await stored(store, 2, queue="mail")
    job = await running(store)
    batch = await take(store, job, room=Places(orders=9, mail=None))
    assert (batch.claims, batch.look_at, batch.ended) == ([], frozenset({"mail"}), False)
    assert (await now(store, job)).position == 0
    assert ids_of(await take(store, job, room=Places(orders=9, mail=1))) == first + second[:1]


async def test_what_is_left_out_before_a_letter_without_a_place_is_counted(store: Store) -> None:
    archived, ready = await stored(store, 2)
    job = await running(store)
    await store.decisions.discard([archived], "me")
    batch = await take(store, job, room=Places(orders=0))
    assert ([id_ for id_, _ in batch.skipped], batch.ended) == ([archived], True)
    paused = await now(store, job)
    assert (paused.state, paused.position, paused.skipped) == (ReplayState.PAUSED, 1, 1)
    assert ready in paused.reason


async def test_a_job_that_may_push_out_others_asks_for_no_room(store: Store) -> None:
    ids = await stored(store, 2)
    job = await running(store, drop_oldest=True)
    assert (await now(store, job)).drop_oldest
    assert ids_of(await take(store, job, room=Places(orders=None))) == ids


async def test_a_letter_weighs_what_will_be_sent_of_it(store: Store) -> None:
    _, edited, undone = await stored(store, 3, body=b"x" * 10)
    for id_ in (edited, undone):
        larger = PreparedEdit(letter_id=id_, made_from=0, properties=b"\0\0", body=b"y" * 1000)
        await store.edits.edit([larger], "me")
    await store.edits.undo(undone, "me")
    room = Places(orders=9)
    await take(store, await running(store), room=room)
    assert [body for _, body, _ in room.taken] == [10, 1000, 10]
    received, without_headers, _ = (properties for _, _, properties in room.taken)
    assert received > without_headers > 1000  # what the sender adds


async def test_a_breaker_lets_no_letter_through_that_has_no_place(store: Store) -> None:
    await stored(store, 5)
    await come_back(store, await sent(store))
    job = await running(store)
    later(store, USUAL.wait)
    assert (await take(store, job, room=Places(orders=0))).ended
    (found,) = await store.breakers.all()
    assert found.breaker.state is Position.OPEN


# Beside workers


async def test_workers_and_jobs_at_once_claim_each_letter_once(store: Store) -> None:
    ids = await stored(store, 40)
    jobs = [await running(store, batch_size=3) for _ in range(2)]
    found: list[str] = []

    async def replay(job: Replay) -> None:
        while not (batch := await take(store, job)).ended:
            found.extend(ids_of(batch))
        found.extend(ids_of(batch))

    async def work(worker: str) -> None:
        while claims := await claimed(store, sending(gated=True), worker=worker, limit=3):
            found.extend(claim.letter.id for claim in claims)

    await asyncio.gather(*map(replay, jobs), work("worker-1"), work("worker-2"))
    assert sorted(found) == ids
    ended = await store.verdicts.end_leases(timedelta(0), verdict_after=VERDICT_AFTER)
    assert ended == 40
