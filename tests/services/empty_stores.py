"""Stores with their tables and nothing in them, made in milliseconds.

An upgrade from nothing takes a third of a second, and a thousand tests want a store. So each run
makes one of each engine: SQLite's is copied, and PostgreSQL's is emptied for the next test. The
tests of upgrades themselves make their own.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from redrive.store.engine import open_database
from redrive.store.schema import VERSION_TABLE
from redrive.store.upgrade import upgrade


async def prepare(url: str) -> None:
    """Give a store its tables, where it has none."""
    if url.startswith("sqlite"):
        await asyncio.to_thread(_copy_to, Path(make_url(url).database or ""))
    await _upgraded(url)


def with_tables(url: str) -> str:
    """The same for a fixture, whose test's loop may run already."""
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(asyncio.run, _upgraded(url)).result()
    return url


def empty(url: str) -> None:
    """Delete every row of a PostgreSQL store, and begin to count from one again."""
    with psycopg.connect(url) as connection:
        connection.execute("SET lock_timeout = '30s'")
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> %s",
            [VERSION_TABLE],
        ).fetchall()
        sequences = connection.execute(
            "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"
        ).fetchall()
        statements = [
            sql.SQL("SET session_replication_role = replica"),  # in any order
            *(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)) for (name,) in tables),
            *(sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(n)) for (n,) in sequences),
        ]
        connection.execute(sql.SQL("; ").join(statements))


def _copy_to(path: Path) -> None:
    if not path.exists():
        path.write_bytes(_sqlite_file())
        path.chmod(0o600)


@functools.cache
def _sqlite_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="redrive-store-") as folder:
        path = Path(folder) / "redrive.db"
        asyncio.run(_upgraded(f"sqlite:///{path}"))
        return path.read_bytes()


async def _upgraded(url: str) -> None:
    database = open_database(url, ours=True)
    try:
        await upgrade(database)
    finally:
        await database.close()
