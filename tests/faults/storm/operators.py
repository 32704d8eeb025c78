"""An operator: the real command line and the API, one thing after the other, whatever strikes.

A command may fail while a server is away, but in one line that says so: a traceback, or books that
are not exact at any moment, is noted as a problem.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from redrive.broker.processes import GuardedProcess
from tests.acceptance.command_line import REDRIVE, CommandLine
from tests.faults.storm.journal import Done, Journal
from tests.faults.storm.messages import BROKEN, PATCH
from tests.faults.storm.plan import OPERATOR, Act, Deed
from tests.faults.storm.world import PARCELS_DEAD, PERMANENT, World
from tests.services.eventually import eventually_async

COMMAND_TIMEOUT: Final = 90.0
FINE: Final = frozenset({0, 1, 3})
"""Done, failed with a reason, nothing matched. 2 would be wrong use; -9 is a kill of ours."""
PATIENCE: Final = 180.0
"""Seconds for what is done at the end, on a machine that may be busy."""
MEANT: Final = ("--status", "manual", "--status", "failed", "--status", "pending")


class Operator:
    """Does what the plan says."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._line: CommandLine = world.command_line(OPERATOR)
        self._patch: Path = world.folder / "patch.json"
        self._patch.write_text(PATCH)

    async def work(self, acts: Sequence[Act]) -> None:
        """All acts, each at its time or later."""
        for act in acts:
            await asyncio.sleep(max(0.0, self._journal.began + act.at - time.time()))
            await self.do(act)

    async def do(self, act: Act) -> str:
        """One act; what came of it."""
        at = time.time()
        if act.deed is Deed.REPLAY_BY_API:
            outcome = await self._replay_by_api(act.limit)
        elif act.deed is Deed.DISCARD_BY_API:
            outcome = await self._discard_by_api()
        else:
            outcome = await self._run(*self._words(act))
        self._journal.done.append(Done(act, at, outcome))
        return outcome

    def _words(self, act: Act) -> list[str]:
        limit, few = (["--limit", str(number)] for number in (act.limit, min(act.limit, 5)))
        replay = ["replay", *MEANT, *limit, "--ignore-health", "--yes", "--pause", "0s"]
        edit = ["letters", "edit", "--search", BROKEN.decode(), *MEANT]
        target = ["--target", PERMANENT, "--max-retries", "2"]
        words = {
            Deed.REPLAY: replay,
            Deed.REPLAY_DETACHED: [*replay, "--detach"],
            Deed.EDIT: [*edit, "--patch", str(self._patch), "--skip-unfit", "--yes"],
            Deed.DISCARD: ["letters", "discard", "--search", "hopeless", *MEANT, *few, "--yes"],
            Deed.RESTORE: ["letters", "restore", "--status", "archived", *limit, "--yes"],
            Deed.SWEEP: ["sweep", PARCELS_DEAD, *target, "--spend-deliveries"],
            Deed.LEDGER: ["stats", "--ledger", "--output", "json"],
        }
        return words[act.deed]

    # By the command line

    async def _run(self, *words: str) -> str:
        output = self._world.folder / f"command-{time.time_ns()}.txt"
        process = GuardedProcess(
            [str(REDRIVE), *words, "--config", str(self._line.config)],
            env=self._line.env(),
            cwd=self._world.folder,
            output=output,
        )
        self._world.command = process
        deadline = time.monotonic() + COMMAND_TIMEOUT
        while process.alive:
            await asyncio.sleep(0.05)
            if time.monotonic() > deadline:
                process.kill()
                return self._complain(words, "it hangs", output)
        self._world.command = None
        return self._judge(words, process.exit_code, output)

    def _judge(self, words: Sequence[str], code: int | None, output: Path) -> str:
        text = output.read_text(errors="replace")
        if "Traceback" in text or (code not in FINE and code != -9):
            return self._complain(words, f"exit {code}", output)
        if words[0] == "stats" and code in FINE and not self._books_are_exact(text, code):
            return self._complain(words, "the books are not exact", output)
        output.unlink()
        return f"exit {code}"

    @staticmethod
    def _books_are_exact(text: str, code: int | None) -> bool:
        """By the document in what was printed; around it there may be lines for people. There is
        none if the store was away."""
        document = text[text.find("{") : text.rfind("}") + 1]
        return code != 0 if not document else json.loads(document)["exact"] is True

    def _complain(self, words: Sequence[str], what: str, output: Path) -> str:
        text = output.read_text(errors="replace")[-1500:]
        self._journal.problems.append(f"redrive {' '.join(words)}: {what}\n{text}")
        return what

    # By the API

    async def _replay_by_api(self, limit: int) -> str:
        """As the console does: first a preview, and then what was shown."""
        wanted = {"filter": {"status": ["manual"]}, "limit": limit}
        shown = await self._call("POST", "replays/preview", json=wanted)
        if isinstance(shown, str):
            return shown
        if not shown["matched"]:
            return "nothing matched"
        order = {**wanted, "count": shown["matched"], "ignoreHealth": True}
        return self._said(await self._call("POST", "replays", json=order))

    async def _discard_by_api(self) -> str:
        wanted = {"search": "hopeless", "status": "failed", "limit": 3}
        found = await self._call("GET", "letters", params=wanted)
        if isinstance(found, str):
            return found
        ids = [each["id"] for each in found["items"]]
        if not ids:
            return "nothing matched"
        return self._said(await self._call("POST", "letters/discard", json={"ids": ids}))

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        """The answer; a text if there is none, which says why."""
        address = f"http://127.0.0.1:{self._world.port}/api/v1/{path}"
        try:
            async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
                answer = await client.request(method, address, **more)
        except httpx.TransportError as error:
            return type(error).__name__  # its process was killed, or is not up yet
        if answer.status_code in (422, 500):
            problem = f"{method} {path}: {answer.status_code} {answer.text[:800]}"
            self._journal.problems.append(problem)
        return answer.json() if answer.is_success else f"status {answer.status_code}"

    @staticmethod
    def _said(answer: Any) -> str:
        return answer if isinstance(answer, str) else "done"

    # At the end, when nothing strikes any more

    async def mend_and_replay(self) -> None:
        """Mend what is broken and send everything again, as far as it may be."""
        await self._must(self._mend)
        await self._must(self._replay_all)

    async def _mend(self) -> str:
        broken = {"search": BROKEN.decode(), "status": ["manual", "failed"]}
        edit = {"filter": broken, "patchText": PATCH, "skipUnfit": True}
        tried = await self._call("POST", "letters/edit", json={**edit, "dryRun": True})
        if isinstance(tried, str) or not tried["letters"]:
            return self._said(tried)
        edit["count"] = tried["letters"]
        return self._said(await self._call("POST", "letters/edit", json=edit))

    async def _replay_all(self) -> str:
        shown = await self._call("POST", "replays/preview", json={})
        if isinstance(shown, str) or not shown["matched"]:
            return self._said(shown)
        order = {"count": shown["matched"], "ignoreHealth": True, "pause": 0}
        return self._said(await self._call("POST", "replays", json=order))

    async def _must(self, change: Callable[[], Awaitable[str]]) -> None:
        """A change that has no reason to fail once the server is up; looked at anew for each try,
        since one whose answer was too late was made."""
        said = ""

        async def done() -> bool:
            nonlocal said
            said = await change()
            return said == "done"

        try:
            await eventually_async(done, within=PATIENCE)
        except AssertionError:
            raise AssertionError(f"{change.__name__}: still {said} after {PATIENCE:g} s") from None
