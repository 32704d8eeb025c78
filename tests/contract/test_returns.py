"""Letters that come back: one suite that SQLite and PostgreSQL both pass, for real."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from redrive.amqp import fields
from redrive.domain.letter import Arrival, Fate, Result
from redrive.domain.lifecycle import State
from redrive.store.collecting import collect
from redrive.store.store import Store
from tests.services.letters import (
    arrival,
    books_are_exact,
    died_in,
    failed,
    replayed,
    sent_by_a_worker,
)


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
