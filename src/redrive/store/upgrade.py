"""A store and the version of its tables.

Guarantees: nothing is written to a file that is no SQLite database, or beside it; nor, unless a
store is to be made, to a database without our tables. A store that a newer Redrive has upgraded is
refused, not touched. An older one is upgraded only by `upgrade`; `open_store` calls it for SQLite,
which has no other user, after a copy of the file. An upgrade is one transaction, and two at once
wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, inspect, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.masking import mask_url
from redrive.errors import SchemaNewer, SchemaOlder, StoreError, StoreUnreachable
from redrive.store.engine import Database, is_read_only, open_database, sqlite_lock, sqlite_uri
from redrive.store.failures import translated
from redrive.store.schema import REVISION, VERSION_TABLE

# Any number will do, as long as every Redrive takes the same: "redrive" in ASCII.
_ADVISORY_LOCK: Final = int.from_bytes(b"redrive")

_HAS_VERSION: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"

# A lock belongs to the loop that waits for it.
_ALEMBIC: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade did. `before` is None for a database without Redrive's tables."""

    before: str | None
    after: str
    backup: Path | None


async def open_store(url: str, *, make: bool = True) -> Database:
    """Open the store, ready to be used. `make`: where there is none, a new one is made (SQLite).

    Raises StoreUnreachable, SchemaNewer, and for PostgreSQL SchemaOlder.
    """
    as_it_is = False
    if not make and url.startswith("sqlite"):
        path, shown = Path(make_url(url).database or ""), mask_url(url)
        found = await asyncio.to_thread(_revision_in, path, shown)
        if found is None:
            raise StoreUnreachable(
                f"{shown}: there is no store",
                remedy="'redrive run' makes it when it first starts; check [store] url",
            )
        as_it_is = found == REVISION and is_read_only(path)
    store = open_database(url, ours=True)
    try:
        if not store.is_sqlite:
            await _require_current(store)
        elif not as_it_is:
            await upgrade(store)
    except BaseException:
        await store.close()
        raise
    return store


def _revision_in(path: Path, shown: str) -> str | None:
    """The version of the store in a SQLite file, which stays as it is; None if there is none."""
    if not path.exists():
        return None
    uri = sqlite_uri(path, "rw", read_only=is_read_only(path))
    with translated(shown), contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        if not connection.execute(_HAS_VERSION, (VERSION_TABLE,)).fetchone():
            return None
        found = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608
        return found and str(found[0])


async def upgrade(store: Database) -> Upgrade:
    """Bring a store to this version; one that is there already stays as it is."""
    if store.path is None:
        return await _migrate(store, None)
    # First of all: beside a file that is no database, or a newer store, not even the lock is made.
    _refuse_newer(store, await asyncio.to_thread(_revision_in, store.path, store.shown))
    with contextlib.ExitStack() as held:
        await asyncio.to_thread(held.enter_context, sqlite_lock(store.path))
        async with store.reading() as connection:
            before = await _revision(connection)
            empty = not await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        if before == REVISION:
            return Upgrade(before, before, None)
        _refuse_newer(store, before)
        backup = None if empty else await asyncio.to_thread(_copy, store, before)
        return await _migrate(store, backup)


async def _require_current(store: Database) -> None:
    async with store.reading() as connection:
        found = await _revision(connection)
    _refuse_newer(store, found)
    if found is None:
        raise SchemaOlder(f"{store.shown}: has no tables of Redrive yet")
    if found != REVISION:
        raise SchemaOlder(
            f"{store.shown}: has schema {found}, and this version of Redrive needs {REVISION}"
        )


def _refuse_newer(store: Database, found: str | None) -> None:
    if found is not None and (not found.isdecimal() or int(found) > int(REVISION)):
        raise SchemaNewer(
            f"{store.shown}: has schema {found}, and this version of Redrive knows {REVISION}"
        )


async def _migrate(store: Database, backup: Path | None) -> Upgrade:
    async with store.writing() as connection:
        if not store.is_sqlite:
            await connection.execute(
                text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK}
            )
        before = await _revision(connection)
        _refuse_newer(store, before)
        if before != REVISION:
            async with _alembic_alone():
                await connection.run_sync(_run_alembic)
    return Upgrade(before, REVISION, backup)


async def _revision(connection: AsyncConnection) -> str | None:
    if not await connection.run_sync(lambda sync: inspect(sync).has_table(VERSION_TABLE)):
        return None
    found = await connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608
    return found.scalar_one_or_none()


def _alembic_alone() -> asyncio.Lock:
    """Alembic's `op` and `context` are one a process: two databases at once would mix them up."""
    return _ALEMBIC.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def _run_alembic(connection: Connection) -> None:
    # Only here: it is slow to import, and most starts find nothing to upgrade.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util.exc import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "redrive.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(f"the upgrade failed, and nothing was changed: {error}") from error


def _copy(store: Database, before: str | None) -> Path:
    """A copy beside the file, by SQLite itself: what is still in the WAL belongs to it."""
    assert store.path is not None
    copy = store.path.with_name(f"{store.path.name}.before-{REVISION}-from-{before or 'none'}")
    with translated(store.shown):
        copy.unlink(missing_ok=True)
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with (
            contextlib.closing(sqlite3.connect(store.path)) as source,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    return copy
