"""`redrive run --roles server` as a process: its port, its login, its end, and any request."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx

from tests.acceptance.command_line import DRAINS_WITHIN, CommandLine
from tests.services.eventually import eventually_async
from tests.services.letters import failed, letter_store
from tests.services.moving import take_all
from tests.services.plugin import Vhost
from tests.services.retrying import declare_origin

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)
REDRIVE = (sys.executable, "-m", "redrive")
NOBODY = "amqp://guest:guest@127.0.0.1:9/"


def command_line(folder: Path, broker: str, server: str = "port = 0") -> CommandLine:
    redrive = CommandLine(folder, broker, ("100ms",), more=f"[server]\n{server}\n")
    redrive.write_settings()
    return redrive


async def test_it_ends_in_time_while_somebody_listens_to_events(tmp_path: Path) -> None:
    redrive = command_line(tmp_path, NOBODY)
    async with redrive.serving() as (address, running):
        async with (
            httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as client,
            client.stream("GET", "/api/v1/events") as events,
        ):
            lines = events.aiter_lines()
            async for line in lines:
                if line.startswith("event: stats"):
                    break
            began = time.monotonic()
            assert await asyncio.to_thread(running.process.terminate, DRAINS_WITHIN)
            assert time.monotonic() - began < DRAINS_WITHIN
        assert running.process.exit_code == 0, redrive.log.read_text()


async def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        redrive = command_line(tmp_path, NOBODY, f"port = {port}")
        ended = await asyncio.to_thread(redrive.run, "run", "--roles", "server")
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"redrive: the server cannot listen on 127.0.0.1:{port}: ")
    assert "[server] port" in last
    assert "Traceback" not in ended.stderr


async def test_reachable_from_elsewhere_it_does_not_start_unless_somebody_can_log_in(
    tmp_path: Path,
) -> None:
    redrive = command_line(tmp_path, NOBODY, 'host = "0.0.0.0"\nport = 0')
    ended = await asyncio.to_thread(redrive.run, "run", "--roles", "server")
    assert ended.returncode == 2
    assert "redrive user set" in ended.stderr.splitlines()[-1]
    secret = (await redrive.done("token", "create", "ci", "--role", "viewer")).strip()
    async with redrive.serving() as (address, _):
        port = address.rpartition(":")[2]
        base = f"http://127.0.0.1:{port}/api/v1"
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            assert (await client.get(f"{base}/letters")).status_code == 401
            allowed = {"Authorization": f"Bearer {secret}"}
            assert (await client.get(f"{base}/letters", headers=allowed)).status_code == 200
            await redrive.done("token", "create", "monitoring", "--role", "viewer")
            await redrive.done("token", "revoke", "ci")
            assert (await client.get(f"{base}/letters", headers=allowed)).status_code == 401


async def test_behind_a_proxy_it_does_not_start_unless_somebody_can_log_in(
    tmp_path: Path,
) -> None:
    redrive = command_line(tmp_path, NOBODY, 'port = 0\ntrusted_proxies = ["127.0.0.1"]')
    ended = await asyncio.to_thread(redrive.run, "run", "--roles", "server")
    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert "server.trusted_proxies" in last
    assert "redrive user set" in last
    await redrive.done("token", "create", "ci", "--role", "viewer")
    async with (
        redrive.serving() as (address, _),
        httpx.AsyncClient(trust_env=False, timeout=30) as client,
    ):
        assert (await client.get(f"{address}/api/v1/letters")).status_code == 401


async def test_a_user_logs_in_with_the_password_that_was_given_on_stdin(tmp_path: Path) -> None:
    redrive = command_line(tmp_path, NOBODY)
    made = await asyncio.to_thread(
        subprocess.run,
        [*REDRIVE, "user", "set", "ann", "--role", "operator", "--config", str(redrive.config)],
        input="correct horse\n",
        capture_output=True,
        text=True,
        env=redrive.env(),
        check=False,
    )
    assert (made.returncode, made.stdout) == (0, "added ann: operator\n"), made.stderr
    assert "ann" in await redrive.done("user", "list")
    async with (
        redrive.serving() as (address, _),
        httpx.AsyncClient(base_url=f"{address}/api/v1", trust_env=False, timeout=30) as client,
    ):
        answer = await client.post("/session", json={"name": "ann", "password": "correct horse"})
        assert (answer.status_code, answer.json()["role"]) == (200, "operator")
        refused = await asyncio.to_thread(redrive.run, "user", "delete", "ann")
        assert refused.returncode == 1
        assert "'ann' is the last who can log in" in refused.stderr
        assert "redrive user set" in refused.stderr
        await redrive.done("token", "create", "ci", "--role", "admin")
        await redrive.done("user", "delete", "ann")
        assert (await client.get("/session")).json()["name"] != "ann"


async def test_a_letter_is_fixed_and_replayed_by_the_api_and_comes_to_its_queue(
    vhost: Vhost, tmp_path: Path
) -> None:
    redrive = command_line(tmp_path, vhost.url)
    await declare_origin(vhost.url, "orders", "classic", "order.created")
    dead = failed("no such currency")
    here = replace(
        dead,
        letter=replace(dead.letter, vhost=vhost.name),
        envelope=replace(dead.envelope, vhost=vhost.name),
    )
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        (one,) = await store.letters.add([here])
    async with (
        redrive.serving("server,worker") as (address, _),
        httpx.AsyncClient(base_url=f"{address}/api/v1", trust_env=False, timeout=30) as client,
    ):
        edit = {"body": {"encoding": "utf8", "data": '{"order": 2}'}, "madeFrom": 0}
        edited = await client.post(f"/letters/{one.letter.id}/edit", json=edit)
        assert edited.json()["edited"], edited.text
        wanted = {"filter": {"id": [one.letter.id]}}
        preview = (await client.post("/replays/preview", json=wanted)).json()
        assert (preview["matched"], preview["notTaken"]) == (1, 0)
        sent = {**wanted, "count": preview["matched"], "ignoreHealth": True}
        made = await client.post("/replays", json=sent)
        assert made.status_code == 201, made.text

        async def done() -> bool:
            report = (await client.get(f"/replays/{made.json()['id']}")).json()
            return bool(report["state"] == "done" and report["sent"] == 1)

        await eventually_async(done, what="the replay is done")
        (message,) = await take_all(vhost.url, "orders")
        assert message.body == b'{"order": 2}'
        letter = (await client.get(f"/letters/{one.letter.id}")).json()
        assert (letter["status"], letter["generation"]) == ("dlq_processing", 1)
        assert "local" in [step["actor"] for step in letter["history"]]


async def test_any_request_that_can_be_made_up_is_answered_as_the_document_says(
    vhost: Vhost, tmp_path: Path
) -> None:
    redrive = command_line(tmp_path, vhost.url)
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        await store.letters.add([failed(f"number {each}") for each in range(20)])
    async with redrive.serving() as (address, _):
        done = await asyncio.to_thread(
            subprocess.run,
            [
                *(str(SCHEMATHESIS), "run", f"{address}/openapi.json"),
                *("--checks", CHECKS, "--exclude-path", "/api/v1/events"),
                *("--phases", "examples,fuzzing", "--max-examples", "5"),
                *("--seed", "20260211", "--generation-database", "none", "--workers", "2"),
                *("--max-failures", "5", "--no-color"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "Traceback" not in redrive.log.read_text()
        assert not redrive.logged("server.defect")
