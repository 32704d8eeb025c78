"""Searches that take long, on PostgreSQL: they leave the rest of the API alone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.services.eventually import eventually_async
from tests.services.letters import failed
from tests.services.plugin import Vhost
from tests.services.serving import V1, Server, serving, settings_for

SEARCH = {"filter": {"search": "nowhere"}}
SEARCHES: dict[str, Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]] = {
    "a list": lambda client: client.get(f"{V1}/letters?search=nowhere"),
    "the preview of a replay": lambda client: client.post(f"{V1}/replays/preview", json=SEARCH),
    "the dry run of an edit": lambda client: client.post(
        f"{V1}/letters/edit", json=SEARCH | {"removeHeaders": ["x"], "dryRun": True}
    ),
}
MANY = 30
"""More than there are connections for."""


@pytest.fixture
async def server(vhost: Vhost, database: str, tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(settings_for(tmp_path, vhost.url, database)) as opened:
        await opened.add(failed("Order 7 not found"))
        yield opened


@asynccontextmanager
async def endless_searches(database: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """While nobody can read bodies, a search does not end."""
    async with (
        await psycopg.AsyncConnection.connect(database) as holding,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as looking,
    ):
        await holding.execute("LOCK TABLE redrive_envelope IN ACCESS EXCLUSIVE MODE")
        yield looking


async def under_way(looking: psycopg.AsyncConnection) -> int:
    """How many searches PostgreSQL has at the moment."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE '%redrive_letter%'"
    )
    row = await (await looking.execute(query)).fetchone()
    return 0 if row is None else int(row[0])


# The driver warns of a cursor that was being opened when it was given up: gone with its connection.
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
@pytest.mark.parametrize("kind", SEARCHES)
async def test_many_searches_at_once_leave_connections_for_everybody_else(
    server: Server, database: str, kind: str
) -> None:
    limits = httpx.Limits(max_connections=None)
    async with endless_searches(database) as looking, server.client(limits=limits) as client:
        searching = [asyncio.ensure_future(SEARCHES[kind](client)) for _ in range(MANY)]

        async def begun() -> bool:
            return await under_way(looking) > 0

        await eventually_async(begun, what="searches are under way")
        listed = await client.get(f"{V1}/letters")
        assert len(listed.json()["items"]) == 1
        assert await under_way(looking) <= 2
        for each in searching:
            each.cancel()
        await asyncio.gather(*searching, return_exceptions=True)

        async def ended() -> bool:
            return await under_way(looking) == 0

        await eventually_async(ended, what="searches that nobody waits for are given up")
    gc.collect()  # here, where the warning is known


@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
async def test_an_edit_that_was_given_up_while_it_searched_is_carried_out_when_it_is_sent_again(
    server: Server, database: str
) -> None:
    edit = {"filter": {"search": "Order"}, "count": 1, "setHeaders": {"mended": "yes"}}
    key = {"Idempotency-Key": "given-up"}
    async with server.client() as client:
        async with endless_searches(database) as looking:
            asked = asyncio.create_task(client.post(f"{V1}/letters/edit", json=edit, headers=key))

            async def begun() -> bool:
                return await under_way(looking) == 1

            async def ended() -> bool:
                return await under_way(looking) == 0

            await eventually_async(begun, what="the search is under way")
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            await eventually_async(ended, what="the search is given up")

        async def answered() -> httpx.Response | None:
            again = await client.post(f"{V1}/letters/edit", json=edit, headers=key)
            return None if again.status_code == 409 else again  # it is being given up yet

        again = await eventually_async(answered, what="the edit is not under way any more")
    assert again is not None
    assert (again.status_code, again.json().get("edited")) == (200, 1)
    gc.collect()  # here, where the warning is known


async def test_a_search_that_was_waited_for_is_answered(server: Server, database: str) -> None:
    async with server.client() as client:
        async with endless_searches(database) as looking:
            asked = asyncio.create_task(client.get(f"{V1}/letters/count?search=Order"))

            async def begun() -> bool:
                return await under_way(looking) == 1

            await eventually_async(begun, what="the search is under way")
        assert (await asked).json() == {"letters": 1}
