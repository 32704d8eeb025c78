"""A retrier in a process of its own that kills itself at a named step: `python -m` with a Scene.

The steps are reached from outside, by wrapping methods of the session that moves the messages of
the hop in question; production code has no hooks. Without a step it runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

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


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("outlived kill -9")


class Trap:
    """Wraps a session's methods, so that the process ends at the step."""

    def __init__(self, step: Step, nth: int) -> None:
        self._step = step
        self._left = nth

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

    def _reached(self, count: int = 1) -> bool:
        self._left -= count
        return self._left <= 0

    def _before(self, decide: Callable[[Delivery, str], Instruction]) -> Any:
        def wrapped(delivery: Delivery, user: str) -> Instruction:
            if self._reached():
                die()
            return decide(delivery, user)

        return wrapped

    def _after_publish(self, publish_all: Any, lane: Any) -> Any:
        def wrapped(messages: Sequence[Publish]) -> Any:
            if self._left > len(messages):
                self._left -= len(messages)
                return publish_all(messages)
            publish_all(messages[: self._left])
            wire: Wire = lane._publisher._channel.wire
            _write_out(wire)
            if self._step is Step.STORED:
                _wait_readable(wire)  # its confirm, or that of one before it
            die()

        return wrapped

    def _after_outcomes(self, next_outcomes: Any) -> Any:
        async def wrapped() -> list[tuple[Publish, LaneOutcome]]:
            outcomes: list[tuple[Publish, LaneOutcome]] = await next_outcomes()
            if self._reached(sum(outcome is CONFIRMED for _, outcome in outcomes)):
                die()
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
            if self._left <= 0:
                _write_out(consumer._channel.wire)
                die()

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


def set_trap(scene: Scene) -> None:
    if scene.step is None:
        return
    trap = Trap(scene.step, scene.nth)
    made = MoverSession.__init__

    def init(session: MoverSession, *args: Any, **named: Any) -> None:
        made(session, *args, **named)
        if isinstance(session._plan, PLANS[scene.hop]):
            trap.set(session)

    MoverSession.__init__ = init  # type: ignore[method-assign, assignment]


async def run(scene: Scene) -> None:
    set_trap(scene)
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
