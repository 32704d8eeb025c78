"""How many connections a database takes: as many as its tightest limit leaves."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from redrive.store.capacity import Capacity
from redrive.store.engine import open_database
from redrive.store.store import Store


def as_user(url: str, user: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}").geturl()


@asynccontextmanager
async def a_user(url: str, limit: str = "") -> AsyncIterator[str]:
    """The URL for a new user without any rights, such as are limited."""
    name = f"user_{secrets.token_hex(6)}"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        made = sql.SQL("CREATE USER {} " + limit).format(sql.Identifier(name))
        await connection.execute(made)
        try:
            yield as_user(url, name)
        finally:
            await connection.execute(sql.SQL("DROP USER {}").format(sql.Identifier(name)))


@asynccontextmanager
async def capacity(url: str) -> AsyncIterator[Capacity]:
    """Asks over one connection: the server still counts one that was just closed."""
    database = open_database(url, ours=True)
    try:
        yield Capacity(database)
    finally:
        await database.close()


async def spare(url: str) -> int | None:
    async with capacity(url) as asked:
        return await asked.spare_connections()


async def test_only_postgresql_limits_connections(store: Store) -> None:
    limited = await Capacity(store.database).spare_connections() is not None
    assert limited is not store.database.is_sqlite


async def test_the_server_spares_no_more_than_it_has_without_the_reserve(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        row = await (
            await connection.execute(
                "SELECT current_setting('max_connections')::int"
                " - current_setting('superuser_reserved_connections')::int"
            )
        ).fetchone()
    assert row is not None
    found = await spare(database)
    assert found is not None
    assert 0 < found < row[0]


async def test_of_a_user_with_a_limit_each_connection_leaves_one_less(database: str) -> None:
    async with (
        a_user(database, "CONNECTION LIMIT 4") as url,
        capacity(url) as asked,
        AsyncExitStack() as held,
    ):
        left = []
        for _ in range(3):
            left.append(await asked.spare_connections())
            await held.enter_async_context(await psycopg.AsyncConnection.connect(url))
    # The one that asks is a connection, too.
    assert left == [3, 2, 1]


async def test_of_a_database_with_a_limit_every_users_connections_count(database: str) -> None:
    name = urlsplit(database).path.removeprefix("/")
    async with (
        await psycopg.AsyncConnection.connect(database, autocommit=True) as other,
        a_user(database) as url,
    ):
        limit = sql.SQL("ALTER DATABASE {} CONNECTION LIMIT 10").format(sql.Identifier(name))
        await other.execute(limit)
        # This test's, that of the user's maker, and the one that asks.
        assert await spare(url) == 7


async def test_a_superuser_is_not_limited_by_the_database(database: str) -> None:
    name = urlsplit(database).path.removeprefix("/")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        limit = sql.SQL("ALTER DATABASE {} CONNECTION LIMIT 2").format(sql.Identifier(name))
        await connection.execute(limit)
        found = await spare(database)
    assert found is not None
    assert found > 2


@pytest.mark.parametrize("limit", ["", "CONNECTION LIMIT 50"])
async def test_a_user_without_rights_may_ask(database: str, limit: str) -> None:
    async with a_user(database, limit) as url:
        assert await spare(url)
