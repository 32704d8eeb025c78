"""The tutorials: their files are made, their commands run, their output compared."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections import defaultdict
from pathlib import Path

from redrive.broker.processes import GuardedProcess
from tests.acceptance.command_line import ENDS_WITHIN, REDRIVE
from tests.services.consuming import consumed
from tests.services.eventually import eventually_async
from tests.services.pages import ROOT, blocks_in
from tests.services.plugin import Vhost

TUTORIALS = ROOT / "docs" / "tutorial"
BROKER = "amqp://guest:guest@127.0.0.1:5672/"
MANAGEMENT = "http://127.0.0.1:15672"
SET_UP = ("$ make setup", "$ . .venv/bin/activate")
"""Lines that are true already."""


class Reader:
    """Somebody who follows a tutorial, in a folder of their own."""

    def __init__(self, folder: Path, tutorial: str, replaced: dict[str, str]) -> None:
        self.folder = folder
        blocks = blocks_in(TUTORIALS / tutorial)
        self.files = dict(
            self._named(block) for kind, block in blocks if kind in ("python", "toml")
        )
        for name, content in self.files.items():
            for invented, real in replaced.items():
                content = content.replace(invented, real)  # noqa: PLW2901
            (folder / name).write_text(content)
        self.output = [
            line for kind, block in blocks if kind == "text" for line in block.splitlines()
        ]
        self.commands = [
            shlex.join(shlex.split(line.removeprefix("$ "), comments=True))
            for kind, block in blocks
            if not kind
            for line in block.splitlines()
            if line not in SET_UP
        ]

    @staticmethod
    def _named(block: str) -> tuple[str, str]:
        named = re.match(r"# (\S+)\n", block)
        assert named is not None, block
        return named[1], block

    def start(self, command: str, real: dict[str, str] | None = None) -> GuardedProcess:
        """Type a command of the tutorial, with what is `real` for what it invents; its output
        goes to a file."""
        self.commands.remove(command)
        program, *words = [(real or {}).get(word, word) for word in shlex.split(command)]
        argv = [str(REDRIVE) if program == "redrive" else sys.executable, *words]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"}
        env["PYTHONUNBUFFERED"] = "1"  # as at a terminal
        return GuardedProcess(argv, env=env, cwd=self.folder, output=self.log(command))

    def log(self, command: str) -> Path:
        return self.folder / f"{re.sub(r'[^a-z]+', '-', command)}.log"

    async def done(self, command: str, real: dict[str, str] | None = None) -> str:
        process = self.start(command, real)
        await eventually_async(lambda: not process.alive, what=f"the end of {command}")
        printed = self.log(command).read_text()
        assert process.exit_code == 0, printed
        return printed


def by_payment(lines: list[str]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in lines:
        payment, _, happened = line.partition(": ")
        found[payment].append(happened)
    return found


async def test_who_follows_the_tutorial_of_the_sdk_sees_what_it_says(
    vhost: Vhost, tmp_path: Path
) -> None:
    reader = Reader(tmp_path, "first-handler.md", {BROKER: vhost.url})
    serving = [reader.start("redrive run")]
    try:
        await consumed(vhost.url, "dlq-queue")
        serving.append(reader.start("python settlements.py"))
        await consumed(vhost.url, "settlement.requested")
        await reader.done("python send.py")
        printed = reader.log("python settlements.py")

        def seen() -> dict[str, list[str]]:
            lines = printed.read_text().splitlines()
            return by_payment([line for line in lines if re.match(r"\w+: (try|settled)", line)])

        wanted = by_payment(reader.output)
        await eventually_async(lambda: seen() == wanted, what="the tutorial's output")

        async def kept() -> bool:
            ended = await asyncio.create_subprocess_exec(
                REDRIVE,
                *("letters", "list", "--output", "json"),
                cwd=tmp_path,
                env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await ended.communicate()
            types = {each["errorType"] for each in json.loads(output or "{}").get("items", [])}
            return types == {"NEGATIVE_AMOUNT", "settlements.BankAway", "BODY_DOES_NOT_FIT"}

        await eventually_async(kept, what="three letters")
        assert "BankAway" in await reader.done("redrive letters list")
        for process in reversed(serving):
            assert await asyncio.to_thread(process.terminate, ENDS_WITHIN)
            assert process.exit_code == 0
    finally:
        for process in serving:
            process.kill()
    assert "4 passed" in await reader.done("python -m pytest test_settlements.py")
    assert not reader.commands, "every command was typed"


async def test_who_follows_the_tutorial_of_the_retrier_sees_what_it_says(
    vhost: Vhost, tmp_path: Path
) -> None:
    quick = {'["2s", "5s", "10s"]': '["200ms", "300ms", "400ms"]'}
    replaced = {BROKER: vhost.url, MANAGEMENT: vhost.management_url, **quick}
    reader = Reader(tmp_path, "first-retry.md", replaced)
    said = [re.split(r" {2,}", line)[0] for line in reader.output]
    assert len(said) == 4
    assert "missing" in await reader.done("redrive topology plan")
    await reader.done("redrive topology apply")
    await reader.done("redrive policy set 'order.*' --max-retries 3")
    serving = [reader.start("redrive run")]
    try:
        await consumed(vhost.url, "dlq-queue")
        serving.append(reader.start("python consumer.py"))
        printed = reader.log("python consumer.py")
        await eventually_async(
            lambda: printed.read_text().splitlines() == said, what="the four tries"
        )
        log = reader.log("redrive run")
        found = await eventually_async(
            lambda: re.findall(r'"letter": ?"([0-9a-f-]+)"', log.read_text()), what="a letter"
        )
        assert found
        assert found[0][:8] in await reader.done("redrive letters list")
        shown = await reader.done("redrive letters show 019c4c92", {"019c4c92": found[0]})
        assert "gave up after 3 retries in queue 'orders'" in shown
    finally:
        for process in serving:
            process.kill()
    assert not reader.commands, "every command was typed"
