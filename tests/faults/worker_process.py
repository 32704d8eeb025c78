"""A worker, or the runner of a replay, interrupted at a named step between claim and record: in a
process of its own that kills itself, or in the test's, where something else is killed.

The steps are reached from outside, by wrapping what it calls; production code has no hooks.
`python -m` with a Scene runs the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

from redrive.amqp import Publisher
from redrive.broker.processes import GuardedProcess
from redrive.domain.letter import Claim
from redrive.store.replays import Replays
from redrive.store.sendings import Sendings
from redrive.store.store import open_letter_store
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from redrive.work.sender import Sender, Sent, _Sending
from tests.faults.collector_process import Interrupt, die
from tests.services.reviving import LEASE, VERDICT_AFTER, reviver

ROOT = Path(__file__).parents[2]


class Step(StrEnum):
    """Where between claim and record."""

    CLAIMED = "claimed, not sent"
    PUBLISHED = "written to the socket, not confirmed"
    CONFIRMED = "confirmed, not recorded"
    RECORDED = "recorded"


class Trap:
    """Calls `interrupt` once, when the nth letter reaches the step. Until that has returned, who
    sends stands still."""

    def __init__(self, step: Step, nth: int, interrupt: Interrupt) -> None:
        self._step = step
        self._left = nth
        self._interrupt: Interrupt | None = interrupt
        self.held: frozenset[str] = frozenset()
        """The ids of the letters that were at the step then."""

    @property
    def sprung(self) -> bool:
        return self._interrupt is None

    @contextmanager
    def set(self) -> Iterator[None]:
        with ExitStack() as stack:
            match self._step:
                case Step.CLAIMED | Step.CONFIRMED:
                    around = self._around(Sender.send)
                    stack.enter_context(patch.object(Sender, "send", around))
                case Step.PUBLISHED:
                    written = self._written(Publisher.publish_all)
                    stack.enter_context(patch.object(Publisher, "publish_all", written))
                case Step.RECORDED:
                    for kind in (Sendings, Replays):
                        recorded = self._recorded(kind.record)
                        stack.enter_context(patch.object(kind, "record", recorded))
            yield

    def _reached(self, claims: Sequence[Claim]) -> None:
        self._left -= len(claims)
        if self._left <= 0 and self._interrupt is not None:
            self.held = frozenset(claim.letter.id for claim in claims)
            interrupt, self._interrupt = self._interrupt, None
            interrupt()

    def _around(self, send: Any) -> Any:
        async def wrapped(sender: Sender, claims: Sequence[Claim]) -> list[Sent]:
            if self._step is Step.CLAIMED:
                self._reached(claims)
            sent: list[Sent] = await send(sender, claims)
            if self._step is Step.CONFIRMED:
                self._reached(claims)
            return sent

        return wrapped

    def _written(self, publish_all: Any) -> Any:
        def wrapped(publisher: Publisher, publishes: Any) -> Any:
            unsent = publish_all(publisher, publishes)
            # Consumers of the tests publish too.
            claims = [each.claim for each in publishes if isinstance(each, _Sending)]
            if claims:
                wire = publisher._channel.wire
                wire.flush()
                assert wire._transport is None or wire._transport.get_write_buffer_size() == 0
                self._reached(claims)
            return unsent

        return wrapped

    def _recorded(self, record: Any) -> Any:
        async def wrapped(store: Any, worker: Any, outcomes: Any, **named: Any) -> None:
            await record(store, worker, outcomes, **named)
            self._reached([outcome.claim for outcome in outcomes])

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
    with Trap(scene.step, scene.nth, die).set():
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
