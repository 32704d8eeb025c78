"""The books: every letter that came in is somewhere, and here is where.

Each change of a letter appends its deltas in its own transaction (`booked`), so the books are never
ahead of the letters or behind them. `compact` sums the deltas up; it may run anywhere at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sqlalchemy import delete, func, literal_column, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.filters import Audit, Ledger
from redrive.domain.lifecycle import State
from redrive.store.bulk import insert_many
from redrive.store.engine import Database
from redrive.store.schema import DELETED, RECEIVED, RETURNED, redrive_ledger, redrive_letter

_LEDGER: Final = redrive_ledger.c

Deltas = Counter[tuple[str, str]]
"""By fingerprint and account, how many more (or fewer)."""


async def book(connection: AsyncConnection, deltas: Mapping[tuple[str, str], int]) -> None:
    """Append deltas, in the transaction of the change that they tell."""
    rows = [
        {"fingerprint": fingerprint, "account": account, "delta": delta}
        for (fingerprint, account), delta in deltas.items()
        if delta
    ]
    await insert_many(connection, redrive_ledger, rows)


class Books:
    """The ledger, to read, check and compact."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ledger(self) -> Ledger:
        """What came in, and where it is."""
        query = select(_LEDGER.account, func.sum(_LEDGER.delta)).group_by(_LEDGER.account)
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).all()
        return _ledger({account: int(total) for account, total in found})

    async def audit(self) -> Audit:
        """The books against the rows. One statement, so it sees one moment on either engine."""
        booked = select(
            literal_column("0").label("counted"),
            _LEDGER.account.label("name"),
            func.sum(_LEDGER.delta).label("number"),
        ).group_by(_LEDGER.account)
        counted = select(
            literal_column("1"), redrive_letter.c.status, func.count().label("number")
        ).group_by(redrive_letter.c.status)
        async with self._database.reading() as connection:
            found = (await connection.execute(union_all(booked, counted))).all()
        totals = {name: int(number) for is_row, name, number in found if not is_row}
        rows = {name: int(number) for is_row, name, number in found if is_row}
        return Audit(
            ledger=_ledger(totals), rows={state: rows.get(state.value, 0) for state in State}
        )

    async def compact(self) -> int:
        """Sum up the deltas of each account; how many rows there were."""
        async with self._database.writing() as connection:
            if self._database.is_sqlite:
                return await _compact_alone(connection)
            done = await connection.execute(text(_COMPACT))
            return int(done.scalar_one())


# Rows that others have not committed yet are not seen, and stay for the next time; rows that
# another compaction has taken meanwhile are skipped.
_COMPACT: Final = """
WITH gone AS (
    DELETE FROM redrive_ledger WHERE id IN (
        SELECT id FROM redrive_ledger WHERE (fingerprint, account) IN (
            SELECT fingerprint, account FROM redrive_ledger
            GROUP BY fingerprint, account HAVING count(*) > 1
        ) ORDER BY id FOR UPDATE SKIP LOCKED
    ) RETURNING fingerprint, account, delta
), summed AS (
    INSERT INTO redrive_ledger (fingerprint, account, delta)
    SELECT fingerprint, account, sum(delta) FROM gone GROUP BY fingerprint, account
    HAVING sum(delta) <> 0
)
SELECT count(*) FROM gone
"""


async def _compact_alone(connection: AsyncConnection) -> int:
    """On SQLite, where a writer is alone."""
    sums = select(_LEDGER.fingerprint, _LEDGER.account, func.sum(_LEDGER.delta)).group_by(
        _LEDGER.fingerprint, _LEDGER.account
    )
    totals = {(row[0], row[1]): int(row[2]) for row in (await connection.execute(sums)).all()}
    rows = (await connection.execute(select(func.count()).select_from(redrive_ledger))).scalar_one()
    if rows == len(totals):
        return 0  # nothing has changed since the last time
    gone = await connection.execute(delete(redrive_ledger))
    await book(connection, totals)
    return gone.rowcount


def _ledger(totals: Mapping[str, int]) -> Ledger:
    return Ledger(
        received=totals.get(RECEIVED, 0),
        returned=totals.get(RETURNED, 0),
        states={state: totals.get(state.value, 0) for state in State},
        deleted=totals.get(DELETED, 0),
    )
