"""A query of PostgreSQL that nobody waits for any more."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from redrive.errors import StoreUnreachable
from redrive.store.engine import Database, open_database
from tests.services.eventually import eventually_async

FOR_EVER = "SELECT pg_sleep(3600)"


async def ask(database: Database, asking: asyncio.Future[int]) -> None:
    """Ask what is never answered, and say by which socket."""
    async with database.reading() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        asking.set_result(driver.fileno())
        await connection.execute(text(FOR_EVER))


async def test_a_query_ends_when_nobody_is_there_for_its_answer(database: str) -> None:
    asking: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    opened = open_database(database, ours=True)
    asked = asyncio.create_task(ask(opened, asking))
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as looking:

        async def under_way() -> bool:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state = 'active' AND query = %s"
            )
            row = await (await looking.execute(query, [FOR_EVER])).fetchone()
            return row is not None and row[0] > 0

        async def ended() -> bool:
            return not await under_way()

        await eventually_async(under_way, what="the query is under way")
        with socket.socket(fileno=os.dup(await asking)) as broken:
            broken.shutdown(socket.SHUT_RDWR)
        with pytest.raises(StoreUnreachable):
            await asked
        await eventually_async(ended, what="PostgreSQL gives the query up")
    await opened.close()


@pytest.mark.parametrize("turns", range(0, 16, 3))
async def test_who_is_cancelled_again_and_again_while_they_ask_stays_cancelled(
    database: str, turns: int
) -> None:
    """As the server does to a stream whose reader has gone."""
    opened = open_database(database, ours=True)
    async with opened.reading():
        pass  # the next one finds a connection in the pool, and tries it out
    asking = asyncio.create_task(ask(opened, asyncio.get_running_loop().create_future()))
    for _ in range(turns):
        await asyncio.sleep(0)
    while not asking.done():
        asking.cancel()
        await asyncio.sleep(0)
    await opened.close()
    assert asking.cancelled(), asking.exception()
