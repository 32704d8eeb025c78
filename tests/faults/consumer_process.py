"""A consumer in a process of its own: `python -m` with a Scene. It notes in a file what it handles.

`poison` kills the process while it is handled, every time. `fails…` fails for ever, `twice…` fails
twice, `hangs` never ends and cannot be cancelled, all others pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from redrive import Consumer, Message
from redrive.broker.processes import GuardedProcess
from redrive.consumer import session
from tests.services.consuming import QUEUE, settings_for
from tests.services.moving import Kind

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What the process consumes, and where it notes it."""

    url: str
    kind: Kind
    notes: str
    retries: int = 3
    concurrency: int = 10
    prefetch: int = 100
    works_for: float = 0.005
    """Seconds that each message takes."""
    marks: bool = False
    """Whether the beginning of each is noted too."""
    hurries: bool = False
    """Whether a stop waits a quarter of the time for what is being handled."""

    def start(self, log: Path) -> GuardedProcess:
        argv = [sys.executable, "-m", "tests.faults.consumer_process", json.dumps(asdict(self))]
        return GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


def run(scene: Scene) -> None:
    consumer = Consumer(settings=settings_for(scene.url, scene.kind))
    # Whole lines, at once: nothing that was noted is lost with the process.
    notes = os.open(scene.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @consumer.handler(
        QUEUE, retries=scene.retries, concurrency=scene.concurrency, prefetch=scene.prefetch
    )
    async def handle(message: Message) -> None:
        identity = message.body.decode()
        if scene.marks or identity in ("poison", "hangs"):
            os.write(notes, f"began {identity} {message.retry_count}\n".encode())
        if scene.works_for:
            await asyncio.sleep(scene.works_for)
        while identity == "hangs":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        if identity == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(notes, f"tried {identity} {message.retry_count}\n".encode())
        if identity.startswith("fails"):
            raise ValueError("for ever")
        if identity.startswith("twice") and message.retry_count < 2:
            raise ValueError("not yet")
        os.write(notes, f"handled {identity} {message.retry_count}\n".encode())

    begin, end = session._BEGIN_WITHIN, session._END_WITHIN
    share = 0.25 if scene.hurries else 1.0
    with patch.multiple(session, _BEGIN_WITHIN=begin * share, _END_WITHIN=end * share):
        consumer.run()


if __name__ == "__main__":
    run(Scene(**json.loads(sys.argv[1])))
