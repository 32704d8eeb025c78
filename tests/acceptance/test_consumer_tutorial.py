"""The tutorial of the consumer: its files are made, its commands run, its output compared."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

from redrive.broker.processes import GuardedProcess
from tests.acceptance.command_line import DRAINS_WITHIN, REDRIVE
from tests.services.consuming import consumed
from tests.services.eventually import eventually_async
from tests.services.plugin import Vhost

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "first-handler.md"
BROKER = "amqp://guest:guest@127.0.0.1:5672/"


class Reader:
    """Somebody who follows the tutorial, in a folder of their own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        text = TUTORIAL.read_text(encoding="utf-8")
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.files = dict(
            self._named(block) for kind, block in blocks if kind in ("python", "toml")
        )
        for name, content in self.files.items():
            (folder / name).write_text(content.replace(BROKER, url))
        (self.output,) = (block.splitlines() for kind, block in blocks if kind == "text")
        self.commands = [
            line.removeprefix("$ ")
            for kind, block in blocks
            if not kind
            for line in block.splitlines()
        ]

    @staticmethod
    def _named(block: str) -> tuple[str, str]:
        named = re.match(r"# (\S+)\n", block)
        assert named is not None, block
        return named[1], block

    def start(self, command: str) -> GuardedProcess:
        """Type a command of the tutorial; its output goes to a file."""
        self.commands.remove(command)
        program, *words = command.split()
        argv = [str(REDRIVE) if program == "redrive" else sys.executable, *words]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8"}
        return GuardedProcess(argv, env=env, cwd=self.folder, output=self.log(command))

    def log(self, command: str) -> Path:
        return self.folder / f"{command.replace(' ', '-')}.log"

    async def done(self, command: str) -> str:
        process = self.start(command)
        await eventually_async(lambda: not process.alive, within=60, what=f"the end of {command}")
        printed = self.log(command).read_text()
        assert process.exit_code == 0, printed
        return printed


def by_payment(lines: list[str]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in lines:
        payment, _, happened = line.partition(": ")
        found[payment].append(happened)
    return found


async def test_who_follows_the_tutorial_sees_what_it_says(vhost: Vhost, tmp_path: Path) -> None:
    reader = Reader(tmp_path, vhost.url)
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
        await eventually_async(lambda: seen() == wanted, within=40, what="the tutorial's output")

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
            assert await asyncio.to_thread(process.terminate, DRAINS_WITHIN)
            assert process.exit_code == 0
    finally:
        for process in serving:
            process.kill()
    assert "4 passed" in await reader.done("python -m pytest test_settlements.py")
    assert not reader.commands, "every command was typed"
