"""A worker, or the runner of a replay, that kills itself at a named step between claim and record.

The steps are reached from outside, by wrapping what it calls; production code has no hooks.
`python -m` with a Scene runs the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

from redrive.broker.processes import GuardedProcess
from redrive.store.replays import Replays
from redrive.store.sendings import Sendings
from redrive.store.store import open_letter_store
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from redrive.work.sender import Sender
from tests.faults.collector_process import die
from tests.services.reviving import LEASE, VERDICT_AFTER, reviver

ROOT = Path(__file__).parents[2]


class Step(StrEnum):
    """Where between claim and record."""

    CLAIMED = "claimed, not sent"
    PUBLISHED = "written to the socket, not confirmed"
    CONFIRMED = "confirmed, not recorded"
    RECORDED = "recorded"


class Trap:
    """Ends the process when the nth letter reaches the step."""

    def __init__(self, step: Step, nth: int) -> None:
        self._step = step
        self._left = nth

    @contextmanager
    def set(self) -> Iterator[None]:
        with ExitStack() as stack:
            match self._step:
                case Step.CLAIMED:
                    stack.enter_context(patch.object(Sender, "send", self._before(Sender.send)))
                case Step.PUBLISHED:
                    publishing = self._publishing(Sender._publish)
                    stack.enter_context(patch.object(Sender, "_publish", publishing))
                case Step.CONFIRMED:
                    stack.enter_context(patch.object(Sender, "send", self._after(Sender.send)))
                case Step.RECORDED:
                    for kind in (Sendings, Replays):
                        stack.enter_context(
                            patch.object(kind, "record", self._recorded(kind.record))
                        )
            yield

    def _reached(self, count: int) -> None:
        self._left -= count
        if self._left <= 0:
            die()

    def _before(self, send: Any) -> Any:
        async def wrapped(sender: Any, claims: Any) -> Any:
            self._reached(len(claims))
            return await send(sender, claims)

        return wrapped

    def _after(self, send: Any) -> Any:
        async def wrapped(sender: Any, claims: Any) -> Any:
            sent = await send(sender, claims)
            self._reached(len(claims))
            return sent

        return wrapped

    def _publishing(self, publish: Any) -> Any:
        async def wrapped(sender: Any, sendings: Any) -> Any:
            self._left -= len(sendings)
            if self._left <= 0:
                sender._publisher.publish_all(sendings)
                wire = sender._publisher._channel.wire
                wire.flush()
                die()
            return await publish(sender, sendings)

        return wrapped

    def _recorded(self, record: Any) -> Any:
        async def wrapped(store: Any, worker: Any, outcomes: Any, **named: Any) -> None:
            await record(store, worker, outcomes, **named)
            self._reached(len(outcomes))

        return wrapped


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What the process does, and when it ends."""

    url: str
    store_url: str
    step: Step
    nth: int
    """It ends when so many letters have reached the step."""
    name: str
    replay: str | None = None
    """The job it runs; None for a worker."""
    ahead: float = 0.0
    """By how many seconds its store's clock is ahead."""

    def start(self, log: Path) -> GuardedProcess:
        """Run it in a child of the test."""
        argv = [sys.executable, "-m", "tests.faults.worker_process", json.dumps(asdict(self))]
        return GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


async def run(scene: Scene) -> None:
    store = await open_letter_store(scene.store_url)
    store.clock.ahead += LEASE.__class__(seconds=scene.ahead)
    parts = reviver(scene.url, store, name=scene.name)
    await parts.sender.open()
    with Trap(scene.step, scene.nth).set():
        if scene.replay is None:
            while await parts.worker.round(parts.sender):
                pass
            return
        job = await store.replays.begin(scene.replay, scene.name, LEASE)
        runner = ReplayRunner(
            scene.name,
            store.replays,
            parts.sender,
            verdict_after=VERDICT_AFTER,
            lease=LEASE,
            stopping=asyncio.Event(),
        )
        await runner.run(job, destinations(lambda: parts.policies))


def main() -> None:
    given = json.loads(sys.argv[1])
    scene = Scene(**given | {"step": Step(given["step"])})
    asyncio.run(run(scene))


if __name__ == "__main__":
    main()
