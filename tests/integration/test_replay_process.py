"""`redrive replay` as a process of its own: killed, stopped, cut off, held back; and the script."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.broker.processes import GuardedProcess
from redrive.domain.filters import Filters
from redrive.domain.ids import letter_id
from redrive.domain.replay import ReplayOrder
from redrive.store.store import Store
from tests.acceptance.command_line import REDRIVE, CommandLine
from tests.services.eventually import eventually_async
from tests.services.letters import arrival, died_in
from tests.services.moving import declare, holds
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import Proxy
from tests.services.replaying import UNATTENDED, Replaying, dead, of_type, replaying

SCRIPT = Path(__file__).parents[2] / "replay-dlq.sh"
LETTERS, BATCH = 500, 10
SHORT_LEASE = '[worker]\nlease = "2s"\n'
LONG_LEASE = '[worker]\nlease = "60s"\n'


@pytest.fixture
def site(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Replaying:
    asyncio.run(declare(vhost.url, "orders", "classic"))
    return replaying(vhost, tmp_path, capsys, SHORT_LEASE)


class Running:
    """A `redrive replay` of many letters, behind a slow network."""

    def __init__(self, site: Replaying, process: GuardedProcess, log: Path, proxy: Proxy) -> None:
        self.site = site
        self.process = process
        self.log = log
        self.proxy = proxy

    async def is_in_the_middle(self) -> None:
        """Wait until a part of the letters is sent."""
        await holds(self.site.vhost.url, "orders", 5 * BATCH)
        assert self.process.alive, self.log.read_text()

    async def ends(self) -> int:
        await eventually_async(lambda: not self.process.alive)
        assert self.process.exit_code is not None
        return self.process.exit_code


@asynccontextmanager
async def many(
    site: Replaying, proxy: NewProxy, *, pause: str = "0", more: str = SHORT_LEASE
) -> AsyncIterator[Running]:
    numbers = [dead(str(number)) for number in range(LETTERS)]
    await asyncio.to_thread(site.add, *numbers)
    between = await proxy("127.0.0.1", site.vhost.node.port)
    between.delay(0.01)
    line = site.command_line(between.through(site.vhost.url), more)
    words = ("--queue", "orders", "--batch-size", str(BATCH), "--pause", pause, *UNATTENDED)
    process = line.start("replay", *words)
    try:
        yield Running(site, process, line.log, between)
    finally:
        process.kill()


async def only_job(line: CommandLine) -> dict[str, Any]:
    listed = json.loads(await line.done("replays", "list", "--output", "json"))
    (job,) = listed["items"]
    return dict(job)


async def shown(line: CommandLine, job: str) -> dict[str, Any]:
    return dict(json.loads(await line.done("replays", "show", job, "--output", "json")))


def once_each(taken: Sequence[str]) -> set[str]:
    assert len(taken) == len(set(taken)), "something was sent twice"
    assert set(taken) <= {str(number) for number in range(LETTERS)}
    return set(taken)


async def test_a_replay_that_is_killed_goes_on_where_it_was_and_sends_nothing_twice(
    site: Replaying, proxy: NewProxy
) -> None:
    async with many(site, proxy) as running:
        await running.is_in_the_middle()
        await asyncio.to_thread(running.process.kill)
        line = site.command_line(more=SHORT_LEASE)
        job = await only_job(line)
        assert job["state"] == "running"
        ended = await asyncio.to_thread(line.run, "replays", "resume", job["id"], *UNATTENDED)
        report = await shown(line, job["id"])
        sent = once_each(await asyncio.to_thread(site.taken))
        assert (report["state"], report["left"]) == ("done", 0)
        doubtful = report["sending"] + report["inDoubt"]
        assert report["sent"] + doubtful == LETTERS
        assert doubtful <= BATCH
        assert report["sent"] <= len(sent)
        assert ended.returncode == (1 if doubtful else 0)


async def test_sigterm_finishes_the_batch_in_hand_and_pauses_the_job(
    site: Replaying, proxy: NewProxy
) -> None:
    async with many(site, proxy) as running:
        await running.is_in_the_middle()
        running.process.send(signal.SIGTERM)
        assert await running.ends() == 130, running.log.read_text()
        line = site.command_line(more=SHORT_LEASE)
        job = await only_job(line)
        # Without pauses, a batch goes in halves.
        assert (job["state"], job["position"] % (BATCH // 2)) == ("paused", 0)
        said = running.log.read_text()
        assert f"go on with 'redrive replays resume {job['id']}'" in said
        ended = await asyncio.to_thread(line.run, "replays", "resume", job["id"], *UNATTENDED)
        assert ended.returncode == 0, ended.stderr
        assert len(once_each(await asyncio.to_thread(site.taken))) == LETTERS


async def test_a_lost_connection_is_waited_for_and_the_job_goes_on(
    site: Replaying, proxy: NewProxy
) -> None:
    async with many(site, proxy) as running:
        await running.is_in_the_middle()
        running.proxy.cut()
        code = await running.ends()
        assert "redrive: waits: " in running.log.read_text()
        line = site.command_line(more=SHORT_LEASE)
        report = await shown(line, (await only_job(line))["id"])
        sent = once_each(await asyncio.to_thread(site.taken))
        assert report["sent"] + report["inDoubt"] == LETTERS
        assert report["inDoubt"] <= BATCH
        assert report["sent"] <= len(sent)
        assert code == (1 if report["inDoubt"] else 0)


async def test_a_job_that_is_paused_by_somebody_else_ends_its_command(
    site: Replaying, proxy: NewProxy
) -> None:
    async with many(site, proxy, pause="1s") as running:
        await running.is_in_the_middle()
        line = site.command_line(more=SHORT_LEASE)
        job = (await only_job(line))["id"]
        await line.done("replays", "pause", job, "--reason", "too many at once")
        assert await running.ends() == 1
        assert "paused: too many at once" in running.log.read_text()


async def test_a_running_job_is_not_taken_over_while_its_process_lives(
    site: Replaying, proxy: NewProxy
) -> None:
    async with many(site, proxy, pause="1s", more=LONG_LEASE) as running:
        await running.is_in_the_middle()
        line = site.command_line(more=LONG_LEASE)
        job = (await only_job(line))["id"]
        ended = await asyncio.to_thread(line.run, "replays", "resume", job, *UNATTENDED)
        assert ended.returncode == 2
        assert "is being run by" in ended.stderr
        assert running.process.alive


def test_a_job_whose_process_died_is_taken_over_when_its_lease_has_ended(site: Replaying) -> None:
    site.add(dead("a"))
    site.redrive.settings = site.redrive.settings.replace('"2s"', '"5s"')
    order = ReplayOrder(actor="ann", described="all")
    job = letter_id(datetime.now(UTC), 7)

    async def leave(store: Store) -> None:
        made = await store.replays.create(
            job, site.vhost.name, Filters(), order, worker="a process that died"
        )
        assert made is not None

    site.with_store(leave)
    ran = site("replays", "resume", job)
    assert ran.code == 0, ran.err
    assert "a process that died has run it until now: waits 5s for a sign of life" in ran.err
    assert site.taken() == ["a"]


async def test_a_replay_waits_while_the_breaker_of_its_destination_is_open(
    site: Replaying,
) -> None:
    line = site.command_line(more='[worker]\nlease = "5s"\n')  # it looks every 1.7 s then
    await asyncio.to_thread(site.add, dead("a"))
    await line.done("breakers", "force", "orders", "open")
    process = line.start("replay", "--queue", "orders", *UNATTENDED)
    try:
        job = ""

        async def waits() -> bool:
            assert process.alive, line.log.read_text()
            return "the breaker of orders is open" in line.log.read_text()

        await eventually_async(waits)
        job = (await only_job(line))["id"]
        assert "the breaker of orders is open" in await line.done("replays", "show", job)
        assert await asyncio.to_thread(site.taken) == []
        await asyncio.sleep(4)
        (told,) = [each for each in line.log.read_text().splitlines() if "waits" in each]
        assert "waits at 0 of 1: the breaker of orders is open; it is forced" in told
        assert "'redrive breakers release orders'" in told
        assert f"'redrive replays pause {job}'" in told
        await line.done("breakers", "release", "orders")
        await eventually_async(lambda: not process.alive)
        assert process.exit_code == 0, line.log.read_text()
    finally:
        process.kill()
    assert await asyncio.to_thread(site.taken) == ["a"]


# The script


def script(site: Replaying, *words: str) -> subprocess.CompletedProcess[str]:
    """The script, with settings from `redrive.toml` in the folder where it is started."""
    (site.folder / "redrive.toml").write_text(site.redrive.settings)
    environment = {"PATH": os.environ["PATH"], "HOME": str(site.folder), "REDRIVE": str(REDRIVE)}
    return subprocess.run(
        [SCRIPT, *words],
        cwd=site.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_script_replays_the_errors_of_a_day(site: Replaying) -> None:
    within, after = timedelta(hours=-20), timedelta(0)
    site.add(
        dead("a", put=of_type("TIMEOUT_ERROR"), at=within),
        dead("b", put=of_type("RATE_LIMIT_ERROR"), at=within),
        dead("c", put=of_type("TIMEOUT_ERROR"), at=after),
    )
    ran = script(
        site,
        *("--error-type", "TIMEOUT_ERROR"),
        *("--start-date", "2026-02-10T00:00:00Z", "--end-date", "2026-02-11T00:00:00Z"),
        *("--batch-size", "100"),
        *UNATTENDED,
    )
    assert ran.returncode == 0, ran.stderr
    assert site.taken() == ["a"]


@pytest.mark.parametrize(
    "dry_run", [["--dry-run", "true"], ["--dry-run"], ["--dry-run=true"]], ids=" ".join
)
def test_the_script_previews(site: Replaying, dry_run: list[str]) -> None:
    site.add(dead("a", put=of_type("RATE_LIMIT_ERROR")))
    ran = script(site, "--error-type", "RATE_LIMIT_ERROR", *dry_run)
    assert ran.returncode == 0, ran.stderr
    assert "queue:orders" in ran.stdout
    assert site.taken() == []


def test_the_script_sends_when_a_dry_run_is_denied(site: Replaying) -> None:
    site.add(dead("a", put=of_type("an error, with spaces")))
    ran = script(site, "--dry-run", "false", "--error-type", "an error, with spaces", *UNATTENDED)
    assert ran.returncode == 0, ran.stderr
    assert site.taken() == ["a"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dry-run", "maybe"], "--dry-run: expected true or false, got 'maybe'"),
        (["--dry-run=1"], "--dry-run: expected true or false, got '1'"),
        (["--error-type"], "--error-type: expected a value"),
        (["--error-type", "X", "--batch-size", "lots"], "--batch-size"),
        (["--error-type", "X", "--speed", "9"], "--speed"),
    ],
    ids=["maybe", "1", "no value", "batch size", "unknown flag"],
)
def test_the_script_says_what_is_wrong(site: Replaying, words: list[str], says: str) -> None:
    site.add(arrival(b"a", headers=died_in("orders")))
    ran = script(site, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert site.taken() == []
