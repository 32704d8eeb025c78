"""Letters that come back: one suite that SQLite and PostgreSQL both pass, for real."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from redrive.amqp import fields
from redrive.domain import metrics
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Claim, Fate, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, Replay, ReplayOrder
from redrive.domain.verdict import on_silence
from redrive.store.collecting import collect
from redrive.store.store import Store
from tests.services.letters import (
    arrival,
    books_are_exact,
    died_in,
    failed,
    letter_store,
    replayed,
    sent_by_a_worker,
)
from tests.services.sending import (
    LEASE,
    QUEUE,
    VERDICT_AFTER,
    VHOST,
    all_is_consistent,
    back,
    come_back,
    in_doubt,
    later,
    letter,
    new_id,
    record,
    sending,
    sent,
    stored,
)

ME = "job-1"


async def test_what_comes_back_as_it_was_sent_is_the_same_letter(store: Store) -> None:
    given = failed("timeout after 5 s")
    await store.letters.add([given])
    await sent_by_a_worker(store, given)
    (kept,) = await store.letters.add([arrival(headers=replayed(given.letter.id, 1))])
    assert kept.fate is Fate.RETURNED
    assert kept.letter.id == given.letter.id
    assert kept.letter.status is State.PENDING
    assert kept.letter.dlq_retry_count == 1
    assert kept.letter.error_type == "REJECTED"
    assert await store.letters.get(given.letter.id) == kept.letter
    (attempt,) = await store.letters.attempts(given.letter.id)
    assert attempt.result is Result.RETURNED
    (_, _, change) = await store.letters.history(given.letter.id)
    assert (change.before, change.after) == (State.PROCESSING, State.PENDING)
    ledger = await store.books.ledger()
    assert (ledger.received, ledger.returned) == (1, 1)
    assert await books_are_exact(store)


async def test_the_fifth_return_makes_a_letter_failed(store: Store) -> None:
    given = arrival()
    await store.letters.add([given])
    for generation in range(1, 6):
        await sent_by_a_worker(store, given, generation=generation)
        (kept,) = await store.letters.add([arrival(headers=replayed(given.letter.id, generation))])
    assert kept.letter.status is State.FAILED
    assert kept.letter.dlq_retry_count == 5
    assert await books_are_exact(store)


async def test_a_second_copy_of_a_return_changes_nothing_more(store: Store) -> None:
    given = arrival()
    await store.letters.add([given])
    await sent_by_a_worker(store, given)
    back = replayed(given.letter.id, 1)
    kept = await store.letters.add([arrival(headers=back), arrival(headers=back)])
    kept += await store.letters.add([arrival(headers=back)])
    assert [each.fate for each in kept] == [Fate.RETURNED] * 3
    assert kept[-1].letter.dlq_retry_count == 1
    assert await books_are_exact(store)


async def test_a_letter_that_was_taken_for_resolved_is_pending_again(store: Store) -> None:
    given = arrival()
    await store.letters.add([given])
    await sent_by_a_worker(store, given, state=State.RESOLVED)
    (kept,) = await store.letters.add([arrival(headers=replayed(given.letter.id, 1))])
    assert kept.letter.status is State.PENDING


@pytest.mark.parametrize("what", ["body", "queue", "generation"])
async def test_what_differs_from_what_was_sent_is_a_new_letter_with_a_parent(
    store: Store, what: str
) -> None:
    given = arrival()
    await store.letters.add([given])
    await sent_by_a_worker(store, given)
    headers = replayed(given.letter.id, 2 if what == "generation" else 1)
    if what == "queue":
        headers |= died_in("billing")
    derived = arrival(b"other" if what == "body" else b'{"order": 1}', headers=headers)
    (kept,) = await store.letters.add([derived])
    assert kept.fate is Fate.DERIVED
    assert kept.letter.parent_id == given.letter.id
    assert not kept.letter.possible_duplicate
    before = await store.letters.get(given.letter.id)
    assert before is not None
    assert before.status is State.PROCESSING


async def test_a_return_of_a_letter_that_is_gone_is_a_new_one_with_its_id(store: Store) -> None:
    gone = arrival().letter.id
    (kept,) = await store.letters.add([arrival(headers=replayed(gone, 3))])
    assert kept.fate is Fate.SUCCESSOR
    assert kept.letter.previous_id == gone


async def test_a_late_return_does_not_take_a_letter_from_the_sending_after_it(store: Store) -> None:
    given = arrival()
    await store.letters.add([given])
    await sent_by_a_worker(store, given, generation=1)
    await sent_by_a_worker(store, given, generation=2, before=State.PROCESSING)
    (kept,) = await store.letters.add([arrival(headers=replayed(given.letter.id, 1))])
    assert kept.fate is Fate.RETURNED
    assert (kept.letter.status, kept.letter.generation) == (State.PROCESSING, 2)
    first, second = await store.letters.attempts(given.letter.id)
    assert (first.result, second.result) == (Result.RETURNED, Result.SENT)
    assert await books_are_exact(store)


async def test_a_return_counts_where_only_a_refused_sending_came_after_it(store: Store) -> None:
    await stored(store)
    (claim,) = await in_doubt(store)
    await store.verdicts.leave_to_person(
        VHOST, QUEUE, "in doubt", looked_at=await store.verdicts.now()
    )
    _, again = await replayed_to(store, Destination(queue=QUEUE), doubtful=True)
    await record(store, [again], Result.REFUSED, reason="the queue is full")
    await store.decisions.resolve([claim.letter.id], "me")
    (kept,) = await come_back(store, [claim])
    assert (kept.fate, kept.letter.status) == (Fate.RETURNED, State.PENDING)
    change = (await store.letters.history(claim.letter.id))[-1]
    assert (change.before, change.after) == (State.RESOLVED, State.PENDING)
    first, second = await store.letters.attempts(claim.letter.id)
    assert (first.result, second.result) == (Result.RETURNED, Result.REFUSED)
    await all_is_consistent(store)


async def test_a_letter_that_came_back_for_another_reason_is_in_another_group(
    store: Store,
) -> None:
    given = failed("timeout")
    await store.letters.add([given])
    await sent_by_a_worker(store, given)
    said = {"redrive-error-reason": fields.longstr("disk full")}
    (kept,) = await store.letters.add([arrival(headers=replayed(given.letter.id, 1) | said)])
    (group,) = (await store.groups.page()).items
    assert group.fingerprint == kept.letter.fingerprint != given.letter.fingerprint
    assert group.counts == {State.PENDING: 1}


async def test_a_return_whose_commit_was_not_answered_counts_once(store: Store) -> None:
    given = arrival()
    await store.letters.add([given])
    await sent_by_a_worker(store, given)
    back = [arrival(headers=replayed(given.letter.id, 1))]
    await store.letters.add(back)
    (again,) = await store.letters.add(back, again=True)
    assert (again.fate, again.letter.id) == (Fate.RETURNED, given.letter.id)
    assert (await store.books.ledger()).returned == 1


@pytest.mark.parametrize("name", ["----" + "0" * 32, "0" * 36, "not an id", "0-" * 18])
async def test_a_letter_header_that_names_no_letter_is_passed_over(store: Store, name: str) -> None:
    (kept,) = await store.letters.add([arrival(headers=replayed(name, 1))])
    assert kept.fate is Fate.NEW


def in_vhost(given: Arrival, vhost: str) -> Arrival:
    return replace(
        given,
        letter=replace(given.letter, vhost=vhost),
        envelope=replace(given.envelope, vhost=vhost),
    )


async def test_equal_messages_of_two_vhosts_are_no_copies_of_each_other(store: Store) -> None:
    named = {**died_in("orders"), "redrive-id": fields.longstr("r-1")}
    for vhost in ("one", "other"):
        batch = [
            in_vhost(arrival(headers=named), vhost),
            in_vhost(arrival(b"tick", redelivered=True), vhost),
        ]
        assert [kept.fate for kept in await store.letters.add(batch)] == [Fate.NEW, Fate.NEW]


async def test_of_many_equal_letters_a_redelivery_is_taken_for_a_copy_of_the_newest(
    store: Store,
) -> None:
    twins = [arrival(b"tick") for _ in range(50)]
    await store.letters.add(twins)
    (kept,) = await store.letters.add([arrival(b"tick", redelivered=True)])
    assert kept.letter.duplicate_of == twins[-1].letter.id


async def test_a_copy_whose_commit_is_still_under_way_is_seen(store: Store) -> None:
    first, second = arrival(b"tick"), arrival(b"tick", redelivered=True)
    async with store.database.writing() as connection:
        await collect(
            connection, [first], clock=store.clock, max_revivals=5, known_groups=set(), again=False
        )
        storing = asyncio.create_task(store.letters.add([second]))
        await asyncio.wait((storing,), timeout=0.3)
        assert not storing.done(), "it waits for the commit before it looks"
    (kept,) = await storing
    assert kept.letter.duplicate_of == first.letter.id


# From an exchange, which has more than one queue


async def replayed_to(
    store: Store, to: Destination, filters: Filters | None = None, *, doubtful: bool = False
) -> tuple[Replay, Claim]:
    """A replay by which a person sends the one letter there, and the claim."""
    wanted = ReplayOrder(actor="me", described="", destination=to, doubtful=doubtful)
    job = await store.replays.create(new_id(), VHOST, filters or Filters(), wanted, worker=ME)
    assert job is not None
    (claim,) = (await store.replays.take_batch(job, ME, lambda _: to)).claims
    return job, claim


async def sent_to_an_exchange(store: Store) -> Claim:
    """A letter of `orders`, by a person's word."""
    await stored(store)
    _, claim = await replayed_to(store, Destination(exchange="repairs"))
    await record(store, [claim])
    return claim


def from_repairs(claim: Claim, queue: str) -> Arrival:
    """Its message, dead in a queue of that exchange."""
    came = back(claim, queue)
    return replace(came, letter=replace(came.letter, exchange="repairs"))


def origin(letter: Letter) -> tuple[str | None, str]:
    return letter.queue, letter.exchange


async def test_what_a_person_sent_to_an_exchange_belongs_to_the_queue_where_it_failed_then(
    store: Store,
) -> None:
    claim = await sent_to_an_exchange(store)
    (kept,) = await store.letters.add([from_repairs(claim, "shipping")])
    assert (kept.fate, kept.letter.status) == (Fate.RETURNED, State.PENDING)
    assert origin(kept.letter) == ("shipping", "repairs")
    assert await letter(store, claim.letter.id) == kept.letter
    (attempt,) = await store.letters.attempts(claim.letter.id)
    assert (attempt.result, attempt.queue) == (Result.RETURNED, "shipping")
    (group,) = (await store.groups.page()).items
    assert (group.fingerprint, group.queue) == (kept.letter.fingerprint, "shipping")
    await all_is_consistent(store)


async def test_what_comes_back_from_the_letters_own_queue_leaves_its_origin_as_it_was(
    store: Store,
) -> None:
    claim = await sent_to_an_exchange(store)
    before = await letter(store, claim.letter.id)
    (kept,) = await store.letters.add([from_repairs(claim, "orders")])
    assert origin(kept.letter) == origin(before) == ("orders", "shop")


@pytest.mark.parametrize("first", ["orders", "shipping"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_of_queues_that_fail_alike_with_what_a_person_sent_to_them_each_has_a_letter(
    store: Store, first: str, at_once: bool
) -> None:
    second = "shipping" if first == "orders" else "orders"
    claim = await sent_to_an_exchange(store)
    came = [from_repairs(claim, first), from_repairs(claim, second)]
    batches = [came] if at_once else [[each] for each in came]
    kept = [each for batch in batches for each in await store.letters.add(batch)]
    assert [each.fate for each in kept] == [Fate.RETURNED, Fate.DERIVED]
    assert [each.letter.queue for each in kept] == [first, second]
    assert kept[1].letter.parent_id == claim.letter.id
    (copy,) = await store.letters.add([from_repairs(claim, first)])
    assert (copy.fate, copy.letter.dlq_retry_count) == (Fate.RETURNED, 1)
    ledger = await store.books.ledger()
    assert (ledger.received, ledger.returned) == (2, 2)
    await all_is_consistent(store)


async def test_what_its_policy_sent_to_an_exchange_is_one_letter_whatever_queue_it_failed_in(
    store: Store,
) -> None:
    """And goes there again: queues that fail alike would have each other's letters multiply."""
    await stored(store)
    (claim,) = await sent(store, sending(None, exchange="shop"))
    kept = await store.letters.add([back(claim, "shipping"), back(claim, "orders")])
    assert [each.fate for each in kept] == [Fate.RETURNED] * 2
    order = ReplayOrder(actor="me", described="")
    job = await store.replays.create(new_id(), VHOST, Filters(), order, worker=ME)
    assert job is not None
    there = Destination(exchange="shop")
    (claim,) = (await store.replays.take_batch(job, ME, lambda _: there)).claims
    kept = await store.letters.add([back(claim, "shipping"), back(claim, "orders")])
    assert [each.fate for each in kept] == [Fate.RETURNED] * 2
    assert (await letter(store, claim.letter.id)).queue == "orders"


async def test_a_late_copy_of_another_queue_is_not_lost_in_a_letter_that_was_sent_again(
    store: Store,
) -> None:
    claim = await sent_to_an_exchange(store)
    later(store, VERDICT_AFTER)
    await store.verdicts.settle_silent(
        VHOST, None, lambda _, sent: on_silence(sent, dead_letters=True)
    )
    later(store, VERDICT_AFTER)
    resolved = Filters(status=(State.RESOLVED,))
    _, again = await replayed_to(store, Destination(queue="orders"), resolved)
    await record(store, [again])
    kept = await store.letters.add([from_repairs(claim, "shipping"), from_repairs(claim, "orders")])
    assert [each.fate for each in kept] == [Fate.DERIVED, Fate.RETURNED]
    there = await letter(store, claim.letter.id)
    assert (there.status, there.queue) == (State.PROCESSING, "orders")
    await all_is_consistent(store)


async def in_doubt_at_an_exchange(store: Store) -> Claim:
    """A letter of `orders`, sent by a person's word, of which nothing was heard."""
    await stored(store)
    _, claim = await replayed_to(store, Destination(exchange="repairs"))
    later(store, LEASE)
    await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER)
    later(store, VERDICT_AFTER)
    await store.verdicts.settle_silent(
        VHOST, None, lambda _, sent: on_silence(sent, dead_letters=True)
    )
    return claim


async def is_left_to_a_person(store: Store) -> bool:
    """Whether nothing is sent of what is there, unless somebody asks for it."""
    order = ReplayOrder(actor="me", described="")
    job = await store.replays.create(new_id(), VHOST, Filters(), order, worker=ME)
    assert job is not None
    batch = await store.replays.take_batch(job, ME, lambda one: Destination(queue=one.queue))
    return not batch.claims


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_a_person_sent_to_an_exchange_twice_makes_no_two_letters_of_one_queue_unmarked(
    store: Store, at_once: bool
) -> None:
    first = await in_doubt_at_an_exchange(store)
    _, second = await replayed_to(store, Destination(exchange="repairs"), doubtful=True)
    await record(store, [second])
    came = [from_repairs(first, "shipping"), from_repairs(second, "shipping")]
    batches = [came] if at_once else [[each] for each in came]
    stale, kept = [each for batch in batches for each in await store.letters.add(batch)]
    assert (stale.fate, kept.fate) == (Fate.DUPLICATE, Fate.RETURNED)
    assert (stale.letter.parent_id, stale.letter.duplicate_of) == (first.letter.id,) * 2
    assert stale.letter.queue == kept.letter.queue == "shipping"
    assert await store.counts.total(metrics.POSSIBLE_DUPLICATES.name) == 1
    assert await is_left_to_a_person(store)
    await all_is_consistent(store)


@pytest.mark.parametrize(("own", "other"), [("orders", "shipping"), ("shipping", "orders")])
async def test_so_it_is_where_the_letter_was_back_from_another_queue_before(
    store: Store, own: str, other: str
) -> None:
    first = await in_doubt_at_an_exchange(store)
    _, second = await replayed_to(store, Destination(exchange="repairs"), doubtful=True)
    await record(store, [second])
    came = [from_repairs(second, own), from_repairs(first, other), from_repairs(second, other)]
    kept = await store.letters.add(came)
    assert [each.fate for each in kept] == [Fate.RETURNED, Fate.DUPLICATE, Fate.DERIVED]
    assert [each.letter.queue for each in kept] == [own, other, other]
    assert kept[1].letter.duplicate_of == first.letter.id
    await all_is_consistent(store)


async def test_so_it_is_where_the_first_of_two_sendings_had_come_back_from_another_queue(
    store: Store,
) -> None:
    first = await sent_to_an_exchange(store)
    await store.letters.add([from_repairs(first, "orders")])
    _, second = await replayed_to(store, Destination(exchange="repairs"))
    await record(store, [second])
    came = [from_repairs(first, "shipping"), from_repairs(second, "shipping")]
    kept = await store.letters.add(came)
    assert [each.fate for each in kept] == [Fate.DUPLICATE, Fate.RETURNED]
    assert kept[1].letter.queue == "shipping"
    assert await is_left_to_a_person(store)


async def test_so_it_is_where_a_person_sent_the_letter_to_that_queue_since(store: Store) -> None:
    first = await in_doubt_at_an_exchange(store)
    _, second = await replayed_to(store, Destination(queue="shipping"), doubtful=True)
    await record(store, [second])
    (stale,) = await store.letters.add([from_repairs(first, "shipping")])
    assert (stale.fate, stale.letter.duplicate_of) == (Fate.DUPLICATE, first.letter.id)


async def test_what_a_replay_sent_to_an_exchange_is_told_apart_when_that_is_deleted(
    store: Store,
) -> None:
    await stored(store)
    job, claim = await replayed_to(store, Destination(exchange="repairs"))
    await record(store, [claim])
    assert await store.expiry.delete_replay(job.id)
    came = [from_repairs(claim, "shipping"), from_repairs(claim, "orders")]
    assert [each.fate for each in await store.letters.add(came)] == [Fate.RETURNED, Fate.DERIVED]


async def test_a_letter_that_did_not_tell_where_it_failed_does_so_once_it_failed_again(
    store: Store,
) -> None:
    await store.letters.add([arrival(headers={})])
    _, claim = await replayed_to(store, Destination(exchange="repairs"))
    (kept,) = await store.letters.add([from_repairs(claim, "shipping")])
    assert (kept.fate, origin(kept.letter)) == (Fate.RETURNED, ("shipping", "repairs"))


def named(queue: str | None) -> Arrival:
    """A message with an id of its producer and Redrive's, dead in a queue or nobody knows where."""
    found = {"redrive-id": fields.longstr("r-1")}
    if queue is not None:
        found |= {**died_in(queue), "redrive-queue": fields.longstr(queue)}
    return arrival(headers=found, properties={"message_id": "m-1"})


@pytest.mark.parametrize("queue", ["orders", None])
async def test_an_imported_letter_that_moved_is_known_in_the_queue_that_its_message_tells(
    store: Store, tmp_path: Path, queue: str | None
) -> None:
    await store.letters.add([named(queue)])
    _, claim = await replayed_to(store, Destination(exchange="repairs"))
    (moved,) = await store.letters.add([from_repairs(claim, "shipping")])
    kept = [each async for each in store.letters.stream(Filters())]
    async with letter_store(f"sqlite:///{tmp_path}/other.db") as other:
        await other.letters.restore(kept)
        second, first_there = await other.letters.add([named(queue), named("shipping")])
        assert second.letter.duplicate_of == moved.letter.id
        assert first_there.fate is Fate.NEW
