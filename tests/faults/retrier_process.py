"""A retrier that is interrupted at a named step: in a process of its own that kills itself, or in
the test's, where the broker is killed.

The steps are reached from outside, by wrapping methods of the session that moves the messages of
the hop in question; production code has no hooks. `python -m` with a Scene runs the process;
without a step it runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import uvloop

from redrive.amqp import Delivery, Publish
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import LaneOutcome
from redrive.amqp.wire import Wire
from redrive.broker.processes import GuardedProcess
from redrive.domain.policy import Policy, PolicyBook
from redrive.settings.sections import TopologySettings
from redrive.work.mover import Instruction, Limits, MoverSession
from redrive.work.retrier import Retrier
from redrive.work.retry_plan import RetryPlan
from redrive.work.return_plan import ReturnPlan
from tests.faults.collector_process import Interrupt, die
from tests.services.moving import connector

ROOT = Path(__file__).parents[2]


class Hop(StrEnum):
    """Which way of a message."""

    TO_WAIT = "retry-queue to its tier or the dead letter queue"
    BACK = "retry-queue-N to the queue where it failed"


class Step(StrEnum):
    """Where between delivery and ack the process ends."""

    DELIVERED = "delivered, not published"
    WRITTEN = "publish written, broker may not have it"
    STORED = "confirmed by the broker, confirm not read"
    CONFIRMED = "confirm read, not acked"
    ACKED = "ack written"


# The standard loop writes to the socket at once; uvloop, as in production, at the end of a turn.
WRITES_AT_ONCE = (Step.WRITTEN, Step.STORED, Step.ACKED)
PLANS: dict[Hop, type[RetryPlan | ReturnPlan]] = {Hop.TO_WAIT: RetryPlan, Hop.BACK: ReturnPlan}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What the process does, and when it ends."""

    url: str
    topology: dict[str, Any]
    max_retries: int = 1
    prefetch: int = 200
    hop: Hop = Hop.TO_WAIT
    step: Step | None = None
    nth: int = 0
    """It ends at the nth message of the hop that reaches the step."""

    def start(self, log: Path) -> GuardedProcess:
        """Run it in a child of the test."""
        argv = [sys.executable, "-m", "tests.faults.retrier_process", json.dumps(asdict(self))]
        return GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


class Trap:
    """Wraps the methods of sessions: calls `interrupt` once, when the nth message reaches the step.
    Until that has returned, they stand still."""

    def __init__(self, step: Step, nth: int, interrupt: Interrupt) -> None:
        self._step = step
        self._left = nth
        self._interrupt: Interrupt | None = interrupt

    @property
    def sprung(self) -> bool:
        return self._interrupt is None

    def set(self, session: Any) -> None:
        lane, consumer = session._lane, session._consumer
        match self._step:
            case Step.DELIVERED:
                session._plan.decide = self._before(session._plan.decide)
            case Step.WRITTEN | Step.STORED:
                lane.publish_all = self._after_publish(lane.publish_all, lane)
            case Step.CONFIRMED:
                lane.next_outcomes = self._after_outcomes(lane.next_outcomes)
            case Step.ACKED:
                consumer.ack = self._counting(consumer.ack)
                consumer.flush = self._after_flush(consumer.flush, consumer)

    def _reached(self, count: int = 1) -> None:
        self._left -= count
        if self._left <= 0 and self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            interrupt()

    def _before(self, decide: Callable[[Delivery, str], Instruction]) -> Any:
        def wrapped(delivery: Delivery, user: str) -> Instruction:
            self._reached()
            return decide(delivery, user)

        return wrapped

    def _after_publish(self, publish_all: Any, lane: Any) -> Any:
        def wrapped(messages: Sequence[Publish]) -> Any:
            if self.sprung or self._left > len(messages):
                self._left -= len(messages)
                return publish_all(messages)
            until = self._left
            unsent = publish_all(messages[:until])
            wire: Wire = lane._publisher._channel.wire
            _write_out(wire)
            if self._step is Step.STORED:
                _wait_readable(wire)  # its confirm, or that of one before it
            self._reached(until)
            return unsent + publish_all(messages[until:])

        return wrapped

    def _after_outcomes(self, next_outcomes: Any) -> Any:
        async def wrapped() -> list[tuple[Publish, LaneOutcome]]:
            outcomes: list[tuple[Publish, LaneOutcome]] = await next_outcomes()
            self._reached(sum(outcome is CONFIRMED for _, outcome in outcomes))
            return outcomes

        return wrapped

    def _counting(self, ack: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*deliveries: Delivery) -> None:
            self._left -= len(deliveries)
            ack(*deliveries)

        return wrapped

    def _after_flush(self, flush: Callable[[], None], consumer: Any) -> Callable[[], None]:
        def wrapped() -> None:
            flush()
            if self._left <= 0 and not self.sprung:
                _write_out(consumer._channel.wire)
                self._reached(0)

        return wrapped


def _write_out(wire: Wire) -> None:
    wire.flush()
    assert wire._transport is not None
    assert wire._transport.get_write_buffer_size() == 0


def _wait_readable(wire: Wire) -> None:
    assert wire._transport is not None
    socket = wire._transport.get_extra_info("socket")
    readable, _, _ = select.select([socket.fileno()], [], [], 30)
    assert readable, "the broker did not answer"


@contextmanager
def set_on(hop: Hop, trap: Trap) -> Iterator[None]:
    """In every session of that hop which begins meanwhile."""
    made = MoverSession.__init__

    def init(session: MoverSession, *args: Any, **named: Any) -> None:
        made(session, *args, **named)
        if isinstance(session._plan, PLANS[hop]) and not trap.sprung:
            trap.set(session)

    with patch.object(MoverSession, "__init__", init):
        yield


async def run(scene: Scene) -> None:
    book = PolicyBook(file=[Policy(name="#", max_retries=scene.max_retries)])
    retrier = Retrier(
        TopologySettings.model_validate(scene.topology),
        (),
        lambda: book,
        connect=connector(scene.url),
        limits=Limits(prefetch=scene.prefetch),
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    with ExitStack() as stack:
        if scene.step is not None:
            stack.enter_context(set_on(scene.hop, Trap(scene.step, scene.nth, die)))
        await retrier.run(stopping)


def main() -> None:
    given = json.loads(sys.argv[1])
    step = Step(given["step"]) if given["step"] else None
    scene = Scene(**given | {"hop": Hop(given["hop"]), "step": step})
    factory = None if step in WRITES_AT_ONCE else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run(scene))


if __name__ == "__main__":
    main()
