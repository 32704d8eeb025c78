"""What belongs to letters beside their rows: messages, edits, attempts, history."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import ColumnElement, exists, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.letter import Attempt, Change, Edit, Envelope, Head, Kept, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.verdict import newest_sending
from redrive.store.bulk import read_by_id
from redrive.store.changing import chunks
from redrive.store.id_lists import is_one_of
from redrive.store.rows import (
    ENVELOPE_COLUMNS,
    HEAD,
    arrival_of,
    claim_of,
    read_attempt,
    read_change,
    read_edit,
    read_envelope,
    read_head,
)
from redrive.store.schema import (
    redrive_attempt,
    redrive_edit,
    redrive_envelope,
    redrive_history,
    redrive_letter,
)

_LETTER: Final = redrive_letter.c
_EDITED: Final = ("letter_id", "number", "undone", "properties", "body")


async def keep(connection: AsyncConnection, letters: Sequence[Letter]) -> list[Kept]:
    """All that is kept of these letters."""
    ids = [letter.id for letter in letters]
    envelopes = await envelopes_of(connection, letters)
    changes = await _changes(connection, ids)
    attempts = await read_attempts(connection, ids)
    edits = await read_edits(connection, ids)
    return [
        Kept(
            letter=letter,
            envelope=envelopes[letter.id],
            history=_history(letter, attempts[letter.id], changes[letter.id]),
            attempts=tuple(attempts[letter.id]),
            edits=tuple(edits[letter.id]),
        )
        for letter in letters
    ]


async def one_moment(connection: AsyncConnection) -> None:
    """Begin a transaction that reads one state of the database throughout: a letter that is deleted
    meanwhile is read whole. On SQLite every transaction does."""
    if connection.dialect.name != "sqlite":
        await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


async def that_fit(connection: AsyncConnection, ids: Sequence[str], most: int) -> Sequence[str]:
    """The first of the ids, whose letters together have no more bytes than that; at least one."""
    sizes = await _sizes(connection, ids)
    held = 0
    for number, id_ in enumerate(ids):
        held += sizes[id_]
        if held > most and number:
            return ids[:number]
    return ids


async def _sizes(connection: AsyncConnection, ids: Sequence[str]) -> Counter[str]:
    """How many bytes each letter has, but for its small parts."""
    sizes: Counter[str] = Counter()
    envelope, edit = redrive_envelope.c, redrive_edit.c
    for some in chunks(ids):
        for query in (
            select(
                envelope.letter_id, func.length(envelope.properties) + func.length(envelope.body)
            ).where(is_one_of(connection, envelope.letter_id, some)),
            select(edit.letter_id, func.length(edit.properties) + func.length(edit.body)).where(
                is_one_of(connection, edit.letter_id, some)
            ),
            select(_LETTER.id, func.length(_LETTER.error_stack)).where(
                is_one_of(connection, _LETTER.id, some), _LETTER.error_stack.is_not(None)
            ),
        ):
            for id_, size in (await connection.execute(query)).all():
                sizes[id_] += size
    return sizes


def _history(
    letter: Letter, attempts: Sequence[Attempt], changes: Sequence[Change]
) -> tuple[Change, ...]:
    """Oldest first. Arrivals and claims are told by other rows. Changes are in the order in which
    they happened, and a claim comes before the first that begins with a letter in processing: times
    would not tell, because they are noted before writers wait for each other."""
    told = [arrival_of(letter)]
    claims = deque(map(claim_of, attempts))
    for change in changes:
        if change.before is State.PROCESSING and told[-1].after is not State.PROCESSING and claims:
            told.append(claims.popleft())
        told.append(change)
    return (*told, *claims)


async def read_envelopes(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, Envelope]:
    """Messages as they were received, by letter."""
    rows = await read_by_id(connection, redrive_letter, HEAD, ids)
    return await envelopes_of(connection, [read_head(row) for row in rows])


async def envelopes_of(
    connection: AsyncConnection, letters: Iterable[Letter | Head]
) -> dict[str, Envelope]:
    """The same, of letters that were read before."""
    by_id = {letter.id: letter for letter in letters}
    rows = await read_by_id(connection, redrive_envelope, ENVELOPE_COLUMNS, by_id)
    return {row[0]: read_envelope(row, by_id[row[0]]) for row in rows}


async def read_messages(
    connection: AsyncConnection, letters: Iterable[Letter | Head]
) -> dict[str, Envelope]:
    """Messages as they are to be sent, by letter: with the newest edit that is not undone."""
    messages = await envelopes_of(connection, letters)
    edits = await read_by_id(connection, redrive_edit, _EDITED, messages)
    for id_, _, undone, properties, body in sorted(edits):  # of each letter the newest last
        if not undone:
            messages[id_] = replace(messages[id_], properties=properties, body=body)
    return messages


async def read_edits(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, list[Edit]]:
    """Edits by letter, oldest first, those that were undone too."""
    edit = redrive_edit.c
    query = (
        select(redrive_edit).where(is_one_of(connection, edit.letter_id, ids)).order_by(edit.number)
    )
    found: dict[str, list[Edit]] = {id_: [] for id_ in ids}
    for row in (await connection.execute(query)).mappings():
        found[row["letter_id"]].append(read_edit(row))
    return found


async def read_attempts(
    connection: AsyncConnection, ids: Sequence[str]
) -> dict[str, list[Attempt]]:
    """Every sending by letter, oldest first."""
    attempt = redrive_attempt.c
    query = (
        select(redrive_attempt)
        .where(is_one_of(connection, attempt.letter_id, ids))
        .order_by(attempt.generation)
    )
    found: dict[str, list[Attempt]] = {id_: [] for id_ in ids}
    for row in (await connection.execute(query)).mappings():
        found[row["letter_id"]].append(read_attempt(row))
    return found


async def last_sendings(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, Attempt]:
    """By letter, the sending that a verdict is on."""
    return {
        id_: newest
        for id_, attempts in (await read_attempts(connection, ids)).items()
        if (newest := newest_sending(attempts)) is not None
    }


def not_surely_sent_since() -> ColumnElement[bool]:
    """In a query of attempts, those of letters of which no later sending is known to have gone:
    each was refused, is under way, or may or may not have been sent."""
    attempt, later = redrive_attempt.c, redrive_attempt.alias("later").c
    unsure = [each.value for each in (Result.SENDING, Result.IN_DOUBT, Result.REFUSED)]
    return ~exists().where(
        later.letter_id == attempt.letter_id,
        later.generation > attempt.generation,
        later.result.not_in(unsure),
    )


async def _changes(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, list[Change]]:
    history = redrive_history.c
    query = (
        select(redrive_history)
        .where(is_one_of(connection, history.letter_id, ids))
        .order_by(history.id)
    )
    found: dict[str, list[Change]] = {id_: [] for id_ in ids}
    for row in (await connection.execute(query)).mappings():
        found[row["letter_id"]].append(read_change(row))
    return found
