"""Leases and replay jobs on the real stores, under any sequence of steps, crashes and delays.

What a model of the outside remembers (which copies were published, which were handled) is compared
with what the store does: sender_protocol.py is the same with every sequence, and without a store.
On PostgreSQL, others also have rows in hand meanwhile, as in the middle of a claim of theirs.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Table, select

from redrive.domain.filters import Filters
from redrive.domain.letter import Attempt, Claim, Head, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, Replay, ReplayOrder, ReplayState
from redrive.domain.verdict import Receipt, Verdict, on_silence
from redrive.errors import OrderRefused
from redrive.store.replays import Batch
from redrive.store.schema import redrive_letter, redrive_replay
from redrive.store.sendings import Outcome
from redrive.store.store import open_letter_store
from tests.services.empty_stores import empty, prepare
from tests.services.sending import (
    LEASE,
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    all_is_consistent,
    claimed,
    come_back,
    later,
    new_id,
    stored,
)

FAST = Path("/dev/shm")  # no disk behind it, where there is one
EXAMPLES = {"sqlite": 16, "postgresql": 5}
"""PostgreSQL's are fewer, since most of the code is the same and each takes longer."""
WORKERS = st.sampled_from(["worker-1", "worker-2"])

AT_ONCE = 20.0
"""Seconds: what has not gone by then waits for a row that is not let go."""

T = TypeVar("T")


class OnAStore(RuleBasedStateMachine):
    """A machine with a store of its own, whose clock is set by hand."""

    def __init__(self, postgresql: str | None) -> None:
        """`postgresql`: the URL of a store that it may empty; without, it makes one of SQLite."""
        super().__init__()
        self.loop = asyncio.new_event_loop()
        within = FAST if FAST.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="redrive-model-", dir=within))
        self.locks_rows = postgresql is not None
        url = postgresql or f"sqlite:///{self.folder}/redrive.db"
        if postgresql is None:
            self.run(prepare(url))
        else:
            empty(url)
        self.store = self.run(open_letter_store(url))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def beside(self, table: Table, id_: str, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives while another process has that row in hand; it does not wait."""

        async def run() -> T:
            row = select(table.c.id).where(table.c.id == id_).with_for_update()
            async with self.store.database.writing() as other, asyncio.timeout(AT_ONCE):
                await other.execute(row)
                return await work

        return self.run(run())

    def teardown(self) -> None:
        try:
            self.run(all_is_consistent(self.store))
        finally:
            self.run(self.store.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def letter(self, letter_id: str) -> Letter:
        found = self.run(self.store.letters.get(letter_id))
        assert found is not None
        return found


class Leases(OnAStore):
    """Workers claim, send, are killed or sleep; consumers handle, fail, or send receipts."""

    def __init__(self, postgresql: str | None) -> None:
        super().__init__(postgresql)
        self.hands: dict[str, list[Claim]] = {}
        self.confirmed: dict[str, list[Claim]] = {}
        """In the broker; their worker has not recorded them."""
        self.queued: list[Claim] = []
        self.ghosts: list[Claim] = []
        """Written by a worker that was killed: they may arrive yet."""
        self.receipts: list[Claim] = []
        self.failed: list[Claim] = []
        self.generations: Counter[str] = Counter()
        self.handled: Counter[str] = Counter()
        self.outstanding: set[str] = set()
        """Letters of which a copy was sent, or may have been, and nothing is known."""

    @initialize(number=st.integers(1, 4))
    def letters_came(self, number: int) -> None:
        self.ids = self.run(stored(self.store, number))

    @rule(worker=WORKERS, limit=st.integers(1, 3))
    def claims(self, worker: str, limit: int) -> None:
        self._has(worker, self.run(claimed(self.store, worker=worker, limit=limit)))

    @precondition(lambda self: self.locks_rows)
    @rule(worker=WORKERS, limit=st.integers(1, 3), place=st.integers(0, 3))
    def claims_while_another_is_at_a_letter(self, worker: str, limit: int, place: int) -> None:
        held = self.ids[place % len(self.ids)]
        work = claimed(self.store, worker=worker, limit=limit)
        claims = self.beside(redrive_letter, held, work)
        assert held not in [claim.letter.id for claim in claims]
        self._has(worker, claims)

    def _has(self, worker: str, claims: Iterable[Claim]) -> None:
        for claim in claims:
            id_ = claim.letter.id
            assert id_ not in self.outstanding, "nobody knows yet what became of the last copy"
            assert claim.generation == self.generations[id_] + 1
            self.generations[id_] = claim.generation
            self.outstanding.add(id_)
            self.hands.setdefault(worker, []).append(claim)

    @precondition(lambda self: any(self.hands.values()))
    @rule(worker=WORKERS)
    def publishes(self, worker: str) -> None:
        """The broker has it, and consumers may be done with it before the worker hears so."""
        self.queued += self.hands.get(worker, [])
        self.confirmed.setdefault(worker, []).extend(self.hands.pop(worker, []))

    @precondition(lambda self: any(self.confirmed.values()))
    @rule(worker=WORKERS)
    def records_that_it_was_sent(self, worker: str) -> None:
        self._record(worker, self.confirmed.pop(worker, []), Result.SENT)

    @precondition(lambda self: any(self.hands.values()))
    @rule(worker=WORKERS)
    def records_that_it_was_refused(self, worker: str) -> None:
        claims = self.hands.pop(worker, [])
        self._record(worker, claims, Result.REFUSED)
        self.outstanding -= {claim.letter.id for claim in claims}

    def _record(self, worker: str, claims: list[Claim], result: Result) -> None:
        outcomes = [Outcome(claim=claim, result=result, reason="no queue") for claim in claims]
        self.run(self.store.sendings.record(worker, outcomes, verdict_after=VERDICT_AFTER))

    @precondition(lambda self: any(self.hands.values()) or any(self.confirmed.values()))
    @rule(worker=WORKERS, sent=st.booleans())
    def is_killed(self, worker: str, sent: bool) -> None:
        self.confirmed.pop(worker, None)
        claims = self.hands.pop(worker, [])
        if sent:
            self.ghosts += claims

    @precondition(lambda self: self.ghosts)
    @rule()
    def what_a_dead_worker_wrote_arrives(self) -> None:
        self.queued.append(self.ghosts.pop())

    @rule()
    def leases_end(self) -> None:
        """Also of workers that only slept, and will record later."""
        later(self.store, LEASE)
        self.run(self.store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER))

    @precondition(lambda self: self.locks_rows)
    @rule(place=st.integers(0, 3))
    def leases_end_while_another_is_at_a_letter(self, place: int) -> None:
        held = self.ids[place % len(self.ids)]
        before = self.letter(held)
        later(self.store, LEASE)
        work = self.store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER)
        self.beside(redrive_letter, held, work)
        assert self.letter(held) == before

    @precondition(lambda self: self.queued)
    @rule(tells=st.booleans())
    def a_consumer_handles(self, tells: bool) -> None:
        claim = self.queued.pop(0)
        self.handled[claim.letter.id] += 1
        assert self.handled[claim.letter.id] == 1, "it was handled twice, and nobody asked for it"
        if tells:
            self.receipts.append(claim)

    @precondition(lambda self: self.queued)
    @rule()
    def a_consumer_fails(self) -> None:
        claim = self.queued.pop(0)
        self.failed.append(claim)
        self.run(come_back(self.store, [claim]))
        self.outstanding.discard(claim.letter.id)

    @precondition(lambda self: self.receipts)
    @rule()
    def a_receipt_is_read(self) -> None:
        claim = self.receipts.pop()
        receipt = Receipt(letter=claim.letter.id, generation=claim.generation, queue=None)
        self.run(self.store.verdicts.settle_receipts([receipt]))

    @precondition(lambda self: not self.queued)
    @rule()
    def nothing_is_heard_for_long(self) -> None:
        later(self.store, timedelta(milliseconds=1))
        seen = self.run(self.store.verdicts.now())
        self.run(
            self.store.verdicts.count_silence(
                VHOST, QUEUE, seen_idle_at=seen, verdict_after=VERDICT_AFTER
            )
        )
        later(self.store, VERDICT_AFTER)

        def decide(_: Letter, attempt: Attempt) -> Verdict:
            return on_silence(attempt, dead_letters=True)

        self.run(self.store.verdicts.settle_silent(VHOST, QUEUE, decide))
        for id_ in self.ids:
            if self.letter(id_).status is State.RESOLVED:
                assert self.handled[id_], "it is resolved, and was never handled"

    def teardown(self) -> None:
        try:
            for claim in self.failed:
                attempts = self.run(self.store.letters.attempts(claim.letter.id))
                (result,) = [
                    each.result for each in attempts if each.generation == claim.generation
                ]
                assert result is not Result.SENT, "a late record has undone a return"
        finally:
            super().teardown()

    @rule(minutes=st.sampled_from([1, 20, 120]))
    def time_passes(self, minutes: int) -> None:
        later(self.store, timedelta(minutes=minutes))


class ReplayJobs(OnAStore):
    """Processes run one job, are killed, lose their lease; people pause, resume, cancel."""

    def __init__(self, postgresql: str | None) -> None:
        super().__init__(postgresql)
        self.claimed: list[str] = []
        self.skipped: list[str] = []
        self.open: list[tuple[str, Batch]] = []
        """Batches that were taken and not recorded."""

    @initialize(number=st.integers(1, 6), size=st.integers(1, 3))
    def a_job_is_ordered(self, number: int, size: int) -> None:
        self.ids = self.run(stored(self.store, number))
        order = ReplayOrder(actor="me", described="all", batch_size=size)
        job = self.run(self.store.replays.create(new_id(), VHOST, Filters(), order))
        assert job is not None
        self.job = job

    def now(self) -> Replay:
        found = self.run(self.store.replays.get(self.job.id))
        assert found is not None
        return found

    @rule(worker=WORKERS)
    def somebody_takes_it(self, worker: str) -> None:
        before = self.now()
        taken = self.run(self.store.replays.take(VHOST, worker, LEASE))
        free = before.locked_by is None or self._lease_is_over(before)
        assert (taken is not None) is (before.state is ReplayState.RUNNING and free)

    @precondition(lambda self: self.locks_rows)
    @rule(worker=WORKERS)
    def somebody_would_take_it_while_another_is_at_it(self, worker: str) -> None:
        work = self.store.replays.take(VHOST, worker, LEASE)
        assert self.beside(redrive_replay, self.job.id, work) is None

    def _lease_is_over(self, job: Replay) -> bool:
        assert job.locked_at is not None
        return job.locked_at <= self.run(self.store.verdicts.now()) - LEASE

    @rule(worker=WORKERS)
    def a_batch_is_taken(self, worker: str) -> None:
        before = self.now()
        batch = self.run(self.store.replays.take_batch(self.job, worker, _to_origin))
        if before.state is not ReplayState.RUNNING or before.locked_by != worker:
            assert batch.ended
            assert not batch.claims
            assert self.now() == before
            return
        ids = [claim.letter.id for claim in batch.claims]
        assert not set(ids) & set(self.claimed), "the job sends a letter twice"
        self.claimed += ids
        self.skipped += [id_ for id_, _ in batch.skipped]
        after = self.now()
        assert after.position == len(self.claimed) + len(self.skipped)
        if batch.claims:
            self.open.append((worker, batch))

    @precondition(lambda self: self.open)
    @rule(result=st.sampled_from([Result.SENT, Result.REFUSED, Result.IN_DOUBT]))
    def a_batch_is_recorded(self, result: Result) -> None:
        worker, batch = self.open.pop(0)
        outcomes = [Outcome(claim=claim, result=result, reason="x") for claim in batch.claims]
        self.run(self.store.replays.record(worker, outcomes, verdict_after=VERDICT_AFTER))

    @precondition(lambda self: self.open)
    @rule()
    def certainly_nothing_of_a_batch_was_sent(self) -> None:
        worker, batch = self.open.pop()
        if self.open:  # the real one has one batch at a time
            self.open.append((worker, batch))
            return
        outcomes = [
            Outcome(
                claim=claim,
                result=Result.REFUSED,
                reason="the broker was away",
                after=State.PENDING,
                retry_in=timedelta(0),
            )
            for claim in batch.claims
        ]
        before = self.now()
        self.run(self.store.replays.give_back(self.job.id, worker, batch, outcomes))
        if self.now().position < before.position:
            gone = {claim.letter.id for claim in batch.claims}
            self.claimed = [id_ for id_ in self.claimed if id_ not in gone]
            passed_over = {id_ for id_, _ in batch.skipped}
            self.skipped = [id_ for id_ in self.skipped if id_ not in passed_over]

    @rule()
    def its_process_is_killed(self) -> None:
        """Nothing is told to the store; what it had taken is never recorded."""
        self.open = []

    @rule(worker=WORKERS)
    def its_process_leaves_it(self, worker: str) -> None:
        self.run(self.store.replays.release(self.job.id, worker))

    @rule(seconds=st.sampled_from([1, 30, 61, 600]))
    def time_passes(self, seconds: int) -> None:
        later(self.store, timedelta(seconds=seconds))
        self.run(self.store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER))

    @rule(word=st.sampled_from(["pause", "resume", "resume", "resume", "cancel"]))
    def a_person_says(self, word: str) -> None:
        before = self.now().state
        replays = self.store.replays
        lawful = {
            "pause": (ReplayState.RUNNING,),
            "resume": (ReplayState.PAUSED,),
            "cancel": (ReplayState.RUNNING, ReplayState.PAUSED),
        }[word]
        try:
            if word == "resume":
                self.run(replays.resume(self.job.id))
            else:
                self.run(getattr(replays, word)(self.job.id, "because"))
        except OrderRefused:
            assert before not in lawful
        else:
            assert before in lawful

    def teardown(self) -> None:
        try:
            if hasattr(self, "job"):
                self._ends()
        finally:
            super().teardown()

    def _ends(self) -> None:
        """Somebody goes on with it; then every letter was claimed or left out, once."""
        if self.now().state is ReplayState.PAUSED:
            self.run(self.store.replays.resume(self.job.id))
        later(self.store, LEASE)
        self.run(self.store.replays.take(VHOST, "worker-3", LEASE))
        for _ in self.ids:
            later(self.store, timedelta(minutes=20))
            self.a_batch_is_taken("worker-3")
        assert self.now().state in (ReplayState.DONE, ReplayState.CANCELLED)
        if self.now().state is ReplayState.DONE:
            assert sorted(self.claimed + self.skipped) == sorted(self.ids)


def _to_origin(one: Letter | Head) -> Destination | None:
    return None if one.queue is None else Destination(queue=one.queue)


@pytest.mark.parametrize("machine", [Leases, ReplayJobs])
@pytest.mark.parametrize("engine", list(EXAMPLES))
def test_whatever_happens_the_store_does_what_was_promised(
    machine: type[Leases | ReplayJobs], engine: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("store_database") if engine == "postgresql" else None
    enough = settings(max_examples=EXAMPLES[engine], stateful_step_count=30, deadline=None)

    class Here(machine):  # type: ignore[misc, valid-type]  # hypothesis makes it without arguments
        def __init__(self) -> None:
            super().__init__(url)

    run_state_machine_as_test(Here, settings=enough)
