"""The audit log: who did what, when, from where, and how it was answered.

Guarantees: an entry is committed before the change that it tells of, and gets its outcome after it:
no crash leaves a change that is not in the log. Entries are never changed otherwise, nor removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import func, insert, select, update

from redrive.domain.access import AuditEntry, Role, role_then
from redrive.domain.filters import Page
from redrive.errors import CursorRefused
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import redrive_audit
from redrive.store.selecting import matches

_AUDIT: Final = redrive_audit.c
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Action:
    """An entry, for who wants to know that there is one."""

    number: int
    name: str
    ended: bool
    """Whether it has an outcome: what it changes is changed then."""


class AuditLog:
    """The audit log of a store."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def begin(
        self, actor: str, role: Role | None, address: str, action: str, detail: str
    ) -> int:
        """Note what is about to be done; the number of the entry. Only a login may be without a
        role: the table has no word for none, but reads it from the login's outcome."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            made = await connection.execute(
                insert(redrive_audit)
                .values(
                    at=now,
                    actor=actor,
                    role=(role or Role.VIEWER).value,
                    address=address,
                    action=action,
                    detail=detail,
                )
                .returning(_AUDIT.id)
            )
            return int(made.scalar_one())

    async def end(self, number: int, outcome: int, detail: str) -> None:
        """Note how it ended."""
        async with self._database.writing() as connection:
            await connection.execute(
                update(redrive_audit)
                .where(_AUDIT.id == number)
                .values(outcome=outcome, detail=detail)
            )

    async def page(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        from_: datetime | None = None,
        until: datetime | None = None,
    ) -> Page[AuditEntry]:
        """Entries, newest first. Of actors and actions `*` and `?` are wildcards."""
        query = select(redrive_audit).order_by(_AUDIT.id.desc()).limit(limit + 1)
        if after is not None:
            query = query.where(_AUDIT.id < _read_number(after))
        sqlite = self._database.is_sqlite
        if actor is not None:
            query = query.where(matches(_AUDIT.actor, actor, sqlite=sqlite))
        if action is not None:
            query = query.where(matches(_AUDIT.action, action, sqlite=sqlite))
        if from_ is not None:
            query = query.where(_AUDIT.at >= from_)
        if until is not None:
            query = query.where(_AUDIT.at <= until)
        async with self._database.reading() as connection:
            found = [_read(row) for row in (await connection.execute(query)).mappings()]
        return Page(tuple(found[:limit]), str(found[limit - 1].id) if len(found) > limit else None)

    async def since(self, number: int, limit: int) -> list[Action]:
        """Later entries, oldest first."""
        query = (
            select(_AUDIT.id, _AUDIT.action, _AUDIT.outcome)
            .where(_AUDIT.id > number)
            .order_by(_AUDIT.id)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            rows = await connection.execute(query)
            return [Action(row.id, row.action, row.outcome is not None) for row in rows]

    async def newest(self) -> int:
        """The number of the newest entry; 0 if there is none."""
        async with self._database.reading() as connection:
            found = await connection.execute(select(func.max(_AUDIT.id)))
            return int(found.scalar_one() or 0)


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= _MOST):
        raise CursorRefused(f"{text!r} is not where a page ends")
    return int(text)


def _read(row: Any) -> AuditEntry:
    return AuditEntry(
        id=row["id"],
        at=row["at"],
        actor=row["actor"],
        role=role_then(row["action"], row["outcome"], Role(row["role"])),
        address=row["address"],
        action=row["action"],
        detail=row["detail"],
        outcome=row["outcome"],
    )
