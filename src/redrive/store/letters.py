"""Letters: stored in batches, found by filters, read whole.

A list is read in pages by key, never by offset: what arrives meanwhile neither repeats a letter nor
hides one, and page 1,000 costs what page 1 does.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Select, delete, insert, select

from redrive.domain.filters import Filters, Page
from redrive.domain.letter import Arrival, Attempt, Change, Collected, Envelope, Kept, Letter
from redrive.store.clock import DatabaseClock
from redrive.store.collecting import collect
from redrive.store.cursors import read_cursor
from redrive.store.details import keep, one_moment, read_attempts, read_envelopes
from redrive.store.engine import Database
from redrive.store.restoring import restore
from redrive.store.rows import read_letter
from redrive.store.schema import (
    RECEIVED,
    redrive_ledger,
    redrive_letter,
    redrive_request,
    redrive_tag,
)
from redrive.store.selecting import conditions, is_listed_by_tag

_LETTER: Final = redrive_letter.c
_STREAMED: Final = 20
"""Letters of a stream held at a time, whose bodies may be large."""
_MAX_KNOWN: Final = 100_000
_PIECE: Final = 4_000_000
_ADDED_AT_ONCE: Final = 8
"""Batches of all queues of a process at a time: half of its connections are for everybody else."""
MAX_REVIVALS: Final = 5
"""How often a letter may come back before it has failed for good."""


class Letters:
    """The letters of a store."""

    def __init__(
        self, database: Database, clock: DatabaseClock, *, max_revivals: int = MAX_REVIVALS
    ) -> None:
        self._database = database
        self._clock = clock
        self._max_revivals = max_revivals
        self._known_groups: set[str] = set()
        self._adding = asyncio.Semaphore(_ADDED_AT_ONCE)

    # Into the store

    @property
    def writers(self) -> int:
        """How many batches at a time it is of use to add: on PostgreSQL one is made ready while the
        server is busy with another, on SQLite a writer is alone."""
        return 1 if self._database.is_sqlite else 2

    async def add(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[Collected]:
        """Store dead messages; what each turned out to be, in order. All of them or, on an error,
        none. `again`: an earlier try may have succeeded, what is there is left as it is."""
        async with self._adding, self._database.writing() as connection:
            collected = await collect(
                connection,
                arrivals,
                clock=self._clock,
                max_revivals=self._max_revivals,
                known_groups=self._known_groups,
                again=again,
            )
        if len(self._known_groups) > _MAX_KNOWN:
            self._known_groups.clear()
        self._known_groups.update(item.letter.fingerprint for item in collected)
        return collected

    async def prove_writable(self, room: int = 0) -> None:
        """Write something that means nothing, and commit it: a full disk is found in no other way.
        `room`: so many bytes, which are removed again. Raises what a real write would."""
        async with self._database.writing() as connection:
            await connection.execute(
                insert(redrive_ledger).values(fingerprint="", account=RECEIVED, delta=0)
            )
        if room:
            await self._prove_room(room)

    async def _prove_room(self, room: int) -> None:
        # Among the answers to requests, of nobody: they are forgotten, should this process end now.
        nobodys = redrive_request.c.actor == ""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            await connection.execute(delete(redrive_request).where(nobodys))
            for start in range(0, room, _PIECE):
                await connection.execute(
                    insert(redrive_request).values(
                        actor="",
                        key=secrets.token_hex(16),
                        digest=b"",
                        at=now,
                        body=secrets.token_bytes(min(_PIECE, room - start)),  # nothing shrinks it
                    )
                )
        async with self._database.writing() as connection:
            await connection.execute(delete(redrive_request).where(nobodys))

    async def restore(self, kept: Sequence[Kept]) -> int:
        """Put exported letters back as they were, but for what would strand them; how many were
        added. What has an id that is there already is left as it is."""
        async with self._database.writing() as connection:
            return await restore(connection, kept, await self._clock.now(connection))

    # Out of it

    async def page(
        self, filters: Filters, *, limit: int = 50, after: str | None = None
    ) -> Page[Letter]:
        """Letters, newest first. Raises `CursorRefused` if `after` is no page's `next`."""
        # By a tag, its own index is the list: the order of its ids is that of the letters.
        ids = redrive_tag.c.letter_id if is_listed_by_tag(filters) else _LETTER.id
        query = self._matching(filters).order_by(ids.desc()).limit(limit + 1)
        if after is not None:
            query = query.where(ids < read_cursor(after))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        letters = tuple(read_letter(row) for row in rows[:limit])
        return Page(letters, letters[-1].id if len(rows) > limit else None)

    async def neighbours(self, letter_id: str, filters: Filters) -> tuple[str | None, str | None]:
        """The ids next to one in a list: the newer and the older. It need not be in it itself."""
        ids = redrive_tag.c.letter_id if is_listed_by_tag(filters) else _LETTER.id
        matching = self._matching(filters).with_only_columns(ids).limit(1)
        newer = matching.where(ids > letter_id).order_by(ids)
        older = matching.where(ids < letter_id).order_by(ids.desc())
        async with self._database.reading() as connection:
            await one_moment(connection)
            return (
                (await connection.execute(newer)).scalar_one_or_none(),
                (await connection.execute(older)).scalar_one_or_none(),
            )

    def _matching(self, filters: Filters) -> Select[Any]:
        found = select(redrive_letter).where(*conditions(filters, sqlite=self._database.is_sqlite))
        if is_listed_by_tag(filters):
            found = found.join(redrive_tag, redrive_tag.c.letter_id == _LETTER.id)
        return found

    async def get(self, letter_id: str) -> Letter | None:
        """One letter by its whole id."""
        query = select(redrive_letter).where(_LETTER.id == letter_id)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else read_letter(row)

    async def ids_beginning(self, prefix: str, limit: int = 10) -> list[str]:
        """The ids that begin so, oldest first; none if it is no beginning of an id."""
        digits = prefix.replace("-", "").lower()
        if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
            return []
        low, high = (str(UUID(digits.ljust(32, filler))) for filler in "0f")
        query = (
            select(_LETTER.id)
            .where(_LETTER.id >= low, _LETTER.id <= high)
            .order_by(_LETTER.id)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def envelope(self, letter_id: str) -> Envelope | None:
        """The message of a letter, byte for byte."""
        async with self._database.reading() as connection:
            return (await read_envelopes(connection, [letter_id])).get(letter_id)

    async def history(self, letter_id: str) -> list[Change]:
        """What happened to a letter, oldest first; nothing if there is none of that id."""
        kept = await self.kept(letter_id)
        return [] if kept is None else list(kept.history)

    async def attempts(self, letter_id: str) -> list[Attempt]:
        """Every sending of a letter, oldest first."""
        async with self._database.reading() as connection:
            return (await read_attempts(connection, [letter_id]))[letter_id]

    async def kept(self, letter_id: str) -> Kept | None:
        """All that is kept of one letter, as of one moment."""
        query = select(redrive_letter).where(_LETTER.id == letter_id)
        async with self._database.reading() as connection:
            await one_moment(connection)
            row = (await connection.execute(query)).mappings().one_or_none()
            if row is None:
                return None
            (kept,) = await keep(connection, [read_letter(row)])
        return kept

    async def stream(self, filters: Filters) -> AsyncIterator[Kept]:
        """All that is kept of the letters that match, oldest first, a few at a time."""
        after: str | None = None
        while True:
            query = self._matching(filters).order_by(_LETTER.id).limit(_STREAMED)
            if after is not None:
                query = query.where(_LETTER.id > after)
            async with self._database.reading() as connection:
                await one_moment(connection)
                rows = (await connection.execute(query)).mappings().all()
                letters = [read_letter(row) for row in rows]
                kept = await keep(connection, letters)
            for each in kept:
                yield each
            if len(letters) < _STREAMED:
                return
            after = letters[-1].id
