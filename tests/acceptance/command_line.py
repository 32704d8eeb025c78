"""The real command line in processes of its own, as an operator uses it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from redrive.broker.processes import GuardedProcess
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.moving import channel_to

REDRIVE = Path(sys.executable).parent / "redrive"
STARTS_WITHIN = DEADLINE
DRAINS_WITHIN = 10.0
"""As it promises."""
ENDS_WITHIN = DEADLINE
"""Where its end is not what a test is about: a busy machine takes longer."""


@dataclass(frozen=True)
class CommandLine:
    """`redrive` with a settings file of its own, and nothing of this machine's settings."""

    folder: Path
    broker_url: str
    tiers: Sequence[str]
    management_url: str | None = None
    name: str = "redrive"
    environment: dict[str, str] = field(default_factory=dict)
    store_url: str | None = None
    """None for SQLite in the folder."""
    more: str = ""
    """Further lines of the settings file."""

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.toml"

    @property
    def log(self) -> Path:
        """What every `redrive run` of this command line wrote."""
        return self.folder / f"{self.name}.log"

    def write_settings(self) -> None:
        management = (
            f'management_url = "{self.management_url}"\n' if self.management_url is not None else ""
        )
        store = self.store_url or f"sqlite:///{self.folder / 'redrive.db'}"
        # Not the default port, where another run of the tests, or somebody's Redrive, may listen.
        server = "" if "[server]" in self.more else "[server]\nport = 0\n"
        self.config.write_text(
            f'[broker]\nurl = "{self.broker_url}"\n{management}'
            f'[store]\nurl = "{store}"\n'
            f"[topology]\ntiers = {json.dumps(list(self.tiers))}\n{self.more}{server}"
        )

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            **self.environment,
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(
            [REDRIVE, *words, "--config", self.config],
            env=self.env(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def done(self, *words: str) -> str:
        """A command that must succeed; what it printed."""
        ended = await asyncio.to_thread(self.run, *words)
        assert ended.returncode == 0, f"redrive {' '.join(words)}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def start(self, *words: str) -> GuardedProcess:
        """A command that stays."""
        argv = [str(REDRIVE), *words, "--config", str(self.config)]
        return GuardedProcess(argv, env=self.env(), cwd=self.folder, output=self.log)

    def logged(self, event: str) -> list[dict[str, Any]]:
        whole_lines = self.log.read_text().rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole_lines) if line["event"] == event]

    async def has_logged(self, event: str, text: str) -> None:
        """Wait until an event whose values contain the text is in the log."""
        await eventually_async(
            lambda: any(text in json.dumps(line) for line in self.logged(event)),
            what=f"{event} with {text}",
        )

    def asked(self, query: str, *values: object) -> list[Any]:
        """What its SQLite store answers: to wait by, for a command takes a second to look."""
        store = f"file:{self.folder / 'redrive.db'}?mode=ro"
        try:
            with closing(sqlite3.connect(store, uri=True)) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError:
            return []  # it is just being made, or written

    @asynccontextmanager
    async def running(
        self, *, admin_url: str, queues: Sequence[str], roles: str = "retrier"
    ) -> AsyncIterator[Running]:
        """`redrive run`, once it consumes the queues. Ends by SIGTERM unless it has ended."""
        running = Running(self.start("run", "--roles", roles), self)
        try:
            await running.consumes(admin_url, queues)
            yield running
            if running.process.alive:
                assert await asyncio.to_thread(running.process.terminate, ENDS_WITHIN)
                assert running.process.exit_code == 0, self.log.read_text()
        finally:
            running.process.kill()

    @asynccontextmanager
    async def serving(self, roles: str = "server") -> AsyncIterator[tuple[str, Running]]:
        """`redrive run` with the server, once that answers; its address. Ends by kill -9."""
        running = Running(self.start("run", "--roles", roles), self)
        try:
            yield await running.answers(), running
        finally:
            running.process.kill()


@dataclass(frozen=True)
class Running:
    """A `redrive run` that is up."""

    process: GuardedProcess
    by: CommandLine

    async def consumes(self, url: str, queues: Sequence[str]) -> None:
        async with channel_to(url) as channel:

            async def consumed() -> bool:
                assert self.process.alive, self.by.log.read_text()
                return all([(await channel.inspect_queue(each))[1] for each in queues])

            await eventually_async(consumed, within=STARTS_WITHIN, what=f"a consumer of {queues}")

    async def answers(self) -> str:
        """Wait until the server has opened its store; its address."""
        async with httpx.AsyncClient(trust_env=False) as client:

            async def address() -> str | None:
                assert self.process.alive, self.by.log.read_text()
                listening = self.by.logged("server.listening")
                if not listening:
                    return None
                found = str(listening[-1]["address"])
                try:
                    answer = await client.get(f"{found}/api/v1/session")
                except httpx.TransportError:
                    return None  # of a process before this one
                return found if answer.status_code == httpx.codes.OK else None

            found = await eventually_async(address, within=STARTS_WITHIN, what="the server is up")
            assert found is not None
            return found

    def pause(self) -> None:
        self.process.pause()

    async def kill(self) -> None:
        """kill -9."""
        await asyncio.to_thread(self.process.kill)
        assert self.process.exit_code == -9
