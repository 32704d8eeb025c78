"""Letters and replays whose time is over: which they are, and how they leave the store.

Guarantees: what is archived or deleted is locked and compared in the transaction that does it. A
letter that has changed since it was found, in whatever part of it, is left alone; so is one that is
not in the state it was found in. The books are changed with the rows.

Of a letter that is deleted its identity stays: a second copy of its message is recognised however
late it comes. Its group stays too, without letters, because collectors know it is there.

Any number of janitors may ask at once: `alone` lets one of them work. Should that fail, as when the
server ends an idle transaction, two may do the same work, and the second finds it done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.ids import last_id
from redrive.domain.letter import Kept, Letter
from redrive.domain.lifecycle import DELETABLE, REMEDIES, State
from redrive.domain.replay import ReplayState
from redrive.errors import TransitionRefused
from redrive.store.books import Deltas, book
from redrive.store.changing import Changes, chunks, lock_letters
from redrive.store.clock import DatabaseClock
from redrive.store.details import keep, one_moment, that_fit
from redrive.store.engine import Database
from redrive.store.rows import read_letter
from redrive.store.schema import (
    DELETED,
    redrive_attempt,
    redrive_edit,
    redrive_envelope,
    redrive_history,
    redrive_letter,
    redrive_replay,
    redrive_replay_letter,
    redrive_tag,
)

ACTOR: Final = "retention"
AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 16 * 2**20

LISTED: Final = 10_000
"""Rows of a replay's list that are deleted at once."""

_LETTER: Final = redrive_letter.c
_REPLAY: Final = redrive_replay.c
_ITEM: Final = redrive_replay_letter.c
_BESIDE: Final = (redrive_envelope, redrive_history, redrive_attempt, redrive_edit)
# Ids are made by the clocks of collectors, which may be ahead of the database's.
_CLOCKS_DIFFER: Final = timedelta(days=1)
# Any number will do, as long as every Redrive takes the same: "retain" in ASCII.
_RETAINING: Final = int.from_bytes(b"retain")


class Expiry:
    """Letters on their way out of the store."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def now(self) -> datetime:
        """The time of the database."""
        async with self._database.reading() as connection:
            return await self._clock.now(connection)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[bool]:
        """Whether nobody else is at it, as long as the block lasts. On SQLite writers are alone one
        transaction at a time, and that is enough."""
        if self._database.is_sqlite:
            yield True
            return
        async with self._database.reading() as connection:
            free = select(func.pg_try_advisory_xact_lock(_RETAINING))
            yield bool((await connection.execute(free)).scalar_one())

    # What is due

    async def due(self, state: State, until: datetime, *, after: str | None = None) -> list[str]:
        """Letters that have been in a state since a moment or longer, in the order of their ids: so
        many as one file takes.

        By the index of states and ids; an id tells when its letter was made, so what is younger
        than the period is not looked at.
        """
        query = (
            select(_LETTER.id)
            .where(*_since(state, until), _LETTER.id <= last_id(until + _CLOCKS_DIFFER))
            .order_by(_LETTER.id)
            .limit(AT_ONCE)
        )
        if after is not None:
            query = query.where(_LETTER.id > after)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def read(self, ids: Sequence[str], state: State, until: datetime) -> list[Kept]:
        """All that is kept of the first of these letters that are due still: so many as memory
        should hold, at least one."""
        async with self._database.reading() as connection:
            await one_moment(connection)
            still: list[str] = []
            for some in chunks(ids):
                same = select(_LETTER.id).where(_LETTER.id.in_(some), *_since(state, until))
                still += (await connection.execute(same.order_by(_LETTER.id))).scalars()
            kept: list[Kept] = []
            for some in chunks(await that_fit(connection, still, BYTES_AT_ONCE)):
                query = select(redrive_letter).where(_LETTER.id.in_(some)).order_by(_LETTER.id)
                rows = (await connection.execute(query)).mappings()
                kept += await keep(connection, [read_letter(row) for row in rows])
        return kept

    # Replays

    async def ended_replays(self, until: datetime) -> list[str]:
        """Jobs that ended at a moment or before."""
        query = (
            select(_REPLAY.id)
            .where(
                _REPLAY.state.in_([ReplayState.DONE.value, ReplayState.CANCELLED.value]),
                _REPLAY.updated_at <= until,
            )
            .order_by(_REPLAY.id)
            .limit(AT_ONCE)
        )
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def delete_replay(self, replay_id: str) -> bool:
        """Delete a job that ended, or some of its list if that is long; whether it is gone. What
        it sent is told by the attempts of the letters, as long as those are there."""
        of_it = _ITEM.replay_id == replay_id
        async with self._database.writing() as connection:
            query = select(_ITEM.position).where(of_it).order_by(_ITEM.position)
            first = (await connection.execute(query.limit(1))).scalar_one_or_none()
            if first is not None:
                some = delete(redrive_replay_letter).where(of_it, _ITEM.position < first + LISTED)
                gone = (await connection.execute(some)).rowcount
                if gone == LISTED:
                    return False
            await connection.execute(delete(redrive_replay).where(_REPLAY.id == replay_id))
        return True

    # What becomes of it

    async def delete_resolved(self, ids: Sequence[str], until: datetime) -> int:
        """Delete resolved letters, of which nothing has to be kept; how many still were due."""
        async with self._database.writing() as connection:
            locked = await lock_letters(connection, ids)
            gone = [
                letter
                for letter in locked.values()
                if letter.status is State.RESOLVED and letter.updated_at <= until
            ]
            await _delete(connection, gone)
        return len(gone)

    async def delete(self, kept: Sequence[Kept]) -> int:
        """Delete archived letters that are exactly as given; how many were."""
        async with self._database.writing() as connection:
            unchanged = await _unchanged(connection, kept, State.ARCHIVED)
            await _delete(connection, unchanged)
        return len(unchanged)

    async def archive(self, kept: Sequence[Kept], reason: str) -> int:
        """Make archived the failed letters that are exactly as given; how many were."""
        async with self._database.writing() as connection:
            unchanged = await _unchanged(connection, kept, State.FAILED)
            changes = Changes(connection, await self._clock.now(connection), ACTOR)
            for letter in unchanged:
                changes.become(letter, State.ARCHIVED, reason)
            await changes.flush()
        return len(unchanged)


def _since(state: State, until: datetime) -> tuple[ColumnElement[bool], ...]:
    """In a state since a moment or longer."""
    return _LETTER.status == state.value, _LETTER.updated_at <= until


async def _unchanged(
    connection: AsyncConnection, given: Sequence[Kept], state: State
) -> list[Letter]:
    """Those of the letters in a state that are as given to the last byte, locked."""
    found: list[Letter] = []
    for some in chunks([each for each in given if each.letter.status is state]):
        locked = await lock_letters(connection, [each.letter.id for each in some])
        same = [each for each in some if locked.get(each.letter.id) == each.letter]
        now = await keep(connection, [each.letter for each in same])
        found += [kept.letter for kept, before in zip(now, same, strict=True) if kept == before]
    return found


async def _delete(connection: AsyncConnection, letters: Sequence[Letter]) -> None:
    deltas: Deltas = Counter()
    tags: list[dict[str, str]] = []
    for letter in letters:
        if letter.status not in DELETABLE:
            raise TransitionRefused(
                f"a letter that is {letter.status.word} is never deleted",
                remedy=REMEDIES[letter.status],
            )
        deltas[letter.fingerprint, letter.status.value] -= 1
        deltas[letter.fingerprint, DELETED] += 1
        tags += [{"a_tag": tag, "of": letter.id} for tag in dict.fromkeys(letter.tags)]
    for some in chunks([letter.id for letter in letters]):
        for table in _BESIDE:
            await connection.execute(delete(table).where(table.c.letter_id.in_(some)))
        await connection.execute(delete(redrive_letter).where(_LETTER.id.in_(some)))
    if tags:
        # By both columns: the index of tags begins with the tag.
        tag = redrive_tag.c
        await connection.execute(
            delete(redrive_tag).where(
                tag.tag == bindparam("a_tag"), tag.letter_id == bindparam("of")
            ),
            tags,
        )
    await book(connection, deltas)
