"""People's decisions on letters: one suite that SQLite and PostgreSQL both pass, for real."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import update

from redrive.amqp import fields
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Letter, Resolution, Result
from redrive.domain.lifecycle import TRANSITIONS, State
from redrive.errors import CountChanged
from redrive.store.changing import Changes, lock_letters
from redrive.store.decisions import Decided
from redrive.store.schema import redrive_attempt, redrive_letter
from redrive.store.store import Store
from redrive.work.decide import decide as carry_out
from tests.services.letters import arrival, books_are_exact, died_in, sent_by_a_worker
from tests.services.plans import reads_whole_tables, statements

ANN = "cli:ann"
AFTER = {
    "discard": State.ARCHIVED,
    "archive": State.ARCHIVED,
    "restore": State.MANUAL,
    "resolve": State.RESOLVED,
}
# Of `restore` the lifecycle would allow more than the word means.
FROM = {
    "discard": {State.PENDING, State.MANUAL, State.FAILED},
    "archive": {State.PENDING, State.MANUAL, State.FAILED},
    "restore": {State.ARCHIVED},
    "resolve": {State.PROCESSING, State.MANUAL},
}


WAYS = {
    State.PENDING: (),
    State.PROCESSING: (State.PROCESSING,),
    State.RESOLVED: (State.PROCESSING, State.RESOLVED),
    State.FAILED: (State.PROCESSING, State.FAILED),
    State.MANUAL: (State.PROCESSING, State.MANUAL),
    State.ARCHIVED: (State.PROCESSING, State.MANUAL, State.ARCHIVED),
}


async def in_state(store: Store, state: State, result: Result = Result.SENT) -> Arrival:
    """A letter that came to a state as letters do."""
    given = arrival()
    await store.letters.add([given])
    for step in WAYS[state]:
        if step is State.PROCESSING:
            await sent_by_a_worker(store, given)
            continue
        async with store.database.writing() as connection:
            (locked,) = (await lock_letters(connection, [given.letter.id])).values()
            changes = Changes(connection, await store.clock.now(connection), "worker-1")
            changes.become(locked, step, "a step")
            await changes.flush()
    async with store.database.writing() as connection:
        await connection.execute(
            update(redrive_attempt)
            .where(redrive_attempt.c.letter_id == given.letter.id)
            .values(result=result.value)
        )
    return given


async def decide(store: Store, word: str, *ids: str, reason: str = "") -> Decided:
    decided: Decided = await getattr(store.decisions, word)(ids, ANN, reason)
    return decided


async def letter(store: Store, given: Arrival) -> Letter:
    found = await store.letters.get(given.letter.id)
    assert found is not None
    return found


@pytest.mark.parametrize("word", AFTER)
@pytest.mark.parametrize("state", State)
async def test_a_decision_is_taken_where_it_makes_sense_and_refused_elsewhere(
    store: Store, word: str, state: State
) -> None:
    given = await in_state(store, state)
    decided = await decide(store, word, given.letter.id)
    if state in FROM[word]:
        assert decided == Decided((given.letter.id,), ())
        assert (await letter(store, given)).status is AFTER[word]
    else:
        assert decided.changed == ()
        ((letter_id, reason),) = decided.unchanged
        assert letter_id == given.letter.id
        assert state.word in reason
        assert (await letter(store, given)).status is state
    assert await books_are_exact(store)


@pytest.mark.parametrize(
    ("word", "state", "reason"),
    [
        ("discard", State.PENDING, "discarded: a test order"),
        ("archive", State.FAILED, "archived: a test order"),
        ("restore", State.ARCHIVED, "restored: a test order"),
        ("resolve", State.MANUAL, "resolved by a person: a test order"),
    ],
)
async def test_who_decided_what_and_why_is_in_the_history(
    store: Store, word: str, state: State, reason: str
) -> None:
    given = await in_state(store, state)
    await decide(store, word, given.letter.id, reason="a test order")
    change = (await store.letters.history(given.letter.id))[-1]
    assert (change.actor, change.reason) == (ANN, reason)
    assert (change.before, change.after) == (state, AFTER[word])


async def test_what_is_discarded_waits_for_no_worker(store: Store) -> None:
    given = await in_state(store, State.PENDING)
    await decide(store, "discard", given.letter.id)
    assert (await letter(store, given)).next_retry_at is None


@pytest.mark.parametrize("result", Result)
async def test_a_persons_word_settles_a_sending_that_nothing_else_has_settled(
    store: Store, result: Result
) -> None:
    given = await in_state(store, State.MANUAL, result)
    await decide(store, "resolve", given.letter.id)
    (attempt,) = await store.letters.attempts(given.letter.id)
    unsettled = result in (Result.SENDING, Result.SENT, Result.IN_DOUBT)
    assert attempt.result is (Result.RESOLVED if unsettled else result)


async def test_sendings_are_settled_without_reading_all_there_are(store: Store) -> None:
    given = [await in_state(store, State.MANUAL, Result.SENT) for _ in range(2)]
    with statements(store, "UPDATE redrive_attempt") as asked:
        await decide(store, "resolve", *(each.letter.id for each in given))
    assert asked
    assert not await reads_whole_tables(store, asked)


async def test_only_the_newest_sending_is_settled(store: Store) -> None:
    given = await in_state(store, State.MANUAL, Result.RETURNED)
    await sent_by_a_worker(store, given, generation=2, before=State.MANUAL)
    await decide(store, "resolve", given.letter.id)
    first, second = await store.letters.attempts(given.letter.id)
    assert (first.result, second.result) == (Result.RETURNED, Result.RESOLVED)


async def test_what_was_refused_settles_nothing_the_sending_before_it_is_settled(
    store: Store,
) -> None:
    given = await in_state(store, State.MANUAL, Result.IN_DOUBT)
    await sent_by_a_worker(store, given, generation=2, before=State.MANUAL)
    async with store.database.writing() as connection:
        second = redrive_attempt.c.generation == 2
        await connection.execute(
            update(redrive_attempt).where(second).values(result=Result.REFUSED.value)
        )
    await decide(store, "resolve", given.letter.id)
    first, refused = await store.letters.attempts(given.letter.id)
    assert (first.result, refused.result) == (Result.RESOLVED, Result.REFUSED)


async def test_a_letter_resolved_by_a_person_is_free_and_says_so(store: Store) -> None:
    given = await in_state(store, State.PROCESSING)
    async with store.database.writing() as connection:
        now = await store.clock.now(connection)
        await connection.execute(
            update(redrive_letter).values(locked_by="w", locked_at=now, verdict_due_at=now)
        )
    await decide(store, "resolve", given.letter.id)
    found = await letter(store, given)
    assert found.resolution is Resolution.OPERATOR
    assert (found.locked_by, found.locked_at, found.verdict_due_at) == (None, None, None)


async def test_letters_that_may_not_change_do_not_keep_others_from_it(store: Store) -> None:
    first = await in_state(store, State.PENDING)
    resolved = await in_state(store, State.RESOLVED)
    nobody = arrival().letter.id
    decided = await decide(store, "archive", first.letter.id, resolved.letter.id, nobody)
    assert decided.changed == (first.letter.id,)
    assert dict(decided.unchanged) == {
        resolved.letter.id: "a letter that is resolved cannot become archived;"
        " 'redrive replay' with its id sends it again",
        nobody: "there is no such letter, or no longer",
    }
    assert await books_are_exact(store)


async def test_a_letter_that_is_named_twice_is_decided_on_once(store: Store) -> None:
    given = await in_state(store, State.PENDING)
    decided = await decide(store, "discard", given.letter.id, given.letter.id)
    assert decided == Decided((given.letter.id,), ())
    assert await books_are_exact(store)


# Whatever matches


async def test_all_that_match_are_listed_newest_first(store: Store) -> None:
    ids = [(await in_state(store, State.PENDING)).letter.id for _ in range(3)]
    await in_state(store, State.RESOLVED)
    filters = Filters(status=(State.PENDING,))
    for limit in (None, 2):
        (some,) = (await store.decisions.listed(filters, limit)).chunks()
        assert list(some.states.items()) == [(each, State.PENDING) for each in ids[::-1][:limit]]
    assert await store.decisions.count(filters) == 3
    assert await store.decisions.count(filters, 2) == 2
    assert list((await store.decisions.listed(Filters(queue="elsewhere"))).chunks()) == []


async def test_nothing_is_listed_if_other_letters_match_than_somebody_was_told(
    store: Store,
) -> None:
    await store.letters.add([arrival(), arrival()])
    assert len(await store.decisions.listed(Filters(), expected=2)) == 2
    for wrong in (0, 1, 3):
        with pytest.raises(CountChanged, match="2 letters match now"):
            await store.decisions.listed(Filters(), expected=wrong)


async def test_letters_are_listed_by_their_tag(store: Store) -> None:
    tagged = arrival(headers={**died_in("orders"), "redrive-tags": fields.longstr("vip")})
    await store.letters.add([tagged, arrival()])
    (some,) = (await store.decisions.listed(Filters(tag="vip"))).chunks()
    decided = await store.decisions.discard(list(some.states), ANN, still=some)
    assert decided.changed == (tagged.letter.id,)


async def test_many_letters_go_in_chunks_and_none_is_left_out(store: Store) -> None:
    await store.letters.add([arrival() for _ in range(1203)])
    filters = Filters(status=(State.PENDING,))
    listed = await store.decisions.listed(filters, expected=1203)
    changed = 0
    for some in listed.chunks():
        assert len(some.states) <= 500
        changed += len((await store.decisions.archive(list(some.states), ANN, still=some)).changed)
    assert changed == 1203
    assert await store.decisions.count(filters) == 0
    assert await books_are_exact(store)


async def test_what_comes_to_match_or_changes_after_letters_were_listed_is_not_touched(
    store: Store,
) -> None:
    left, given = await in_state(store, State.FAILED), await in_state(store, State.FAILED)
    listed = await store.decisions.listed(Filters())
    later = await in_state(store, State.FAILED)
    await become(store, given, State.MANUAL)
    tally = await carry_out(store.decisions, "discard", listed, actor=ANN, reason="")
    assert (tally.changed, dict(tally.unchanged)) == (1, {"it changed meanwhile: it was failed": 1})
    assert (await letter(store, left)).status is State.ARCHIVED
    assert (await letter(store, given)).status is State.MANUAL
    assert (await letter(store, later)).status is State.FAILED


async def become(store: Store, given: Arrival, state: State) -> None:
    """As if a worker had changed it."""
    async with store.database.writing() as connection:
        (locked,) = (await lock_letters(connection, [given.letter.id])).values()
        changes = Changes(connection, await store.clock.now(connection), "worker")
        changes.become(locked, state, "left to a person")
        await changes.flush()


async def test_what_does_not_match_any_more_when_it_is_locked_is_left_alone(store: Store) -> None:
    given = await in_state(store, State.FAILED)
    (failed,) = (await store.decisions.listed(Filters(status=(State.FAILED,)))).chunks()
    async with store.database.writing() as connection:
        (locked,) = (await lock_letters(connection, [given.letter.id])).values()
        discarding = asyncio.create_task(
            store.decisions.discard([given.letter.id], ANN, still=failed)
        )
        await asyncio.wait((discarding,), timeout=0.3)
        assert not discarding.done()
        changes = Changes(connection, await store.clock.now(connection), "worker")
        changes.become(locked, State.MANUAL, "left to a person")
        await changes.flush()
    decided = await discarding
    assert decided.changed == ()
    assert "does not match any more" in decided.unchanged[0][1]
    assert (await letter(store, given)).status is State.MANUAL


def test_the_table_above_is_what_the_lifecycle_allows() -> None:
    for word in ("discard", "archive", "resolve"):
        allowed = {state for state in State if AFTER[word] in TRANSITIONS[state]}
        assert FROM[word] == allowed, word
