"""A collector that is interrupted at a named step: in a process of its own that kills itself, or in
the test's, where something else is killed.

The steps are reached from outside, by wrapping what the collector calls; production code has no
hooks. `python -m` with a Scene runs the process; without a step it runs until killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import uvloop

from redrive.amqp import Delivery
from redrive.broker.processes import GuardedProcess
from redrive.domain.letter import Arrival, Collected
from redrive.store import letters as letters_module
from redrive.store.collecting import collect
from redrive.store.letters import Letters
from redrive.store.store import open_letter_store
from redrive.work.collector import Collector
from redrive.work.mover import Limits
from tests.services.collecting import Collecting, collecting

ROOT = Path(__file__).parents[2]


class Step(StrEnum):
    """Where between delivery and ack."""

    DELIVERED = "delivered, not understood"
    UNDERSTOOD = "understood, not stored"
    IN_TRANSACTION = "inside the transaction, not committed"
    COMMITTED = "committed, not acked"
    ACKED = "ack written"


Interrupt = Callable[[], None]


class Trap:
    """Calls `interrupt` once, when the nth message reaches the step."""

    def __init__(self, step: Step, nth: int, interrupt: Interrupt) -> None:
        self._step = step
        self._left = nth
        self._interrupt: Interrupt | None = interrupt

    @property
    def sprung(self) -> bool:
        return self._interrupt is None

    @contextmanager
    def set(self) -> Iterator[None]:
        with ExitStack() as stack:
            match self._step:
                case Step.DELIVERED | Step.UNDERSTOOD:
                    around = self._around_arrivals(Collector._arrivals)
                    stack.enter_context(patch.object(Collector, "_arrivals", around))
                case Step.IN_TRANSACTION:
                    inside = self._after(collect)
                    stack.enter_context(patch.object(letters_module, "collect", inside))
                case Step.COMMITTED:
                    stack.enter_context(patch.object(Letters, "add", self._after(Letters.add)))
                case Step.ACKED:
                    after = self._after_settle(Collector._settle)
                    stack.enter_context(patch.object(Collector, "_settle", after))
            yield

    def _reached(self, count: int) -> None:
        self._left -= count
        if self._left <= 0 and self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            interrupt()

    def _around_arrivals(self, arrivals: Callable[..., list[Arrival]]) -> Callable[..., Any]:
        def wrapped(collector: Collector, deliveries: Sequence[Delivery]) -> list[Arrival]:
            if self._step is Step.DELIVERED:
                self._reached(len(deliveries))
            found = arrivals(collector, deliveries)
            if self._step is Step.UNDERSTOOD:
                self._reached(len(deliveries))
            return found

        return wrapped

    def _after(self, store: Callable[..., Awaitable[list[Collected]]]) -> Any:
        async def wrapped(*args: Any, **named: Any) -> list[Collected]:
            collected = await store(*args, **named)
            self._reached(len(collected))
            return collected

        return wrapped

    def _after_settle(self, settle: Callable[..., None]) -> Callable[..., None]:
        def wrapped(collector: Any, consumer: Any, deliveries: Any, stored: Any) -> None:
            settle(collector, consumer, deliveries, stored)
            wire = consumer._channel.wire
            wire.flush()
            assert wire._transport is None or wire._transport.get_write_buffer_size() == 0
            self._reached(len(deliveries))

        return wrapped


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What the process does, and when it ends."""

    url: str
    store_url: str
    queues: tuple[str, ...]
    prefetch: int = 100
    step: Step
    nth: int
    """It ends when so many messages have reached the step."""

    def start(self, log: Path) -> GuardedProcess:
        """Run it in a child of the test."""
        argv = [sys.executable, "-m", "tests.faults.collector_process", json.dumps(asdict(self))]
        return GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("outlived kill -9")


async def run(scene: Scene) -> None:
    store = await open_letter_store(scene.store_url)
    limits = Limits(prefetch=scene.prefetch)
    running: Collecting
    with Trap(scene.step, scene.nth, die).set():
        async with collecting(scene.url, store.letters, *scene.queues, limits=limits) as running:
            await running.ended()


def main() -> None:
    given = json.loads(sys.argv[1])
    scene = Scene(**given | {"step": Step(given["step"]), "queues": tuple(given["queues"])})
    # The standard loop writes to the socket at once; uvloop, as in production, at a turn's end.
    factory = None if scene.step is Step.ACKED else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run(scene))


if __name__ == "__main__":
    main()
