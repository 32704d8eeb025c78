"""A sweep in a process of its own that kills itself at a named step: `python -m` with a Scene.

The steps are the retrier's, and one that only a pass has: what is held was given back.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from redrive.amqp import parse_addresses
from redrive.amqp.lane import Connect
from redrive.broker.management import Management
from redrive.broker.processes import GuardedProcess
from redrive.work.look import Outcome
from redrive.work.mover import Limits, MoverSession
from redrive.work.queue_site import QueueSite
from redrive.work.sweep import Sweeper, SweepOrder
from tests.faults.collector_process import die
from tests.faults.retrier_process import ROOT, WRITES_AT_ONCE, Step, Trap, _write_out
from tests.services.moving import connector

GIVEN_BACK = "what was held given back, connection not closed"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What the process does, and when it ends."""

    url: str
    queue: str
    target: str
    management_url: str = ""
    """Empty for a sweep that is not told of which type the queue is."""
    step: str = ""
    nth: int = 0
    """It ends at the nth message that reaches the step."""

    def start(self, log: Path) -> GuardedProcess:
        argv = [sys.executable, "-m", "tests.faults.sweep_process", json.dumps(asdict(self))]
        return GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


class PassTrap(Trap):
    """The retrier's trap on a window, which has several channels."""

    def _after_flush(self, flush: Callable[[], None], consumer: Any) -> Callable[[], None]:
        def wrapped() -> None:
            flush()
            if self._left <= 0 and not self.sprung:
                _write_out(consumer._consumers[-1][0].wire)
                self._reached(0)

        return wrapped


def set_trap(scene: Scene) -> None:
    made = MoverSession.__init__

    def init(session: Any, *args: Any, **named: Any) -> None:
        made(session, *args, **named)
        if scene.step == GIVEN_BACK:
            given = session._consumer.give_back

            async def give_back() -> None:
                await given()
                die()

            session._consumer.give_back = give_back
        elif scene.step:
            PassTrap(Step(scene.step), scene.nth, die).set(session)

    MoverSession.__init__ = init  # type: ignore[method-assign, assignment]


def management_of(url: str, management_url: str) -> Management:
    """The management API for the user and the vhost of a broker's URL."""
    broker = parse_addresses(url)[0]
    return Management(management_url, broker.user, broker.password, broker.vhost)


async def sweep(
    connect: Connect,
    queue: str,
    target: str,
    management: Management | None = None,
    *,
    limits: Limits | None = None,
    stopping: asyncio.Event | None = None,
) -> Outcome:
    """Sweep one queue of what was tried more than three times."""
    site = QueueSite(await connect("test sweep"), management, connect)
    order = SweepOrder(queues=[queue], target=target, max_retries=3, spend_deliveries=True)
    sweeper = Sweeper(order, site, limits)
    try:
        (leg,) = (await sweeper.itinerary()).legs
        return await sweeper.sweep(leg, stopping)
    finally:
        site.connection.abort()


async def run(scene: Scene) -> None:
    set_trap(scene)
    management = management_of(scene.url, scene.management_url) if scene.management_url else None
    await sweep(connector(scene.url), scene.queue, scene.target, management)


def main() -> None:
    scene = Scene(**json.loads(sys.argv[1]))
    at_once = scene.step in {str(step) for step in WRITES_AT_ONCE}
    with asyncio.Runner(loop_factory=None if at_once else uvloop.new_event_loop) as runner:
        runner.run(run(scene))


if __name__ == "__main__":
    main()
