"""Notes on groups, and who looks after them.

Guarantees: a note replaces the one that its writer saw, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from redrive.domain.filters import GroupNote
from redrive.errors import NotedMeanwhile
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import redrive_group_note

_NOTE: Final = redrive_group_note.c
_MOMENT: Final = timedelta(milliseconds=1)


class GroupNotes:
    """The notes of a store. A group without one has no row."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def of(self, fingerprints: Sequence[str]) -> dict[str, GroupNote]:
        """The notes of these groups, of those that have one."""
        query = select(redrive_group_note).where(_NOTE.fingerprint.in_(fingerprints))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return {
            row["fingerprint"]: GroupNote(
                note=row["note"],
                assignee=row["assignee"],
                updated_at=row["updated_at"],
                updated_by=row["updated_by"],
            )
            for row in rows
        }

    async def set(
        self,
        fingerprint: str,
        note: str,
        assignee: str | None,
        by: str,
        *,
        made_from: datetime | None,
    ) -> GroupNote | None:
        """Write a note; None if that leaves nothing, and so no note. `made_from`: when the note
        that it replaces was written, None if there was none; `NotedMeanwhile` if that is not so."""
        mine = _NOTE.fingerprint == fingerprint
        async with self._database.writing() as connection:
            query = select(_NOTE.updated_at).where(mine).with_for_update()
            stands = (await connection.execute(query)).scalar_one_or_none()
            if stands != made_from:
                raise _overtaken(fingerprint)
            if not note and assignee is None:
                await connection.execute(delete(redrive_group_note).where(mine))
                return None
            now = await self._clock.now(connection)
            if stands is not None:  # no two notes of a group have one time
                now = max(now, stands + _MOMENT)
            written = GroupNote(note=note, assignee=assignee, updated_at=now, updated_by=by)
            dialect: Any = sqlite if self._database.is_sqlite else postgresql
            insert = dialect.insert(redrive_group_note).values(
                fingerprint=fingerprint, **asdict(written)
            )
            if stands is None:  # nothing was there to lock: another may be first
                insert = insert.on_conflict_do_nothing()
            else:
                insert = insert.on_conflict_do_update(
                    index_elements=["fingerprint"], set_=asdict(written)
                )
            done = await connection.execute(insert.returning(_NOTE.fingerprint))
            if done.first() is None:
                raise _overtaken(fingerprint)
        return written


def _overtaken(fingerprint: str) -> NotedMeanwhile:
    return NotedMeanwhile(f"somebody else has changed the note of group {fingerprint} meanwhile")
