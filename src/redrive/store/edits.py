"""Edits: what people changed in messages, beside the originals, and how it is taken back.

Guarantees: of one call every letter is edited, or none. A letter that is outstanding, archived or
gone is not; nor is one whose message another person changed since it was read, because the edit was
made from what it said then. An edit changes no state and no books, only the history. The newest
edit can be undone until it was sent; who names the edit they saw undoes that one or none.

An edit's time is taken before its letter is locked: a sending that waited for the lock, and took
the edited message with it, is then never the earlier of the two.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.editing import (
    Editable,
    PreparedEdit,
    editable,
    standing,
    was_sent,
    why_not_edited,
)
from redrive.domain.filters import Filters
from redrive.domain.letter import Edit, Letter
from redrive.domain.lifecycle import State
from redrive.errors import EditedMeanwhile, EditRefused
from redrive.store.bulk import insert_many
from redrive.store.changing import Changes, chunks, lock_letters
from redrive.store.clock import DatabaseClock
from redrive.store.details import read_attempts, read_edits, read_envelopes, that_fit
from redrive.store.engine import Database
from redrive.store.schema import redrive_edit, redrive_history, redrive_letter
from redrive.store.selecting import choose

_EDIT: Final = redrive_edit.c
_LETTER: Final = redrive_letter.c
_READ_AT_ONCE: Final = 50
BYTES_AT_ONCE: Final = 16 * 2**20
"""So much of letters is read at a time, unless one is larger."""


class Edits:
    """The edits of a store."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def editable(self, filters: Filters) -> AsyncIterator[Editable]:
        """The messages of the letters that match as they would be sent now, oldest first."""
        after: str | None = None
        columns = (_LETTER.id, _LETTER.status)
        while True:
            query = choose(*columns, filters=filters, sqlite=self._database.is_sqlite)
            query = query.order_by(_LETTER.id).limit(_READ_AT_ONCE)
            if after is not None:
                query = query.where(_LETTER.id > after)
            async with self._database.reading() as connection:
                found = {id_: State(status) for id_, status in await connection.execute(query)}
                ids = await that_fit(connection, list(found), BYTES_AT_ONCE)
                originals = await read_envelopes(connection, ids)
                edits = await read_edits(connection, ids)
            for id_ in ids:
                if id_ in originals:  # else it was deleted this moment
                    yield editable(id_, found[id_], originals[id_], edits[id_])
            if len(ids) < _READ_AT_ONCE and len(ids) == len(found):
                return
            after = ids[-1]

    async def edit(self, prepared: Sequence[PreparedEdit], actor: str, reason: str = "") -> int:
        """Edit letters, all of them or, by `EditRefused`, none; how many."""
        return await self.edit_all(_one(prepared), actor, reason)

    async def edit_all(
        self,
        batches: AsyncIterable[Sequence[PreparedEdit]],
        actor: str,
        reason: str = "",
        *,
        left_out: list[tuple[str, str]] | None = None,
    ) -> int:
        """The same for more letters than memory holds, in one transaction however many there are;
        in the order of their ids, or two of these could wait for each other. Given a list for
        those that are `left_out`, a letter that cannot be edited goes there with the reason, and
        the others are edited."""
        count = 0
        async with self._database.writing() as connection:
            async for batch in batches:
                for some in chunks(batch):
                    now = await self._clock.now(connection)
                    letters = await lock_letters(connection, [each.letter_id for each in some])
                    rows = await _rows(connection, some, letters, left_out)
                    made = {"at": now, "actor": actor, "reason": reason, "undone": False}
                    await insert_many(connection, redrive_edit, [{**row, **made} for row in rows])
                    edited = [letters[row["letter_id"]] for row in rows]
                    await _note(connection, edited, now, actor, _because("edited", reason))
                    count += len(rows)
        return count

    async def undo(
        self, letter_id: str, actor: str, reason: str = "", *, seen: int | None = None
    ) -> Edit:
        """Take the newest standing edit back; `EditRefused` if it was sent, or there is none, or
        if it is not the one that was `seen`."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            letters = await lock_letters(connection, [letter_id])
            letter = _require_editable(letters, letter_id)
            newest = standing((await read_edits(connection, [letter_id]))[letter_id])
            if seen is not None and (newest is None or newest.number != seen):
                raise EditedMeanwhile(f"edit {seen} of letter {letter_id} does not stand any more")
            if newest is None:
                raise EditRefused(f"letter {letter_id} has no edit to undo")
            if was_sent(newest, (await read_attempts(connection, [letter_id]))[letter_id]):
                raise EditRefused(
                    f"edit {newest.number} of letter {letter_id} was sent",
                    remedy="edit it again to send something else",
                )
            await connection.execute(
                update(redrive_edit)
                .where(_EDIT.letter_id == letter_id, _EDIT.number == newest.number)
                .values(undone=True)
            )
            what = f"edit {newest.number} undone"
            await _note(connection, [letter], now, actor, _because(what, reason))
        return replace(newest, undone=True)


async def _one(prepared: Sequence[PreparedEdit]) -> AsyncIterable[Sequence[PreparedEdit]]:
    yield prepared


async def _rows(
    connection: AsyncConnection,
    prepared: Sequence[PreparedEdit],
    letters: dict[str, Letter],
    left_out: list[tuple[str, str]] | None,
) -> list[dict[str, Any]]:
    """What makes edits of letters that are locked."""
    numbers = await _numbers(connection, list(letters))
    rows: list[dict[str, Any]] = []
    for each in prepared:
        try:
            _require_editable(letters, each.letter_id)
            newest = _require_unchanged(each, numbers[each.letter_id])
        except EditRefused as refused:
            if left_out is None:
                raise
            left_out.append((each.letter_id, str(refused)))
            continue
        numbers[each.letter_id] = (newest + 1, newest + 1)
        rows.append(
            {
                "letter_id": each.letter_id,
                "number": newest + 1,
                "properties": each.properties,
                "body": each.body,
            }
        )
    return rows


def _require_editable(letters: dict[str, Letter], letter_id: str) -> Letter:
    letter = letters.get(letter_id)
    if letter is None:
        raise EditRefused(f"there is no letter {letter_id}, or no longer")
    reason = why_not_edited(letter.status)
    if reason is not None:
        raise EditRefused(f"letter {letter_id} cannot be edited: {reason}")
    return letter


def _require_unchanged(prepared: PreparedEdit, numbers: tuple[int, int]) -> int:
    """The number of the letter's newest edit."""
    newest, stands = numbers
    if stands != prepared.made_from:
        raise EditedMeanwhile(f"letter {prepared.letter_id} was edited by somebody else meanwhile")
    return newest


async def _numbers(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """By letter, the number of its newest edit and of the one that stands; 0 for none."""
    query = (
        select(_EDIT.letter_id, _EDIT.number, _EDIT.undone)
        .where(_EDIT.letter_id.in_(ids))
        .order_by(_EDIT.number)
    )
    found = dict.fromkeys(ids, (0, 0))
    for letter_id, number, undone in await connection.execute(query):
        found[letter_id] = (number, found[letter_id][1] if undone else number)
    return found


async def _note(
    connection: AsyncConnection, letters: Iterable[Letter], now: datetime, actor: str, reason: str
) -> None:
    """An entry in the history of letters that stay in their states."""
    changes = Changes(connection, now, actor)
    rows = []
    for letter in letters:
        changes.set(letter)
        rows.append(
            {
                "letter_id": letter.id,
                "at": now,
                "actor": actor,
                "before": letter.status.value,
                "after": letter.status.value,
                "reason": reason,
            }
        )
    await changes.flush()
    await insert_many(connection, redrive_history, rows)


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
