"""Changes with a key that fail on their way in a real store: done once, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.services.failing import failing
from tests.services.letters import failed
from tests.services.serving import V1, Server

KEY = {"Idempotency-Key": "cut-off"}
REPLAY = {"filter": {}, "count": 1, "ignoreHealth": True}


@pytest.fixture
def server(server_on_each: Server) -> Server:
    """Each engine fails in its own way."""
    return server_on_each


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client(headers={"Origin": server.address}) as opened:
        yield opened


async def replays_of(server: Server) -> int:
    return len((await server.store.replays.page()).items)


def kind_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("type", "").removeprefix("urn:redrive:problem:")


async def test_a_change_whose_answer_could_not_be_kept_is_answered_and_not_made_again(
    server: Server, client: httpx.AsyncClient
) -> None:
    await server.add(failed("x"))
    async with failing(server.settings.store.url.reveal(), "UPDATE", "redrive_request"):
        made = await client.post(f"{V1}/replays", json=REPLAY, headers=KEY)
    assert made.status_code == 201
    again = await client.post(f"{V1}/replays", json=REPLAY, headers=KEY)
    assert kind_of(again) == (409, "under-way")
    assert "look at what it did" in again.json()["remedy"]
    assert await replays_of(server) == 1


async def test_a_change_whose_outcome_the_log_does_not_take_is_answered_as_done(
    server: Server, client: httpx.AsyncClient
) -> None:
    await server.add(failed("x"))
    async with failing(server.settings.store.url.reveal(), "UPDATE", "redrive_audit"):
        made = await client.post(f"{V1}/replays", json=REPLAY, headers=KEY)
    assert made.status_code == 201
    again = await client.post(f"{V1}/replays", json=REPLAY, headers=KEY)
    assert (again.status_code, again.json()) == (201, made.json())
    assert await replays_of(server) == 1
    (entry,) = (await client.get(f"{V1}/audit")).json()["items"]
    assert (entry["action"], entry["outcome"]) == ("replays.create", None)


async def test_a_change_that_failed_after_it_began_stays_under_way(
    server: Server, client: httpx.AsyncClient
) -> None:
    ids = await server.add(failed("x"))
    sent = {"ids": ids}
    async with failing(server.settings.store.url.reveal(), "UPDATE", "redrive_letter"):
        lost = await client.post(f"{V1}/letters/discard", json=sent, headers=KEY)
    assert kind_of(lost) == (503, "store-unavailable")
    again = await client.post(f"{V1}/letters/discard", json=sent, headers=KEY)
    assert kind_of(again) == (409, "under-way")
    new = await client.post(
        f"{V1}/letters/discard", json=sent, headers={"Idempotency-Key": "another"}
    )
    assert new.json()["discarded"] == 1


async def test_a_change_that_failed_before_it_began_may_be_sent_again_with_its_key(
    server: Server, client: httpx.AsyncClient
) -> None:
    await server.add(failed("x"))
    async with failing(server.settings.store.url.reveal(), "INSERT", "redrive_audit"):
        lost = await client.post(f"{V1}/replays", json=REPLAY, headers=KEY)
    assert kind_of(lost) == (503, "store-unavailable")
    again = await client.post(f"{V1}/replays", json=REPLAY, headers=KEY)
    assert again.status_code == 201
