"""`dlq_event_config` read and written, in the store or in a team's own database.

The table has neither a default for its id nor a unique name, so a change takes the table for itself
first: `LOCK TABLE … SHARE ROW EXCLUSIVE` on PostgreSQL, which also keeps out writers that know
nothing of Redrive and lets readers go on; `BEGIN IMMEDIATE` on SQLite.

What Redrive adds (`redrive_policy`) is always in the store. Where that is another database, it is
committed before the table is, and a row of it counts only with a row of the table: a crash between
the two leaves nothing that has an effect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import RowMapping, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.policy import PolicyRow, ReturnTo, refusal
from redrive.errors import PolicyRefused, SchemaMissing
from redrive.store.engine import Database, open_database
from redrive.store.schema import dlq_event_config, redrive_policy
from redrive.store.upgrade import open_store

_HIGHEST_ID = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """A policy as it should be. None: as it was, or the default for a new one."""

    name: str
    max_retries: int
    return_to: ReturnTo | None = None
    retry_expired: bool | None = None


class PolicyTable:
    """The policies of the database. Made by `open_policy_table`."""

    def __init__(self, store: Database, foreign: Database | None = None) -> None:
        """`foreign` is the database of a team's own table; without it the store's is used."""
        self._store = store
        self._table = foreign or store

    async def read(self) -> list[PolicyRow]:
        """Every row, as it stands."""
        rows = select(
            dlq_event_config.c.id, dlq_event_config.c.name, dlq_event_config.c.max_retries
        )
        added = select(redrive_policy)
        with _named_table():
            async with self._table.reading() as connection:
                found = (await connection.execute(rows)).all()
                if self._table is self._store:
                    extras = (await connection.execute(added)).mappings().all()
        if self._table is not self._store:
            async with self._store.reading() as connection:
                extras = (await connection.execute(added)).mappings().all()
        by_name = {extra["name"]: extra for extra in extras}
        return [_row(row.id, row.name, row.max_retries, by_name.get(row.name)) for row in found]

    async def set(self, change: PolicyChange) -> Literal["added", "changed"]:
        """Add a policy, or change the row that counts.

        Raises PolicyRefused, or StoreReadOnly where there is no right to write.
        """
        problem = refusal(change.name, change.max_retries)
        if problem:
            raise PolicyRefused(problem)
        async with self._locked_table() as table:
            exists = await _write_row(table, change)
            async with self._extras(table) as store:
                await _write_extras(store, change, keep=exists)
        return "changed" if exists else "added"

    async def delete(self, name: str) -> int:
        """Remove every row of that name; how many there were."""
        async with self._locked_table() as table:
            gone = await table.execute(
                delete(dlq_event_config).where(dlq_event_config.c.name == name)
            )
            async with self._extras(table) as store:
                await store.execute(delete(redrive_policy).where(redrive_policy.c.name == name))
        return gone.rowcount

    async def close(self) -> None:
        """Close the databases. Safe to call twice."""
        await self._store.close()
        if self._table is not self._store:
            await self._table.close()

    @asynccontextmanager
    async def _locked_table(self) -> AsyncIterator[AsyncConnection]:
        with _named_table():
            async with self._table.writing() as connection:
                if not self._table.is_sqlite:
                    await connection.execute(
                        text(f"LOCK TABLE {dlq_event_config.name} IN SHARE ROW EXCLUSIVE MODE")
                    )
                yield connection

    @asynccontextmanager
    async def _extras(self, table: AsyncConnection) -> AsyncIterator[AsyncConnection]:
        """Where `redrive_policy` is: in the same transaction if it is the same database."""
        if self._table is self._store:
            yield table
        else:
            async with self._store.writing() as connection:
                yield connection


async def open_policy_table(
    store_url: str, table_url: str | None = None, *, make: bool = True
) -> PolicyTable:
    """Open the store and, where it is elsewhere, the table; StoreError if either is not usable.
    `make`: where there is no store, a new one is made."""
    store = await open_store(store_url, make=make)
    if table_url is None or table_url == store_url:
        return PolicyTable(store)
    try:
        return PolicyTable(store, open_database(table_url, ours=False))
    except BaseException:
        await store.close()
        raise


async def _write_row(table: AsyncConnection, change: PolicyChange) -> bool:
    columns = dlq_event_config.c
    winner = select(func.max(columns.id)).where(columns.name == change.name).scalar_subquery()
    updated = await table.execute(
        update(dlq_event_config)
        .where(columns.name == change.name, columns.id == winner)
        .values(max_retries=change.max_retries)
    )
    if updated.rowcount:
        return True
    highest: int = (
        await table.execute(select(func.coalesce(func.max(columns.id), 0)))
    ).scalar_one()
    if highest >= _HIGHEST_ID:
        raise PolicyRefused(
            f"{dlq_event_config.name} has a row with the highest id there can be, {highest}",
            remedy="give that row a lower id",
        )
    await table.execute(
        insert(dlq_event_config).values(
            id=max(highest, 0) + 1, name=change.name, max_retries=change.max_retries
        )
    )
    return False


async def _write_extras(store: AsyncConnection, change: PolicyChange, *, keep: bool) -> None:
    this = redrive_policy.c.name == change.name
    found = (await store.execute(select(redrive_policy).where(this))).mappings().one_or_none()
    # Without a row of the table, these are the remains of an older policy.
    before = found if keep else None
    after = {
        "return_to": change.return_to or (before["return_to"] if before else "queue"),
        "retry_expired": (bool(before and before["retry_expired"]))
        if change.retry_expired is None
        else change.retry_expired,
    }
    await store.execute(delete(redrive_policy).where(this))
    if after != {"return_to": "queue", "retry_expired": False}:
        await store.execute(insert(redrive_policy).values(name=change.name, **after))


def _row(id_: object, name: object, max_retries: object, extra: RowMapping | None) -> PolicyRow:
    if extra is None:
        return PolicyRow(id=id_, name=name, max_retries=max_retries)
    return PolicyRow(
        id=id_,
        name=name,
        max_retries=max_retries,
        return_to=extra["return_to"],
        retry_expired=extra["retry_expired"],
    )


@contextmanager
def _named_table() -> Iterator[None]:
    """Say what should be there, where it is not."""
    try:
        yield
    except SchemaMissing as error:
        raise SchemaMissing(
            str(error),
            remedy=f"expected {dlq_event_config.name}(id, name, max_retries) there:"
            " check [policy_table] url",
        ) from error
