"""Edits of letters: one suite that SQLite and PostgreSQL both pass, for real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from sqlalchemy import update

from redrive.domain.editing import PreparedEdit, standing
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Edit, Kept, Result
from redrive.domain.lifecycle import State
from redrive.errors import EditedMeanwhile, EditRefused
from redrive.store import edits
from redrive.store.changing import lock_letters
from redrive.store.details import read_messages
from redrive.store.schema import redrive_attempt
from redrive.store.store import Store
from tests.services.letters import (
    arrival,
    books_are_exact,
    letter_store,
    replayed,
    sent_by_a_worker,
)
from tests.services.plans import statements

ANN = "cli:ann"


def changed(letter_id: str, body: bytes = b"mended", made_from: int = 0) -> PreparedEdit:
    return PreparedEdit(letter_id=letter_id, made_from=made_from, properties=b"\x00\x00", body=body)


async def stored(store: Store, number: int = 1) -> list[Arrival]:
    arrivals = [arrival() for _ in range(number)]
    await store.letters.add(arrivals)
    return arrivals


async def kept(store: Store, letter_id: str) -> Kept:
    found = await store.letters.kept(letter_id)
    assert found is not None
    return found


async def message(store: Store, letter_id: str) -> bytes:
    """What would be sent."""
    letter = (await kept(store, letter_id)).letter
    async with store.database.reading() as connection:
        return (await read_messages(connection, [letter]))[letter_id].body


async def sent_now(store: Store, given: Arrival, result: Result, state: State) -> None:
    """As if the letter had been sent after all that happened so far."""
    await sent_by_a_worker(store, given, state=state)
    async with store.database.writing() as connection:
        now = await store.clock.now(connection)
        await connection.execute(
            update(redrive_attempt)
            .where(redrive_attempt.c.letter_id == given.letter.id)
            .values(at=now + timedelta(seconds=1), result=result.value)
        )


# Editing


async def test_an_edit_is_sent_instead_of_the_original_which_is_kept(store: Store) -> None:
    (given,) = await stored(store)
    letter_id = given.letter.id
    assert await store.edits.edit([changed(letter_id)], ANN, "the amount was wrong") == 1
    found = await kept(store, letter_id)
    (edit,) = found.edits
    assert (edit.number, edit.actor, edit.reason) == (1, ANN, "the amount was wrong")
    assert (edit.body, edit.properties, edit.undone) == (b"mended", b"\x00\x00", False)
    assert found.envelope == given.envelope
    assert await message(store, letter_id) == b"mended"


async def test_an_edit_changes_no_state_and_no_books(store: Store) -> None:
    (given,) = await stored(store)
    await store.edits.edit([changed(given.letter.id)], ANN, "typo")
    found = await kept(store, given.letter.id)
    change = found.history[-1]
    assert (change.before, change.after) == (State.PENDING, State.PENDING)
    assert (change.actor, change.reason) == (ANN, "edited: typo")
    assert found.letter.next_retry_at == given.letter.next_retry_at
    assert found.letter.updated_at == change.at
    assert await books_are_exact(store)


async def test_every_edit_has_a_number_of_its_own(store: Store) -> None:
    (given,) = await stored(store)
    letter_id = given.letter.id
    await store.edits.edit([changed(letter_id, b"1")], ANN)
    await store.edits.edit([changed(letter_id, b"2", made_from=1)], ANN)
    await store.edits.undo(letter_id, ANN)
    await store.edits.edit([changed(letter_id, b"3", made_from=1)], ANN)
    edits = (await kept(store, letter_id)).edits
    assert [(edit.number, edit.body, edit.undone) for edit in edits] == [
        (1, b"1", False),
        (2, b"2", True),
        (3, b"3", False),
    ]


async def test_an_edit_of_what_somebody_else_has_edited_is_refused(store: Store) -> None:
    (given,) = await stored(store)
    await store.edits.edit([changed(given.letter.id, b"first")], ANN)
    with pytest.raises(EditRefused, match="edited by somebody else"):
        await store.edits.edit([changed(given.letter.id, b"second")], "cli:bob")
    assert await message(store, given.letter.id) == b"first"


async def test_an_edit_made_from_one_that_was_undone_is_refused(store: Store) -> None:
    (given,) = await stored(store)
    await store.edits.edit([changed(given.letter.id, b"first")], ANN)
    await store.edits.undo(given.letter.id, ANN)
    with pytest.raises(EditRefused, match="edited by somebody else"):
        await store.edits.edit([changed(given.letter.id, b"second", made_from=1)], "cli:bob")


async def test_of_two_who_edit_at_once_one_is_refused(store: Store) -> None:
    (given,) = await stored(store)
    letter_id = given.letter.id
    answers = await asyncio.gather(
        *(store.edits.edit([changed(letter_id, body)], ANN) for body in (b"one", b"other")),
        return_exceptions=True,
    )
    assert [answer for answer in answers if isinstance(answer, int)] == [1]
    assert any(isinstance(answer, EditRefused) for answer in answers)
    assert len((await kept(store, letter_id)).edits) == 1


@pytest.mark.parametrize("state", [State.PROCESSING, State.ARCHIVED])
async def test_of_many_letters_none_is_edited_if_one_may_not_be(store: Store, state: State) -> None:
    first, second = await stored(store, 2)
    await sent_by_a_worker(store, second, state=state)
    with pytest.raises(EditRefused, match=f"letter {second.letter.id} cannot be edited"):
        await store.edits.edit([changed(first.letter.id), changed(second.letter.id)], ANN)
    found = await kept(store, first.letter.id)
    assert (found.edits, len(found.history)) == ((), 1)


@pytest.mark.parametrize("state", [State.RESOLVED, State.FAILED, State.MANUAL])
async def test_a_letter_in_any_other_state_is_edited(store: Store, state: State) -> None:
    (given,) = await stored(store)
    await sent_by_a_worker(store, given, state=state)
    await store.edits.edit([changed(given.letter.id)], ANN)
    assert (await kept(store, given.letter.id)).letter.status is state
    assert await books_are_exact(store)


async def test_a_letter_that_is_gone_is_not_edited(store: Store) -> None:
    (given,) = await stored(store)
    with pytest.raises(EditRefused, match="there is no letter"):
        await store.edits.edit([changed(given.letter.id), changed(arrival().letter.id)], ANN)
    assert await message(store, given.letter.id) == given.envelope.body


async def test_more_letters_than_one_query_takes_are_edited_in_one_transaction(
    store: Store,
) -> None:
    ids = [given.letter.id for given in await stored(store, 1100)]

    async def batches(*, broken: bool) -> AsyncIterator[Sequence[PreparedEdit]]:
        yield [changed(letter_id) for letter_id in ids[:600]]
        yield [changed(letter_id) for letter_id in ids[600:]]
        if broken:
            raise EditRefused("the last one does not fit")

    with pytest.raises(EditRefused, match="the last one"):
        await store.edits.edit_all(batches(broken=True), ANN)
    assert (await kept(store, ids[0])).edits == ()
    assert await store.edits.edit_all(batches(broken=False), ANN) == 1100
    assert await message(store, ids[-1]) == b"mended"


async def test_letters_that_may_not_be_edited_are_left_out_when_asked(store: Store) -> None:
    first, second, third = await stored(store, 3)
    await sent_by_a_worker(store, second)
    await store.edits.edit([changed(third.letter.id, b"by another")], ANN)

    async def batches() -> AsyncIterator[Sequence[PreparedEdit]]:
        yield [changed(each.letter.id) for each in (first, second, third)]

    left_out: list[tuple[str, str]] = []
    assert await store.edits.edit_all(batches(), ANN, left_out=left_out) == 1
    assert [letter_id for letter_id, _ in left_out] == [second.letter.id, third.letter.id]
    assert await message(store, first.letter.id) == b"mended"
    assert await message(store, third.letter.id) == b"by another"
    assert len((await kept(store, second.letter.id)).history) == 2


async def test_an_edit_waits_for_whoever_has_the_letter_and_looks_then(store: Store) -> None:
    (given,) = await stored(store)
    async with store.database.writing() as connection:
        await lock_letters(connection, [given.letter.id])
        editing = asyncio.create_task(store.edits.edit([changed(given.letter.id)], ANN))
        await asyncio.wait((editing,), timeout=0.3)
        assert not editing.done()
    assert await editing == 1


async def test_an_edit_is_made_from_what_would_be_sent_now(store: Store) -> None:
    first, second, third = await stored(store, 3)
    await store.edits.edit([changed(second.letter.id, b"1"), changed(third.letter.id, b"1")], ANN)
    await store.edits.edit([changed(second.letter.id, b"2", made_from=1)], ANN)
    await store.edits.undo(third.letter.id, ANN)
    found = [each async for each in store.edits.editable(Filters())]
    assert [(each.letter_id, each.message.body, each.number) for each in found] == [
        (first.letter.id, first.envelope.body, 0),
        (second.letter.id, b"2", 2),
        (third.letter.id, third.envelope.body, 0),
    ]
    assert {each.status for each in found} == {State.PENDING}


async def test_every_message_that_matches_is_handed_out_once(store: Store) -> None:
    ids = [given.letter.id for given in await stored(store, 150)]
    found = [each.letter_id async for each in store.edits.editable(Filters(queue="orders"))]
    assert found == ids
    assert [each async for each in store.edits.editable(Filters(queue="none"))] == []


async def test_no_more_of_messages_is_read_at_once_than_memory_should_hold(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "BYTES_AT_ONCE", 1000)
    ids = [given.letter.id for given in await stored(store, 5)]
    await store.edits.edit([changed(ids[1], b"x" * 2000), changed(ids[3], b"x" * 700)], ANN)
    with statements(store, "SELECT redrive_edit.letter_id, redrive_edit.number") as asked:
        found = [each.letter_id async for each in store.edits.editable(Filters())]
    assert found == ids
    assert len(asked) >= 3, "the large one is read alone"


# Undoing


async def edited(store: Store) -> tuple[Arrival, Edit]:
    (given,) = await stored(store)
    await store.edits.edit([changed(given.letter.id)], ANN)
    edit = standing((await kept(store, given.letter.id)).edits)
    assert edit is not None
    return given, edit


async def test_an_edit_that_is_undone_is_kept_and_not_sent(store: Store) -> None:
    given, edit = await edited(store)
    undone = await store.edits.undo(given.letter.id, "cli:bob", "it was right")
    assert (undone.number, undone.undone) == (edit.number, True)
    found = await kept(store, given.letter.id)
    assert found.edits == (undone,)
    assert await message(store, given.letter.id) == given.envelope.body
    change = found.history[-1]
    assert (change.actor, change.reason) == ("cli:bob", "edit 1 undone: it was right")
    assert await books_are_exact(store)


async def test_the_edit_before_stands_again(store: Store) -> None:
    given, _ = await edited(store)
    await store.edits.edit([changed(given.letter.id, b"again", made_from=1)], ANN)
    await store.edits.undo(given.letter.id, ANN)
    assert await message(store, given.letter.id) == b"mended"


async def test_an_undo_of_an_edit_that_does_not_stand_any_more_takes_no_other_back(
    store: Store,
) -> None:
    given, _ = await edited(store)
    await store.edits.edit([changed(given.letter.id, b"again", made_from=1)], ANN)
    await store.edits.undo(given.letter.id, ANN, seen=2)
    with pytest.raises(EditedMeanwhile):
        await store.edits.undo(given.letter.id, ANN, seen=2)
    assert await message(store, given.letter.id) == b"mended"
    await store.edits.undo(given.letter.id, ANN, seen=1)
    with pytest.raises(EditedMeanwhile):
        await store.edits.undo(given.letter.id, ANN, seen=1)


async def test_without_an_edit_there_is_nothing_to_undo(store: Store) -> None:
    given, _ = await edited(store)
    await store.edits.undo(given.letter.id, ANN)
    with pytest.raises(EditRefused, match="has no edit to undo"):
        await store.edits.undo(given.letter.id, ANN)


@pytest.mark.parametrize("result", [Result.SENT, Result.IN_DOUBT, Result.RETURNED, Result.FAILED])
async def test_an_edit_that_was_sent_is_not_undone(store: Store, result: Result) -> None:
    given, _ = await edited(store)
    await sent_now(store, given, result, State.MANUAL)
    with pytest.raises(EditRefused, match=r"edit 1 of letter .* was sent"):
        await store.edits.undo(given.letter.id, ANN)
    assert await message(store, given.letter.id) == b"mended"


async def test_an_edit_whose_sending_was_refused_can_be_undone(store: Store) -> None:
    given, _ = await edited(store)
    await sent_now(store, given, Result.REFUSED, State.MANUAL)
    await store.edits.undo(given.letter.id, ANN)
    assert await message(store, given.letter.id) == given.envelope.body


async def test_nothing_is_undone_while_the_letter_is_outstanding(store: Store) -> None:
    given, _ = await edited(store)
    await sent_now(store, given, Result.SENDING, State.PROCESSING)
    with pytest.raises(EditRefused, match="outstanding"):
        await store.edits.undo(given.letter.id, ANN)


# Coming back, going elsewhere


async def test_edits_outlive_a_return(store: Store) -> None:
    given, _ = await edited(store)
    await sent_now(store, given, Result.SENT, State.PROCESSING)
    await store.letters.add([arrival(headers=replayed(given.letter.id, 1))])
    found = await kept(store, given.letter.id)
    assert found.letter.status is State.PENDING
    assert await message(store, given.letter.id) == b"mended"


async def test_edits_are_exported_and_imported(store: Store, tmp_path: object) -> None:
    given, _ = await edited(store)
    found = await kept(store, given.letter.id)
    async with letter_store(f"sqlite:///{tmp_path}/other.db") as other:
        assert await other.letters.restore([found]) == 1
        assert await kept(other, given.letter.id) == found
        assert await books_are_exact(other)
