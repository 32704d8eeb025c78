"""Letters are claimed, sent and recorded: one suite that SQLite and PostgreSQL both pass, for real.

After every test the books are exact, and every letter's history leads to what it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert

from redrive.domain.letter import Letter, Resolution, Result
from redrive.domain.lifecycle import State
from redrive.domain.revival import FULL_AGAIN, Decision, LeaveToPerson, Postpone, Send
from redrive.domain.verdict import on_silence
from redrive.store import sendings
from redrive.store.changing import hold_letters
from redrive.store.digests import body_digest
from redrive.store.schema import redrive_edit
from redrive.store.store import Store
from tests.services.letters import arrival
from tests.services.plans import goes_by, statements
from tests.services.sending import (
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    WORKER,
    Places,
    all_is_consistent,
    claimed,
    come_back,
    in_doubt,
    in_priority,
    last_attempt,
    later,
    letter,
    record,
    sending,
    sent,
    stored,
)

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
async def _consistent(store: Store) -> AsyncIterator[None]:
    yield
    await all_is_consistent(store)


# Claims


async def test_letters_are_claimed_by_priority_and_then_by_age(store: Store) -> None:
    ids = await in_priority(store, 0, 9, 0, 9, 255)
    claims = await claimed(store)
    assert [claim.letter.id for claim in claims] == [ids[n] for n in (4, 1, 3, 0, 2)]


async def test_no_more_letters_are_claimed_than_asked_for(store: Store) -> None:
    await stored(store, 5)
    assert [len(await claimed(store, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_what_is_due_later_hides_nothing_that_is_due(store: Store) -> None:
    ids = await in_priority(store, 9, 9, 5, 0)

    def decide(one: Letter, now: datetime, _: bool) -> Decision:
        if one.priority == 9:
            return Postpone(at=now + HOUR, strategy="scheduled", reason="at night")
        return Send(strategy="immediate", queue=QUEUE)

    assert await claimed(store, decide, limit=2) == []
    assert [claim.letter.id for claim in await claimed(store)] == ids[2:]
    in_ = await store.sendings.next_due_in(VHOST)
    assert in_ is not None
    assert timedelta(0) < in_ <= HOUR
    later(store, HOUR)
    assert [claim.letter.id for claim in await claimed(store)] == ids[:2]


async def test_among_what_was_due_first_the_oldest_goes_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sendings, "_WINDOW", 3)
    waits: dict[str, timedelta] = {}

    def decide(one: Letter, now: datetime, _: bool) -> Decision:
        return Postpone(at=now + waits[one.id], strategy="scheduled", reason="at night")

    ids = await stored(store, 6)
    waits = {id_: HOUR * (9 - number) for number, id_ in enumerate(ids)}
    await claimed(store, decide)
    later(store, HOUR * 10)
    claims = await claimed(store, limit=2) + await claimed(store, limit=2)
    assert [claim.letter.id for claim in claims] == [ids[3], ids[4], ids[1], ids[2]]


async def test_a_batch_has_no_more_bytes_than_memory_should_hold(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sendings, "MOST_BYTES", 100)
    await stored(store, 3, body=b"x" * 40)
    await stored(store, 1, body=b"x" * 400)
    taken = [await store.sendings.take_due(WORKER, VHOST, 10, sending()) for _ in range(4)]
    sizes = [[claim.letter.size for claim in each.claims] for each in taken]
    assert sizes == [[40, 40], [40], [400], []]
    assert [each.looked_at for each in taken] == [2, 1, 1, 0]


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)  # on SQLite a writer is alone
async def test_letters_that_others_hold_for_long_hold_up_no_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sendings, "_WINDOW", 4)
    monkeypatch.setattr(sendings, "_WORKERS", 2)
    ids = await stored(store, 12)
    async with store.database.writing() as connection:
        await hold_letters(connection, ids[:9])
        assert [claim.letter.id for claim in await claimed(store, limit=2)] == ids[9:11]


async def test_letters_of_another_vhost_are_not_claimed(store: Store) -> None:
    given = arrival()
    await store.letters.add([replace(given, letter=replace(given.letter, vhost="other"))])
    assert await claimed(store) == []


async def test_a_claim_is_in_the_store_before_anything_can_be_sent(store: Store) -> None:
    (letter_id,) = await stored(store, body=b"as received")
    (claim,) = await claimed(store)
    now = await letter(store, letter_id)
    assert (now.status, now.generation, now.locked_by) == (State.PROCESSING, 1, WORKER)
    assert now.locked_at is not None
    (attempt,) = await store.letters.attempts(letter_id)
    assert (attempt.result, attempt.generation) == (Result.SENDING, 1)
    assert (attempt.before, attempt.queue) == (State.PENDING, QUEUE)
    assert attempt.body_digest == body_digest(b"as received")
    assert (claim.generation, claim.envelope.body) == (1, b"as received")


async def test_each_claim_is_a_generation_of_its_own(store: Store) -> None:
    (letter_id,) = await stored(store)
    for generation in (1, 2, 3):
        (claim,) = await sent(store)
        assert claim.generation == generation
        await come_back(store, [claim])
    assert (await letter(store, letter_id)).generation == 3


async def test_what_was_edited_is_what_is_claimed(store: Store) -> None:
    (letter_id,) = await stored(store, body=b"as received")
    async with store.database.writing() as connection:
        for number, undone in ((1, False), (2, True)):
            await connection.execute(
                insert(redrive_edit).values(
                    letter_id=letter_id,
                    number=number,
                    at=await store.clock.now(connection),
                    actor="me",
                    reason="",
                    properties=b"\0\0",
                    body=b"edit %d" % number,
                    undone=undone,
                )
            )
    (claim,) = await claimed(store)
    assert (claim.envelope.body, claim.envelope.properties) == (b"edit 1", b"\0\0")
    assert (await last_attempt(store, letter_id)).body_digest == body_digest(b"edit 1")


async def test_of_many_workers_at_once_one_claims_each_letter(store: Store) -> None:
    ids = await stored(store, 60)

    async def work(worker: str) -> list[str]:
        found: list[str] = []
        while claims := await claimed(store, worker=worker, limit=4):
            found += [claim.letter.id for claim in claims]
        return found

    found = await asyncio.gather(*(work(f"worker-{number}") for number in range(6)))
    claims = [each for some in found for each in some]
    left = await claimed(store, limit=60)  # what all of them found locked by another
    assert sorted([*claims, *(claim.letter.id for claim in left)]) == ids


async def test_a_worker_learns_of_which_letters_there_may_be_a_copy(store: Store) -> None:
    seen: dict[str, bool] = {}

    def decide(one: Letter, _: datetime, has_copy: bool) -> Decision:
        seen[one.id] = has_copy
        return LeaveToPerson(reason="looked at")

    first, copy, other = arrival(b"tick"), arrival(b"tick", redelivered=True), arrival(b"tock")
    await store.letters.add([first])
    await store.letters.add([copy, other])
    await claimed(store, decide)
    assert seen == {first.letter.id: True, copy.letter.id: False, other.letter.id: False}


# What is not sent now


@pytest.mark.parametrize("noted", [True, False])
async def test_a_postponed_letter_is_looked_at_when_it_is_due(store: Store, noted: bool) -> None:
    def decide(_: Letter, now: datetime, __: bool) -> Decision:
        return Postpone(at=now + HOUR, strategy="scheduled", reason="at night", noted=noted)

    (letter_id,) = await stored(store)
    taken = await store.sendings.take_due(WORKER, VHOST, 10, decide)
    assert (taken.claims, taken.left, taken.looked_at) == ([], [], 1)
    assert (await letter(store, letter_id)).strategy == "scheduled"
    assert await claimed(store) == []
    later(store, HOUR)
    assert len(await claimed(store)) == 1
    told = [change.reason for change in await store.letters.history(letter_id)]
    assert ("at night" in told) is noted


async def test_a_letter_that_only_a_person_can_judge_is_left_to_one(store: Store) -> None:
    (letter_id,) = await stored(store)
    taken = await store.sendings.take_due(WORKER, VHOST, 10, lambda *_: LeaveToPerson(reason="odd"))
    assert [(left.id, reason) for left, reason in taken.left] == [(letter_id, "odd")]
    now = await letter(store, letter_id)
    assert (now.status, now.strategy, now.generation) == (State.MANUAL, "manual", 0)


async def test_what_finds_no_place_in_its_queue_stays_pending_and_is_looked_at_again_in_a_minute(
    store: Store,
) -> None:
    ids = await stored(store, 2)
    taken = await store.sendings.take_due(WORKER, VHOST, 10, sending(), Places(orders=0))
    assert (taken.claims, taken.full, taken.look_at) == ([], {QUEUE: "orders is full"}, frozenset())
    assert {(await letter(store, id_)).generation for id_ in ids} == {0}
    assert await claimed(store) == []
    later(store, FULL_AGAIN)
    assert [claim.letter.id for claim in await claimed(store)] == ids


async def test_what_somebody_has_to_look_at_the_queue_of_stays_due(store: Store) -> None:
    first, second, third = await stored(store, 3)
    unknown = await store.sendings.take_due(WORKER, VHOST, 10, sending(), Places(orders=None))
    assert (unknown.claims, unknown.look_at, unknown.looked_at) == ([], frozenset({QUEUE}), 3)
    filled = await store.sendings.take_due(WORKER, VHOST, 10, sending(), Places(orders=1))
    assert [claim.letter.id for claim in filled.claims] == [first]
    assert (filled.look_at, filled.full) == (frozenset({QUEUE}), {})
    assert [claim.letter.id for claim in await claimed(store)] == [second, third]


async def test_a_queue_without_a_place_keeps_no_letter_of_another_back(store: Store) -> None:
    await stored(store, 2)
    (other,) = await stored(store, queue="mail")

    def home(one: Letter, _: datetime, __: bool) -> Decision:
        return Send(strategy="immediate", queue=one.queue)

    taken = await store.sendings.take_due(WORKER, VHOST, 10, home, Places(orders=0))
    assert [claim.letter.id for claim in taken.claims] == [other]


async def test_when_the_next_letter_is_due_is_known(store: Store) -> None:
    assert await store.sendings.next_due_in(VHOST) is None
    await stored(store)
    due_in = await store.sendings.next_due_in(VHOST)
    assert due_in is not None
    assert due_in <= timedelta(0)
    assert await store.sendings.next_due_in("other") is None

    def in_an_hour(_: Letter, now: datetime, __: bool) -> Decision:
        return Postpone(at=now + HOUR, strategy="scheduled", reason="")

    await claimed(store, in_an_hour)
    due_in = await store.sendings.next_due_in(VHOST)
    assert due_in is not None
    assert timedelta(minutes=59) < due_in <= HOUR


# What became of it


@pytest.mark.parametrize("result", [Result.SENT, Result.IN_DOUBT])
async def test_what_was_sent_is_unlocked_and_waits_for_its_verdict(
    store: Store, result: Result
) -> None:
    await stored(store, 2)
    queues = iter((QUEUE, None))
    claims = await claimed(store, lambda *_: Send(strategy="immediate", queue=next(queues)))
    await record(store, claims, result)
    to_queue, to_exchange = [await letter(store, claim.letter.id) for claim in claims]
    assert to_queue.status is to_exchange.status is State.PROCESSING
    assert to_queue.verdict_due_at is None, "its clock starts when the queue was seen idle"
    assert to_exchange.verdict_due_at == to_exchange.updated_at + VERDICT_AFTER
    for claim in claims:
        assert (await last_attempt(store, claim.letter.id)).result is result


async def test_a_record_is_found_by_ids_however_many_letters_are_in_processing(
    store: Store,
) -> None:
    await stored(store, 100)
    claims = await claimed(store)
    with statements(store, "UPDATE redrive_letter") as asked:
        await record(store, claims, Result.SENT)
    assert asked
    assert not await goes_by(store, asked, "redrive_letter_status")


@pytest.mark.parametrize("after", [State.MANUAL, State.PENDING, State.FAILED])
async def test_what_was_refused_goes_where_the_sender_says(store: Store, after: State) -> None:
    await stored(store)
    claims = await claimed(store)
    await record(store, claims, Result.REFUSED, reason="full", after=after, retry_in=HOUR)
    now = await letter(store, claims[0].letter.id)
    assert (now.status, now.dlq_retry_count) == (after, 0)
    attempt = await last_attempt(store, now.id)
    assert (attempt.result, attempt.reason) == (Result.REFUSED, "full")
    assert (await store.letters.history(now.id))[-1].reason == "not sent: full"
    later(store, HOUR)
    assert len(await claimed(store)) == (1 if after is State.PENDING else 0)


async def test_a_refusal_can_count_as_a_revival(store: Store) -> None:
    await stored(store)
    claims = await claimed(store)
    await record(store, claims, Result.REFUSED, after=State.PENDING, revival=True)
    assert (await letter(store, claims[0].letter.id)).dlq_retry_count == 1


async def test_outcomes_of_all_kinds_are_recorded_together(store: Store) -> None:
    await stored(store, 2)
    await come_back(store, await sent(store))
    await stored(store, 2)
    claims = await claimed(store)
    assert {claim.generation for claim in claims} == {1, 2}
    await record(store, claims[:2])
    await record(store, claims[2:], Result.IN_DOUBT)
    results = [(await last_attempt(store, claim.letter.id)).result for claim in claims]
    assert results == [Result.SENT] * 2 + [Result.IN_DOUBT] * 2


async def test_a_record_that_is_made_twice_counts_once(store: Store) -> None:
    await stored(store)
    claims = await claimed(store)
    for _ in range(2):
        await record(store, claims, Result.REFUSED, after=State.PENDING, revival=True)
    now = await letter(store, claims[0].letter.id)
    assert (now.status, now.dlq_retry_count) == (State.PENDING, 1)


async def test_a_record_of_a_letter_that_is_gone_is_passed_over(store: Store) -> None:
    await stored(store, 2)
    claims = await claimed(store)
    await store.decisions.resolve([claims[0].letter.id], "me")
    later(store, HOUR)
    until = await store.expiry.now()
    assert await store.expiry.delete_resolved([claims[0].letter.id], until) == 1
    await record(store, claims)
    await record(store, claims, Result.REFUSED)
    assert await store.letters.get(claims[0].letter.id) is None


# What comes in before the record


@pytest.mark.parametrize("result", [Result.SENT, Result.IN_DOUBT, Result.REFUSED])
async def test_a_return_before_the_record_counts_for_more(store: Store, result: Result) -> None:
    (letter_id,) = await stored(store)
    claims = await claimed(store)
    await come_back(store, claims)
    before = await letter(store, letter_id)
    assert before.status is State.PENDING
    await record(store, claims, result, after=State.MANUAL)
    assert await letter(store, letter_id) == before
    assert (await last_attempt(store, letter_id)).result is Result.RETURNED


@pytest.mark.parametrize("result", [Result.SENT, Result.IN_DOUBT, Result.REFUSED])
async def test_a_late_record_does_not_touch_the_claim_after_it(
    store: Store, result: Result
) -> None:
    """Also if it is of the same worker, whose replays and revivals go their own ways."""
    (letter_id,) = await stored(store)
    first = await claimed(store)
    await come_back(store, first)
    await claimed(store)
    before = await letter(store, letter_id)
    assert (before.generation, before.locked_by) == (2, WORKER)
    await record(store, first, result, after=State.MANUAL)
    assert await letter(store, letter_id) == before
    attempts = await store.letters.attempts(letter_id)
    assert [each.result for each in attempts] == [Result.RETURNED, Result.SENDING]


# What comes in after the lease


async def test_a_record_after_the_lease_says_that_it_was_sent_after_all(store: Store) -> None:
    (letter_id,) = await stored(store)
    claims = await in_doubt(store)
    await record(store, claims)
    assert (await last_attempt(store, letter_id)).result is Result.SENT
    seen = await store.verdicts.now()
    counted = await store.verdicts.count_silence(
        VHOST, QUEUE, seen_idle_at=seen, verdict_after=VERDICT_AFTER
    )
    assert counted == 1
    later(store, VERDICT_AFTER)
    (settled,) = await store.verdicts.settle_silent(
        VHOST, QUEUE, lambda _, attempt: on_silence(attempt, dead_letters=True)
    )
    assert settled.letter.resolution is Resolution.SILENCE


async def test_silence_before_a_late_sending_says_nothing_of_it(store: Store) -> None:
    """A worker that slept through its lease sends only when it wakes up."""
    (letter_id,) = await stored(store)
    claims = await in_doubt(store)
    seen = await store.verdicts.now()
    await store.verdicts.count_silence(VHOST, QUEUE, seen_idle_at=seen, verdict_after=VERDICT_AFTER)
    later(store, VERDICT_AFTER)
    await record(store, claims)
    assert (await letter(store, letter_id)).verdict_due_at is None
    later(store, timedelta(milliseconds=1))
    assert await store.verdicts.awaited(VHOST) == [QUEUE]


async def test_what_is_refused_after_its_lease_is_not_left_to_silence(store: Store) -> None:
    (letter_id,) = await stored(store)
    claims = await in_doubt(store)
    await record(store, claims, Result.REFUSED, reason="no such queue")
    assert (await letter(store, letter_id)).status is State.MANUAL
    assert (await last_attempt(store, letter_id)).result is Result.REFUSED


async def test_a_record_after_silence_tells_the_truth_of_the_attempt(store: Store) -> None:
    (letter_id,) = await stored(store)
    claims = await in_doubt(store, sending(None))
    later(store, VERDICT_AFTER)
    await store.verdicts.settle_silent(
        VHOST, None, lambda _, attempt: on_silence(attempt, dead_letters=True)
    )
    await record(store, claims)
    assert (await letter(store, letter_id)).status is State.MANUAL
    assert (await last_attempt(store, letter_id)).result is Result.SENT


# How it is told


async def test_a_history_is_told_in_order_whatever_the_clocks_said(store: Store) -> None:
    (letter_id,) = await stored(store)
    later(store, HOUR)
    claims = await sent(store)
    later(store, -HOUR)
    await come_back(store, claims)
    later(store, HOUR)
    await sent(store)
    told = [change.after for change in await store.letters.history(letter_id)]
    assert told == [State.PENDING, State.PROCESSING, State.PENDING, State.PROCESSING]
