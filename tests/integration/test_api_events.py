"""Live events: what any process changes, what was missed, and clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive.domain.access import Role
from redrive.server.live import Listener, Place, Told, read_place
from tests.services.eventually import DEADLINE
from tests.services.letters import failed, letter_store
from tests.services.plugin import Vhost
from tests.services.serving import V1, Server, serving, settings_for


class Stream:
    """The events of one client."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.place = ""

    async def next(self) -> tuple[str, Any]:
        event: dict[str, str] = {}
        async for line in self._lines:
            if not line and "event" in event:
                self.place = event["id"]
                return event["event"], json.loads(event["data"])
            name, _, value = line.partition(": ")
            event[name] = value
        raise AssertionError("the stream has ended")

    async def until(self, name: str, **values: Any) -> Any:
        """The data of the next event of that name with these values."""
        async with asyncio.timeout(DEADLINE):
            while True:
                found, data = await self.next()
                if found == name and all(data.get(key) == each for key, each in values.items()):
                    return data

    async def both(self, *wanted: Callable[[str, Any], bool]) -> None:
        """Read on until every one of these has come, in whatever order."""
        missing = list(wanted)
        async with asyncio.timeout(DEADLINE):
            while missing:
                found = await self.next()
                missing = [each for each in missing if not each(*found)]


@asynccontextmanager
async def streaming(server: Server, since: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if since is None else {"Last-Event-ID": since}
    async with (
        server.client() as client,
        client.stream("GET", f"{V1}/events", headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer.aiter_lines())


async def test_what_other_processes_change_is_told(server_on_each: Server) -> None:
    # Another store on the same database is what another process has.
    async with (
        letter_store(server_on_each.settings.store.url.reveal()) as other,
        streaming(server_on_each) as stream,
    ):
        first = await stream.until("stats")
        assert first["received"] == 0
        (one,) = await other.letters.add([failed("x")])
        # Of one look, or of two: each event tells of the moment it was read.
        await stream.both(
            lambda name, data: name == "letters" and one.letter.id in data["ids"],
            lambda name, data: name == "stats" and data["states"]["dlq_pending"] == 1,
        )
        await other.decisions.discard([one.letter.id], "t")
        await stream.both(
            lambda name, data: name == "letters" and data["ids"] == [one.letter.id],
            lambda name, data: name == "stats" and data["states"]["dlq_archived"] == 1,
        )


async def test_what_people_change_and_replays_are_told(server: Server) -> None:
    (one,) = await server.add(failed("x"))
    async with streaming(server) as stream, server.client() as client:
        await stream.until("stats")
        await client.put(f"{V1}/policies", json={"name": "a", "maxRetries": 1})
        assert (await stream.until("changed"))["resources"] == ["policies"]
        sent = {"filter": {"id": [one]}, "count": 1, "ignoreHealth": True}
        made = (await client.post(f"{V1}/replays", json=sent)).json()
        assert (await stream.until("replay", id=made["id"]))["state"] == "running"
        await client.post(f"{V1}/replays/{made['id']}/cancel", json={})
        await stream.until("replay", id=made["id"], state="cancelled")


async def test_a_change_is_told_when_it_is_made_and_not_only_when_it_is_begun(
    server: Server,
) -> None:
    log, begun = server.store.audit_log, ("t", Role.ADMIN, "", "breakers.force", "{}")
    before = await log.begin(*begun)
    async with streaming(server) as stream:
        await stream.until("stats")
        number = await log.begin("t", Role.ADMIN, "", "policies.set", "{}")
        assert (await stream.until("changed"))["resources"] == ["policies"]
        await log.end(number, 200, "{}")
        assert (await stream.until("changed"))["resources"] == ["policies"]
        place = stream.place
        await log.end(before, 200, "{}")
        assert (await stream.until("changed"))["resources"] == ["breakers"]
    # Whoever goes on from before the outcome hears of it too, whoever they ask.
    async with serving(server.settings) as another, streaming(another, place) as stream:
        assert "breakers" in (await stream.until("changed"))["resources"]


async def test_nothing_is_missed_between_catching_up_and_listening(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    eyes = server.app.api.state.live._eyes  # to stop it where the moment is
    catch_up = eyes.catch_up
    async with streaming(server) as first:
        await first.until("stats")
        place, found = first.place, ""

        async def and_then_something_happens(since: str | None) -> list[Told]:
            nonlocal found
            told: list[Told] = await catch_up(since)
            (found,) = await server.add(failed("in between"))
            while found not in (await first.until("letters"))["ids"]:
                pass
            return told

        monkeypatch.setattr(eyes, "catch_up", and_then_something_happens)
        async with streaming(server, place) as second:
            name, _ = await second.next()
            assert name == "stats"
            while found not in (await second.until("letters"))["ids"]:
                pass


async def test_who_listens_reads_everything_again_after_nobody_has_looked_for_long(
    server: Server,
) -> None:
    live = server.app.api.state.live
    async with streaming(server) as first:
        await first.until("stats")
        live._watching.cancel()  # as a store that does not answer does
        live._eyes._looked = float("-inf")
        async with streaming(server) as second:
            await second.until("stats")
            await first.until("resync")


async def test_after_a_look_has_failed_everything_is_read_again(
    vhost: Vhost, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db")

    def rename(table: str, name: str) -> None:
        with contextlib.closing(sqlite3.connect(tmp_path / "redrive.db")) as connection:
            connection.execute(f"ALTER TABLE {table} RENAME TO {name}")

    async with serving(settings) as server, streaming(server) as stream:
        await stream.until("stats")
        eyes = server.app.api.state.live._eyes
        await asyncio.to_thread(rename, "redrive_audit", "elsewhere")
        async with asyncio.timeout(DEADLINE):
            while not eyes._failed:  # noqa: ASYNC110  (nobody is told of it)
                await asyncio.sleep(0.05)
        await asyncio.to_thread(rename, "elsewhere", "redrive_audit")
        await stream.until("resync")


async def test_who_comes_back_is_told_what_happened_meanwhile_by_any_process(
    server: Server,
) -> None:
    one, two = await server.add(failed("x"), failed("y"))
    async with streaming(server) as stream:
        await stream.until("stats")
        place = stream.place
    await server.store.decisions.discard([one], "t")
    await server.store.decisions.discard([two], "t")
    async with serving(server.settings) as another, streaming(another, place) as stream:
        assert (await stream.until("letters"))["ids"] == [two, one]


@pytest.mark.parametrize("place", ["nonsense", "1.2", "-1.0.0", "9" * 30 + ".0.0", "1.1.1e9"])
async def test_a_place_that_is_none_means_to_read_everything_again(
    server: Server, place: str
) -> None:
    async with streaming(server, place) as stream:
        assert (await stream.until("resync"))["reason"] == "unknown place"
        await stream.until("stats")


async def test_a_client_that_does_not_read_loses_its_queue_and_is_told_so() -> None:
    listener = Listener()
    place = read_place("1.2.3")
    assert place is not None
    for number in range(250):
        listener.tell(Told("letters", {"ids": [str(number)]}, place))
    assert listener.queue.qsize() <= 100
    names = []
    while not listener.queue.empty():
        told = listener.queue.get_nowait()
        assert told is not None
        names.append(told.name)
    assert names.count("resync") == 1
    assert names[0] == "resync"


def test_a_place_is_read_as_it_was_written() -> None:
    place = read_place("12.34.1770811207123")
    assert isinstance(place, Place)
    assert str(place) == "12.34.1770811207123"


async def test_nobody_asks_the_store_while_nobody_listens(server: Server) -> None:
    async with streaming(server) as stream:
        await stream.until("stats")
    live = server.app.api.state.live
    async with asyncio.timeout(DEADLINE):
        while live.is_looking:  # noqa: ASYNC110  (it ends by itself, and tells nobody)
            await asyncio.sleep(0.05)


async def test_fifty_clients_are_told_by_one_look(server: Server) -> None:
    async with server.client(limits=httpx.Limits(max_connections=100)) as client:

        async def listens() -> None:
            async with client.stream("GET", f"{V1}/events") as answer:
                stream = Stream(answer.aiter_lines())
                await stream.until("stats")
                ready.release()
                await stream.until("stats", received=1)

        ready = asyncio.Semaphore(0)
        listening = [asyncio.create_task(listens()) for _ in range(50)]
        async with asyncio.timeout(DEADLINE):
            for _ in listening:
                await ready.acquire()
            await server.add(failed("x"))
            await asyncio.gather(*listening)
