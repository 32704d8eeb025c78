"""Secrets of `redrive run`: its logs in both forms, the API, the audit log and the store.

The process has planted secrets in every place that takes one, people log in with planted passwords
and programs with tokens. Sinks refuse, the broker throws it out, and nothing of a secret may be
seen anywhere but in the settings file.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from redrive.broker.processes import free_ports
from redrive.server.authentication import COOKIE
from tests.acceptance.command_line import REDRIVE, CommandLine
from tests.services.eventually import eventually
from tests.services.letters import failed, letter_store
from tests.services.planting import Garden, Planted, sinks
from tests.services.plugin import Vhost
from tests.services.receiving import Receiver

V1 = "/api/v1"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def garden(vhost: Vhost) -> Iterator[Garden]:
    """Secrets, and the user `mover` of the broker who has one of them."""
    garden = Garden()
    user = {"password": garden["broker"].value, "tags": "management"}
    vhost.node.api("PUT", "users/mover", user)
    vhost.node.api("PUT", f"permissions/{quote(vhost.name, safe='')}/mover", EVERYTHING)
    yield garden
    vhost.node.api("DELETE", "users/mover")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver(status=403)
    receiver.up()
    yield receiver
    receiver.down()


@pytest.fixture
def redrive(vhost: Vhost, garden: Garden, receiver: Receiver, tmp_path: Path) -> CommandLine:
    (nobody,) = free_ports(1)
    host = vhost.management_url.removeprefix("http://")
    redrive = CommandLine(
        tmp_path,
        f"amqp://mover:{garden['broker'].in_url}@{vhost.url.rpartition('@')[2]}",
        ("100ms",),
        f"http://mover:{garden['broker'].in_url}@{host}",
        more="[server]\nport = 0\naudit_views = true\n"
        + sinks(garden, f"127.0.0.1:{receiver.port}", f"127.0.0.1:{nobody}"),
    )
    redrive.write_settings()
    return redrive


async def everything_the_api_tells(client: httpx.AsyncClient, letter: str) -> AsyncIterator[str]:
    """What every operation that only looks is answered with, and the pages beside the API."""
    document = (await client.get("/openapi.json")).json()
    group = (await client.get(f"{V1}/letters/{letter}")).json()["fingerprint"]
    replay = (await client.get(f"{V1}/replays")).json()["items"][0]["id"]
    names = {"letter_id": letter, "fingerprint": group, "replay_id": replay}
    for path, operations in document["paths"].items():
        if "get" not in operations or path == f"{V1}/events":
            continue
        needed = [each for each in operations["get"].get("parameters", []) if each["required"]]
        asked = {"id": letter, "group": group}
        which = {each["name"]: asked[each["name"]] for each in needed if each["in"] == "query"}
        answer = await client.get(path.format_map(names), params=which)
        assert answer.status_code in (200, 204, 404, 503), (path, answer.text)
        yield answer.text + json.dumps(dict(answer.headers))


async def log_in(client: httpx.AsyncClient, name: str, password: str) -> httpx.Response:
    return await client.post(f"{V1}/session", json={"name": name, "password": password})


async def what_logins_tell(client: httpx.AsyncClient, garden: Garden) -> AsyncIterator[str]:
    """Somebody is made a user, logs in with a wrong password and a right one, and out."""
    password = garden["ann's password"].value
    ann = {"name": "ann", "role": "admin", "password": password}
    made = await client.put(f"{V1}/users", json=ann)
    assert made.status_code == 200, made.text
    yield made.text
    wrong = await log_in(client, "ann", garden["a wrong password"].value)
    assert wrong.status_code == 401
    yield wrong.text
    session = await log_in(client, "ann", password)
    garden.planted["a session"] = as_planted("a session", session.cookies[COOKIE])
    # It belongs to who is logged in; nobody else may see it.
    csrf = session.json()["csrfToken"]
    garden.planted["a CSRF token"] = as_planted("a CSRF token", csrf)
    client.cookies.clear()
    unknown = {"Authorization": f"Bearer {garden['a wrong token'].head}"}
    yield (await client.get(f"{V1}/tokens", headers=unknown)).text


def as_planted(name: str, secret: str) -> Planted:
    """A secret that Redrive made up itself."""
    return Planted(name, head=secret[:20], tail=secret[-20:])


async def test_a_running_process_shows_no_secret_to_anybody(
    redrive: CommandLine, garden: Garden, vhost: Vhost, tmp_path: Path
) -> None:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        dead = failed("no such currency")
        here = replace(
            dead,
            letter=replace(dead.letter, vhost=vhost.name),
            envelope=replace(dead.envelope, vhost=vhost.name),
        )
        (kept,) = await store.letters.add([here])
    roles = "retrier,collector,worker,janitor,server"
    async with (
        redrive.serving(roles) as (address, _),
        httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as client,
    ):
        # Until there is somebody who can log in, everybody on this machine may do everything.
        token = (await client.post(f"{V1}/tokens", json={"name": "ci", "role": "admin"})).json()
        garden.planted["a token"] = as_planted("a token", token["token"])
        client.headers["Authorization"] = f"Bearer {token['token']}"
        told = [text async for text in what_logins_tell(client, garden)]
        replay = {"filter": {"id": [kept.letter.id]}, "count": 1, "ignoreHealth": True}
        ordered = await client.post(f"{V1}/replays", json=replay)
        assert ordered.status_code == 201, ordered.text
        for sink in ("hook", "chat", "mail"):
            await redrive.has_logged("alert.sink_away", sink)
        told += [text async for text in everything_the_api_tells(client, kept.letter.id)]

        # Thrown out, it comes back with a password that is wrong by now.
        user = {"password": "changed", "tags": "management"}
        await asyncio.to_thread(vhost.node.api, "PUT", "users/mover", user)
        await asyncio.to_thread(
            vhost.node.ctl, "close_all_connections", "--vhost", vhost.name, "thrown out"
        )
        await redrive.has_logged("mover.lost", "ACCESS_REFUSED")
        told += [text async for text in everything_the_api_tells(client, kept.letter.id)]
    assert [garden.found_in(text) for text in told] == [[]] * len(told)
    # Of use only with the session, of which the store has a digest.
    del garden.planted["a CSRF token"]
    assert garden.found_in_files(tmp_path, but=frozenset({redrive.config})) == []


def test_the_log_on_a_terminal_shows_no_secret(
    redrive: CommandLine, garden: Garden, vhost: Vhost
) -> None:
    user = {"password": "changed", "tags": "management"}
    vhost.node.api("PUT", "users/mover", user)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [REDRIVE, "run", "--config", redrive.config],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=redrive.env() | {"TERM": "xterm", "COLUMNS": "200"},
        cwd=redrive.folder,
    )
    os.close(theirs)
    seen = bytearray()

    def read_on() -> None:
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            while True:
                try:
                    seen.extend(terminal.read(4096))
                except OSError:  # nobody writes to it any more
                    return

    reading = threading.Thread(target=read_on)
    reading.start()
    try:
        eventually(lambda: b"ACCESS_REFUSED" in seen, what="the broker's refusal")
        eventually(lambda: b"alert.sink_away" in seen, what="a sink's refusal")
    finally:
        process.terminate()
        process.wait(60)
        reading.join(60)
    assert b"\x1b[" in seen, "it is the form for people"
    assert garden.found_in(bytes(seen)) == []
