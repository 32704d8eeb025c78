"""A rolling upgrade with real processes: this version and the next one, on one database.

The next version is made of this one: its schema has a table and columns more, as the rule in
docs/how-to/backup.md allows, and it knows of them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from redrive.broker.processes import GuardedProcess
from redrive.store.schema import REVISION
from tests.acceptance.command_line import ENDS_WITHIN, CommandLine
from tests.services.collecting import dead_messages, has_consumers
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.moving import declare, identities, publish, take_all
from tests.services.pages import ROOT
from tests.services.plugin import Vhost

DEAD = "dlq-queue"
NEXT = f"{int(REVISION) + 1:04}"
RUN = ("run", "--roles", "retrier,collector,worker,janitor")
MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{REVISION}"


def upgrade() -> None:
    op.add_column("redrive_letter", sa.Column("mood", sa.Text))
    op.add_column(
        "redrive_attempt", sa.Column("weight", sa.Integer, nullable=False, server_default="1")
    )
    op.create_table("redrive_mood", sa.Column("mood", sa.Text, primary_key=True))
"""


@dataclass
class Version:
    """A version of Redrive, by the folder that its package is in, and its processes."""

    name: str
    source: Path
    line: CommandLine
    processes: list[GuardedProcess] = field(default_factory=list)

    @property
    def _env(self) -> dict[str, str]:
        return {**self.line.env(), "PYTHONPATH": str(self.source)}

    def _argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "redrive", *words, "--config", str(self.line.config)]

    def start(self) -> None:
        """One more `redrive run`."""
        argv = self._argv(*RUN)
        self.processes.append(
            GuardedProcess(argv, env=self._env, cwd=self.line.folder, output=self.line.log)
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._argv(*words),
            env=self._env,
            cwd=self.line.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def done(self, *words: str) -> str:
        ran = await asyncio.to_thread(self.run, *words)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def collected(self) -> int:
        return len(self.line.logged("letter.collected"))

    async def replaced(self) -> None:
        """Stop one process in good order."""
        process = self.processes.pop(0)
        assert await asyncio.to_thread(process.terminate, ENDS_WITHIN)
        assert process.exit_code == 0, self.line.log.read_text()[-2000:]


def next_version(folder: Path) -> Path:
    """A folder with the package of the next version."""
    package = folder / "redrive"
    shutil.copytree(
        ROOT / "src" / "redrive", package, ignore=shutil.ignore_patterns("__pycache__", "console")
    )
    schema = package / "store" / "schema.py"
    text = schema.read_text(encoding="utf-8")
    assert text.count(f'REVISION: Final = "{REVISION}"') == 1
    schema.write_text(text.replace(f'Final = "{REVISION}"', f'Final = "{NEXT}"'), encoding="utf-8")
    (package / "store" / "migrations" / "versions" / f"r{NEXT}_mood.py").write_text(MIGRATION)
    return folder


def version(name: str, source: Path, vhost: Vhost, store_url: str, folder: Path) -> Version:
    line = CommandLine(folder, vhost.url, ["1s"], name=name, store_url=store_url)
    line.write_settings()
    return Version(name, source, line)


def named(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


async def roll(old: Version, new: Version, vhost: Vhost, store_url: str) -> None:
    """From two processes of the old version to two of the new one, with messages all the time."""
    await old.done("db", "upgrade")
    await old.done("topology", "apply")
    sent: list[str] = []

    async def more(name: str) -> None:
        names = named(name, 60)
        await publish(vhost.url, dead_messages(names, DEAD))
        sent.extend(names)

    old.start()
    old.start()
    await has_consumers(vhost.url, 2, DEAD)
    await more("before")
    new.start()
    await eventually_async(
        lambda: "run 'redrive db upgrade'" in new.line.log.read_text(), what="it says what to do"
    )
    await more("while-the-new-one-waits")
    await new.done("db", "upgrade")
    await more("after-the-upgrade")
    await has_consumers(vhost.url, 3, DEAD)
    async with asyncio.timeout(DEADLINE):
        while not (new.collected() and old.collected()):
            await more(f"side-by-side-{len(sent)}")
    # Started again, the old version ends, also as the service that waits for all else.
    for refused in await asyncio.gather(
        asyncio.to_thread(old.run, "stats"), asyncio.to_thread(old.run, *RUN)
    ):
        assert refused.returncode == 1
        assert "and this version of Redrive knows" in refused.stderr
    await new.done("replay", "--queue", "orders", "--detach", "--ignore-health")
    before = old.collected()
    async with asyncio.timeout(DEADLINE):
        while old.collected() == before:
            await more(f"the-old-one-goes-on-{len(sent)}")
    await old.replaced()
    new.start()
    await more("half-way")
    await old.replaced()
    await has_consumers(vhost.url, 2, DEAD)
    await more("after")
    await eventually_async(lambda: set(kept(store_url)) == set(sent), what="all in the store")
    assert len(kept(store_url)) == len(sent), "none twice"
    await eventually_async(lambda: not running(store_url), what="the end of the replay")
    replayed = identities(await take_all(vhost.url, "orders"))
    assert len(replayed) == len(set(replayed)) > len(named("before", 60)) // 4
    assert json.loads(await new.done("stats", "--ledger", "--output", "json"))["exact"]
    for each in (old, new):
        assert not each.line.logged("collector.lost")
        assert '"exception"' not in each.line.log.read_text()


def kept(url: str) -> list[str]:
    """What is in the store. By SQL: which version could open it depends on the moment."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT message_id FROM redrive_letter")]


def running(url: str) -> bool:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT 1 FROM redrive_replay WHERE state = 'running'")
        return found.fetchone() is not None


@pytest.mark.timeout(500)
async def test_processes_of_two_versions_work_side_by_side_while_one_replaces_the_other(
    vhost: Vhost, database: str, tmp_path: Path
) -> None:
    await declare(vhost.url, "orders", "quorum")
    old = version("old", ROOT / "src", vhost, database, tmp_path)
    new = version("new", next_version(tmp_path / "next"), vhost, database, tmp_path)
    try:
        await roll(old, new, vhost, database)
    finally:
        for process in (*old.processes, *new.processes):
            process.kill()
