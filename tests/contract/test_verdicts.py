"""Verdicts on letters that were sent: one suite that SQLite and PostgreSQL both pass, for real.

After every test the books are exact, and every letter's history leads to what it is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from unittest.mock import AsyncMock, Mock
from uuid import UUID

import pytest

from redrive.domain.filters import Filters
from redrive.domain.letter import Attempt, Claim, Letter, Resolution, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, ReplayOrder
from redrive.domain.revival import Send
from redrive.domain.verdict import Receipt, Verdict, on_silence
from redrive.errors import BrokerError
from redrive.store import verdicts
from redrive.store.sendings import Outcome
from redrive.store.store import Store
from redrive.store.verdicts import Settled
from redrive.work import verdict_watch
from redrive.work.verdict_watch import VerdictWatch
from tests.services.scale import faults
from tests.services.sending import (
    LEASE,
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    all_is_consistent,
    claimed,
    come_back,
    in_doubt,
    last_attempt,
    later,
    letter,
    new_id,
    record,
    sending,
    sent,
    stored,
)

MOMENT = timedelta(milliseconds=1)


@pytest.fixture(autouse=True)
async def _consistent(store: Store) -> AsyncIterator[None]:
    yield
    await all_is_consistent(store)


def receipt(claim: Claim, **changes: object) -> Receipt:
    values = {"letter": claim.letter.id, "generation": claim.generation, "queue": None}
    return Receipt(**(values | changes))  # type: ignore[arg-type]


async def see_idle(store: Store, queue: str = QUEUE) -> int:
    """The destination is seen idle now; how many clocks that starts."""
    later(store, MOMENT)
    seen = await store.verdicts.now()
    return await store.verdicts.count_silence(
        VHOST, queue, seen_idle_at=seen, verdict_after=VERDICT_AFTER
    )


async def seen_gone(store: Store, queue: str = QUEUE) -> list[Settled]:
    """The destination is seen to be gone now."""
    looked_at = await store.verdicts.now()
    return await store.verdicts.leave_to_person(
        VHOST, queue, "its queue is gone", looked_at=looked_at
    )


async def settle(store: Store, *, dead_letters: bool = True) -> list[Settled]:
    def decide(_: Letter, attempt: Attempt) -> Verdict:
        return on_silence(attempt, dead_letters=dead_letters)

    settled: list[Settled] = []
    for queue in (QUEUE, None):
        settled += await store.verdicts.settle_silent(VHOST, queue, decide)
    return settled


async def silence(store: Store, *, dead_letters: bool = True) -> list[Settled]:
    """The destination is idle, and nothing is heard for long."""
    await see_idle(store)
    later(store, VERDICT_AFTER)
    return await settle(store, dead_letters=dead_letters)


# Looking


async def test_where_nothing_is_to_be_done_nobody_is_kept_from_writing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(store, 2)
    await sent(store, limit=1)
    await claimed(store)
    now = await store.verdicts.now()
    with monkeypatch.context() as patched:
        patched.setattr(store.database, "writing", None)
        assert await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER) == 0
        assert await settle(store) == []
        assert await seen_gone(store, "other") == []
        counted = await store.verdicts.count_silence(
            VHOST, QUEUE, seen_idle_at=now - LEASE, verdict_after=VERDICT_AFTER
        )
        assert counted == 0


async def test_a_survey_tells_what_there_is_to_do(store: Store) -> None:
    async def survey(vhost: str = VHOST) -> tuple[bool, bool, bool]:
        found = await store.verdicts.survey(vhost, LEASE)
        return found.leases, found.awaited, found.silent

    assert await survey() == (False, False, False)
    await stored(store)
    assert await survey() == (False, False, False)
    claims = await claimed(store)
    assert await survey() == (False, False, False)
    later(store, LEASE)
    assert await survey() == (True, False, False)
    await record(store, claims)
    assert await survey() == (False, True, False)
    assert await survey("other") == (False, False, False)
    await see_idle(store)
    assert await survey() == (False, False, False)
    later(store, VERDICT_AFTER)
    assert await survey() == (False, False, True)
    assert await survey("other") == (False, False, False)


async def test_more_letters_than_one_look_finds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "_AT_ONCE", 2)
    monkeypatch.setattr(verdicts, "_LISTED", 4)
    await stored(store, 8)
    assert len(await in_doubt(store)) == 8
    assert await see_idle(store) == 8


# Leases


async def test_a_sending_whose_lease_has_ended_is_in_doubt(store: Store) -> None:
    (letter_id,) = await stored(store)
    await claimed(store)
    later(store, LEASE - timedelta(seconds=30))
    assert await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER) == 0
    later(store, timedelta(seconds=30))
    assert await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER) == 1
    now = await letter(store, letter_id)
    assert (now.status, now.locked_by, now.verdict_due_at) == (State.PROCESSING, None, None)
    assert (await last_attempt(store, letter_id)).result is Result.IN_DOUBT
    assert await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER) == 0


async def test_what_was_recorded_has_no_lease_to_end(store: Store) -> None:
    (letter_id,) = await stored(store)
    await sent(store)
    later(store, LEASE)
    assert await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER) == 0
    assert (await last_attempt(store, letter_id)).result is Result.SENT


async def test_all_leases_end_however_many_there_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "_AT_ONCE", 2)
    ids = await stored(store, 5)
    await in_doubt(store)
    for letter_id in ids:
        assert (await last_attempt(store, letter_id)).result is Result.IN_DOUBT


@pytest.mark.parametrize("queue", [QUEUE, None])
async def test_what_is_in_doubt_and_silent_is_left_to_a_person(
    store: Store, queue: str | None
) -> None:
    (letter_id,) = await stored(store)
    await in_doubt(store, sending(queue))
    (settled,) = await silence(store)
    assert (settled.before, settled.letter.status) == (State.PROCESSING, State.MANUAL)
    assert (await letter(store, letter_id)).resolution is None
    assert (await last_attempt(store, letter_id)).result is Result.IN_DOUBT


async def test_a_return_settles_what_is_in_doubt_as_failed(store: Store) -> None:
    (letter_id,) = await stored(store)
    await come_back(store, await in_doubt(store))
    assert (await letter(store, letter_id)).status is State.PENDING
    assert (await last_attempt(store, letter_id)).result is Result.RETURNED


async def test_a_return_of_what_is_with_a_person_by_now_leaves_it_there(store: Store) -> None:
    (letter_id,) = await stored(store)
    claims = await in_doubt(store)
    await silence(store)
    await come_back(store, claims)
    assert (await letter(store, letter_id)).status is State.MANUAL
    assert (await last_attempt(store, letter_id)).result is Result.RETURNED


# Receipts


@pytest.mark.parametrize("recorded", [Result.SENT, Result.IN_DOUBT, None])
async def test_a_receipt_resolves_what_was_sent_at_once(
    store: Store, recorded: Result | None
) -> None:
    (letter_id,) = await stored(store)
    (claim,) = await claimed(store)
    if recorded is not None:
        await record(store, [claim], recorded)
    (settled,) = await store.verdicts.settle_receipts([receipt(claim, queue=QUEUE)])
    now = await letter(store, letter_id)
    assert settled.letter == now
    assert (now.status, now.resolution) == (State.RESOLVED, Resolution.RECEIPT)
    await record(store, [claim])  # which comes too late to change anything
    assert await letter(store, letter_id) == now
    assert (await last_attempt(store, letter_id)).result is Result.RESOLVED


async def test_a_receipt_resolves_what_was_left_to_a_person_in_doubt(store: Store) -> None:
    await stored(store)
    (claim,) = await in_doubt(store)
    await silence(store)
    (settled,) = await store.verdicts.settle_receipts([receipt(claim)])
    assert (settled.before, settled.letter.status) == (State.MANUAL, State.RESOLVED)


async def test_receipts_that_say_nothing_new_are_passed_over(store: Store) -> None:
    await stored(store, 4)
    claims = await sent(store)
    returned, resolved, elsewhere, later_ = claims
    await come_back(store, [returned])
    await store.verdicts.settle_receipts([receipt(resolved)])
    before = [await letter(store, claim.letter.id) for claim in claims]
    passed_over = [
        receipt(returned),
        receipt(resolved),
        receipt(elsewhere, queue="billing"),
        receipt(later_, generation=2),
        receipt(later_, letter=str(UUID(int=7))),
    ]
    assert await store.verdicts.settle_receipts(passed_over) == []
    assert [await letter(store, claim.letter.id) for claim in claims] == before


async def test_a_receipt_of_an_earlier_sending_does_not_settle_the_one_after_it(
    store: Store,
) -> None:
    await stored(store)
    (first,) = await sent(store)
    await come_back(store, [first])
    (second,) = await sent(store)
    assert await store.verdicts.settle_receipts([receipt(first)]) == []
    assert (await letter(store, second.letter.id)).status is State.PROCESSING


async def test_of_several_receipts_for_one_letter_the_one_that_holds_counts(store: Store) -> None:
    (letter_id,) = await stored(store)
    (claim,) = await sent(store)
    told = [
        receipt(claim, generation=7),
        receipt(claim, queue=QUEUE),
        receipt(claim, queue=QUEUE),
        receipt(claim, queue="billing"),
    ]
    assert len(await store.verdicts.settle_receipts(told)) == 1
    assert (await letter(store, letter_id)).status is State.RESOLVED


async def test_no_receipts_settle_nothing(store: Store) -> None:
    assert await store.verdicts.settle_receipts([]) == []


# Silence


async def test_the_queues_that_are_awaited_are_those_whose_silence_does_not_count_yet(
    store: Store,
) -> None:
    for queue in ("c", "b", "a", "a", None):
        await stored(store)
        await sent(store, sending(queue))
    await see_idle(store, "b")
    await stored(store)
    await claimed(store, sending("locked"))
    assert await store.verdicts.awaited(VHOST) == ["a", "c"]
    assert await store.verdicts.awaited("other") == []


async def test_silence_counts_only_for_what_was_sent_before_the_queue_was_seen_idle(
    store: Store,
) -> None:
    early, late = await stored(store, 2)
    await sent(store, limit=1)
    later(store, MOMENT)
    seen = await store.verdicts.now()
    later(store, timedelta(seconds=1))
    await sent(store, limit=1)
    counted = await store.verdicts.count_silence(
        VHOST, QUEUE, seen_idle_at=seen, verdict_after=VERDICT_AFTER
    )
    assert counted == 1
    assert (await letter(store, early)).verdict_due_at is not None
    assert (await letter(store, late)).verdict_due_at is None


async def test_silence_counts_for_however_many_letters(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "_AT_ONCE", 2)
    await stored(store, 5)
    await sent(store)
    assert await see_idle(store) == 5
    assert await see_idle(store) == 0


async def test_a_clock_that_runs_is_not_set_back(store: Store) -> None:
    (letter_id,) = await stored(store)
    await sent(store)
    await see_idle(store)
    due = (await letter(store, letter_id)).verdict_due_at
    later(store, timedelta(minutes=1))
    assert await see_idle(store) == 0
    assert (await letter(store, letter_id)).verdict_due_at == due


async def test_nothing_is_settled_before_silence_has_lasted_long_enough(store: Store) -> None:
    await stored(store)
    await sent(store)
    await see_idle(store)
    later(store, VERDICT_AFTER - timedelta(seconds=30))
    assert await store.verdicts.silent_queues(VHOST) == []
    assert await settle(store) == []
    later(store, timedelta(seconds=30))
    assert await store.verdicts.silent_queues(VHOST) == [QUEUE]
    assert len(await settle(store)) == 1


async def test_only_what_went_to_the_queue_that_was_looked_at_is_settled(store: Store) -> None:
    first, second, third = await stored(store, 3)
    for queue in (QUEUE, "other", None):
        await sent(store, sending(queue), limit=1)
    for queue in (QUEUE, "other"):
        await see_idle(store, queue)
    later(store, VERDICT_AFTER)
    for queue, settled in ((QUEUE, first), (None, third)):
        verdicts = await store.verdicts.settle_silent(
            VHOST, queue, lambda _, sent: on_silence(sent, dead_letters=True)
        )
        assert [each.letter.id for each in verdicts] == [settled]
    assert (await letter(store, second)).status is State.PROCESSING


async def test_a_clock_that_was_stopped_starts_when_its_queue_is_seen_idle_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "_AT_ONCE", 2)
    early = await stored(store, 3)
    await sent(store)
    await see_idle(store)
    later(store, VERDICT_AFTER)
    (late,) = await stored(store)
    await sent(store)
    await see_idle(store)
    assert await store.verdicts.count_no_more(VHOST, "other") == 0
    assert await store.verdicts.count_no_more(VHOST, QUEUE) == len(early)
    assert await settle(store) == []
    assert [(await letter(store, one)).verdict_due_at for one in early] == [None] * 3
    assert (await letter(store, late)).verdict_due_at is not None, "it was not due yet"
    assert await see_idle(store) == len(early)
    later(store, VERDICT_AFTER)
    settled = [each.letter.id for _ in range(2) for each in await settle(store)]
    assert sorted(settled) == sorted([*early, late])


async def test_what_a_queue_took_along_is_left_to_a_person_though_it_was_silent_for_long(
    store: Store,
) -> None:
    await stored(store)
    await sent(store)
    await see_idle(store)
    assert await seen_gone(store) == []
    later(store, VERDICT_AFTER)
    (left,) = await seen_gone(store)
    assert left.letter.status is State.MANUAL


@pytest.mark.parametrize(
    ("queue", "dead_letters", "resolution"),
    [
        (QUEUE, True, Resolution.SILENCE),
        (QUEUE, False, Resolution.UNKNOWN),
        (None, True, Resolution.UNKNOWN),
    ],
)
async def test_what_was_sent_and_is_silent_is_resolved(
    store: Store, queue: str | None, dead_letters: bool, resolution: Resolution
) -> None:
    (letter_id,) = await stored(store)
    await sent(store, sending(queue))
    (settled,) = await silence(store, dead_letters=dead_letters)
    now = await letter(store, letter_id)
    assert settled.letter == now
    assert (now.status, now.resolution) == (State.RESOLVED, resolution)
    assert (await last_attempt(store, letter_id)).result is Result.RESOLVED


async def test_what_comes_back_after_silence_is_pending_again(store: Store) -> None:
    (letter_id,) = await stored(store)
    claims = await sent(store)
    await silence(store)
    await come_back(store, claims)
    now = await letter(store, letter_id)
    assert (now.status, now.resolution, now.dlq_retry_count) == (State.PENDING, None, 1)
    assert (await last_attempt(store, letter_id)).result is Result.RETURNED
    assert len(await claimed(store)) == 1


async def test_silence_does_not_settle_what_was_sent_again_since(store: Store) -> None:
    (letter_id,) = await stored(store)
    claims = await sent(store)
    await see_idle(store)
    await come_back(store, claims)
    await claimed(store)
    later(store, VERDICT_AFTER)
    assert await settle(store) == []
    assert (await last_attempt(store, letter_id)).result is Result.SENDING


async def test_what_was_sent_to_a_queue_that_is_gone_is_left_to_a_person(store: Store) -> None:
    gone, there, unsent = await stored(store, 3)
    queues = iter(("gone", "there"))
    await sent(store, lambda *_: Send(strategy="immediate", queue=next(queues)), limit=2)
    (settled,) = await seen_gone(store, "gone")
    assert settled.letter == await letter(store, gone)
    assert settled.letter.status is State.MANUAL
    assert (await last_attempt(store, gone)).result is Result.SENT
    assert (await letter(store, there)).status is State.PROCESSING
    assert (await letter(store, unsent)).status is State.PENDING


async def test_what_was_sent_after_a_queue_was_seen_to_be_gone_is_not_left_to_a_person(
    store: Store,
) -> None:
    """Somebody made the queue again."""
    early, late = await stored(store, 2)
    await sent(store, limit=1)
    looked_at = await store.verdicts.now()
    later(store, MOMENT)
    await sent(store, limit=1)
    (left,) = await store.verdicts.leave_to_person(VHOST, QUEUE, "gone", looked_at=looked_at)
    assert left.letter.id == early
    assert (await letter(store, late)).status is State.PROCESSING


# What looks at destinations


async def watch(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, is_open: bool = True
) -> VerdictWatch:
    """Letters went to `a` and `b`, and are looked at; the broker does not answer for `a`."""
    for queue in ("a", "b"):
        await stored(store)
        await sent(store, sending(queue))
    later(store, MOMENT)

    async def see(_: object, queue: str) -> verdict_watch._Seen:
        if queue == "a":
            raise BrokerError("the broker did not answer queue.declare within 60 s")
        return verdict_watch._Seen.ATTENDED

    monkeypatch.setattr(verdict_watch, "_seen", see)
    connect = AsyncMock(return_value=Mock(is_open=is_open))
    return VerdictWatch(
        VHOST, store.verdicts, connect, None, lease=LEASE, verdict_after=VERDICT_AFTER
    )


async def test_a_destination_that_the_broker_does_not_answer_for_keeps_no_other_from_a_verdict(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = await watch(store, monkeypatch)
    await watching.round()
    assert await store.verdicts.awaited(VHOST) == ["a"]
    later(store, VERDICT_AFTER)
    await watching.round()
    states = [each.status for each in (await store.letters.page(Filters(), limit=9)).items]
    assert sorted(states) == sorted([State.RESOLVED, State.PROCESSING])


async def test_a_broker_that_is_lost_ends_the_round(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = await watch(store, monkeypatch, is_open=False)
    with pytest.raises(BrokerError):
        await watching.round()


async def test_the_fifth_return_makes_a_letter_failed(store: Store) -> None:
    (letter_id,) = await stored(store)
    for _ in range(5):
        await come_back(store, await sent(store))
    assert (await letter(store, letter_id)).status is State.FAILED


# All at once


@dataclass
class Turmoil:
    """All that can happen to letters, each in an order of its own."""

    store: Store
    ids: tuple[str, ...]
    rounds: int
    chance: random.Random = field(default_factory=lambda: random.Random(5))
    claims: list[Claim] = field(default_factory=list)

    def some(self) -> list[Claim]:
        return self.chance.sample(self.claims, min(len(self.claims), 12))

    def somewhere(self, *_: object) -> Destination:
        return Destination(queue=self.chance.choice(("a", "b", "c")))

    def decide(self, *_: object) -> Send:
        gated = self.chance.random() < 0.5
        return Send(strategy="conditional", queue=self.somewhere().queue, gated=gated)

    async def claim(self, worker: str) -> None:
        for _ in range(self.rounds):
            self.claims += await claimed(self.store, self.decide, worker=worker, limit=8)

    async def note(self) -> None:
        for _ in range(self.rounds):
            outcomes = [
                Outcome(
                    claim=claim,
                    result=self.chance.choice((Result.SENT, Result.IN_DOUBT, Result.REFUSED)),
                    after=State.PENDING,
                )
                for claim in self.some()
            ]
            await self.store.sendings.record("worker-1", outcomes, verdict_after=MOMENT)

    async def collect(self) -> None:
        for _ in range(self.rounds):
            await come_back(self.store, self.some())

    async def receive(self) -> None:
        for _ in range(self.rounds):
            told = [receipt(claim) for claim in self.some()]
            await self.store.verdicts.settle_receipts(told)

    async def watch(self) -> None:
        for _ in range(self.rounds):
            await self.store.verdicts.end_leases(timedelta(0), verdict_after=MOMENT)
            for queue in await self.store.verdicts.awaited(VHOST):
                seen = await self.store.verdicts.now()
                await self.store.verdicts.count_silence(
                    VHOST, queue, seen_idle_at=seen, verdict_after=MOMENT
                )
            await settle(self.store)

    async def replay(self, worker: str) -> None:
        order = ReplayOrder(actor="me", described="", doubtful=True, batch_size=7)
        wanted = Filters(ids=self.ids, status=tuple(State))
        for _ in range(self.rounds // 5):
            job = await self.store.replays.create(new_id(), VHOST, wanted, order)
            assert job is not None
            await self.store.replays.begin(job.id, worker, LEASE)
            for _ in range(5):
                batch = await self.store.replays.take_batch(job, worker, self.somewhere)
                self.claims += batch.claims

    async def run(self) -> None:
        await asyncio.gather(
            self.claim("worker-1"),
            self.claim("worker-2"),
            self.note(),
            self.note(),
            self.collect(),
            self.collect(),
            self.receive(),
            self.watch(),
            self.watch(),
            self.replay("job-1"),
            self.replay("job-2"),
        )


async def test_all_that_happens_to_the_same_letters_at_once_leaves_them_sound(
    store: Store,
) -> None:
    """And no writer ever waits for another that waits for it."""
    ids = await stored(store, 30)
    turmoil = Turmoil(store, tuple(ids), rounds=faults(200, quick=8))
    while len(turmoil.claims) <= len(ids):  # until something was sent a second time
        await turmoil.run()
