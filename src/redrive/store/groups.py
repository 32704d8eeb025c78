"""Groups: letters that failed for the same reason in the same place, counted.

Counts come from the ledger, not from the letters, so a million letters cost no more than the few
rows that sum them up. When a group was last seen is the newest of its letters, found by the index.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Row, Select, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.filters import Group, Page
from redrive.domain.fingerprint import normal_reason
from redrive.domain.letter import Letter
from redrive.domain.lifecycle import State
from redrive.store.cursors import read_cursor
from redrive.store.engine import Database
from redrive.store.rows import read_letter
from redrive.store.schema import redrive_group, redrive_ledger, redrive_letter

_OF_THE_GROUP: Final = redrive_letter.alias("of_the_group")
_NEWEST: Final = (
    select(_OF_THE_GROUP.c.id)
    .where(_OF_THE_GROUP.c.fingerprint == redrive_group.c.fingerprint)
    .order_by(_OF_THE_GROUP.c.id.desc())
    .limit(1)
    .correlate(redrive_group)
    .scalar_subquery()
)

_ADDED_AT_ONCE: Final = 500


async def add_groups(
    connection: AsyncConnection, letters: Sequence[Letter], known: Collection[str] = ()
) -> None:
    """Add the groups of letters, except those known to be there. In one order for all writers: two
    that add the same ones wait, and never for each other."""
    first = {letter.fingerprint: letter for letter in reversed(letters)}
    missing = sorted(fingerprint for fingerprint in first if fingerprint not in known)
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    add = dialect.insert(redrive_group).on_conflict_do_nothing()
    for start in range(0, len(missing), _ADDED_AT_ONCE):
        rows = [
            {
                "fingerprint": fingerprint,
                "error_type": first[fingerprint].error_type,
                "reason": normal_reason(first[fingerprint].error_reason),
                "queue": first[fingerprint].queue,
                "first_seen_at": first[fingerprint].created_at,
            }
            for fingerprint in missing[start : start + _ADDED_AT_ONCE]
        ]
        await connection.execute(add.values(rows))


class Groups:
    """The groups of the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, *, limit: int = 50, after: str | None = None) -> Page[Group]:
        """Groups that have letters, the one that was hit last first."""
        query = _seen().order_by(redrive_letter.c.id.desc()).limit(limit + 1)
        if after is not None:
            query = query.where(redrive_letter.c.id < read_cursor(after))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
            counts = await _counts(connection, [row[0] for row in rows])
        groups = [_group(row, counts) for row in rows[:limit]]
        more = len(rows) > limit
        last = groups[-1].newest if groups else None
        return Page(tuple(groups), last.id if more and last else None)

    async def get(self, fingerprint: str) -> Group | None:
        """One group by its fingerprint; None if it has no letter."""
        query = _seen().where(redrive_group.c.fingerprint == fingerprint)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return None
            counts = await _counts(connection, [fingerprint])
        return _group(row, counts)


def _seen() -> Select[Any]:
    """Groups beside the newest of their letters."""
    beside = redrive_group.join(redrive_letter, redrive_letter.c.id == _NEWEST)
    return select(redrive_group, redrive_letter).select_from(beside)


async def _counts(
    connection: AsyncConnection, fingerprints: Sequence[str]
) -> dict[str, dict[State, int]]:
    ledger = redrive_ledger.c
    states = [state.value for state in State]
    query = (
        select(ledger.fingerprint, ledger.account, func.sum(ledger.delta))
        .where(ledger.fingerprint.in_(fingerprints), ledger.account.in_(states))
        .group_by(ledger.fingerprint, ledger.account)
    )
    found: dict[str, dict[State, int]] = {fingerprint: {} for fingerprint in fingerprints}
    for fingerprint, account, number in (await connection.execute(query)).all():
        if number:
            found[fingerprint][State(account)] = int(number)
    return found


def _group(row: Row[Any], counts: dict[str, dict[State, int]]) -> Group:
    values = tuple(row)
    fingerprint, error_type, reason, queue, first_seen_at = values[:5]
    newest = read_letter(dict(zip(redrive_letter.columns.keys(), values[5:], strict=True)))
    return Group(
        fingerprint=fingerprint,
        error_type=error_type,
        reason=reason,
        queue=queue,
        counts=counts[fingerprint],
        first_seen_at=first_seen_at,
        last_seen_at=newest.created_at,
        newest=newest,
    )
