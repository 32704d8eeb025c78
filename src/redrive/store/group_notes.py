"""Notes on groups, and who looks after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from redrive.domain.filters import GroupNote
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import redrive_group_note

_NOTE: Final = redrive_group_note.c


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
        self, fingerprint: str, note: str, assignee: str | None, by: str
    ) -> GroupNote | None:
        """Write a note; None if that leaves nothing, and so no note."""
        async with self._database.writing() as connection:
            if not note and assignee is None:
                await connection.execute(
                    delete(redrive_group_note).where(_NOTE.fingerprint == fingerprint)
                )
                return None
            now = await self._clock.now(connection)
            values: dict[str, Any] = {
                "note": note,
                "assignee": assignee,
                "updated_at": now,
                "updated_by": by,
            }
            dialect: Any = sqlite if self._database.is_sqlite else postgresql
            await connection.execute(
                dialect.insert(redrive_group_note)
                .values(fingerprint=fingerprint, **values)
                .on_conflict_do_update(index_elements=["fingerprint"], set_=values)
            )
        return GroupNote(**values)
