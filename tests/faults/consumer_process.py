"""A consumer in a process of its own: `python -m` with a Scene. It notes in a file what it handles.

`poison` kills the process while it is handled, every time, and at once where it does not wait.
`suspect` waits until a message is there for who begins next. `exits` calls sys.exit, `leaves` has
the loop do so once such a message is there. `fails…` fails for ever, `twice…` fails
twice, `hangs` never ends and cannot be cancelled, all others pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from redrive import Consumer, Message
from redrive.amqp import Delivery, Publish, supervision
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import LaneOutcome
from redrive.broker.processes import GuardedProcess
from redrive.consumer import consumer as consumer_module
from redrive.consumer import serving
from redrive.consumer.settling import Deliveries, Settling
from tests.services.consuming import QUEUE, settings_for
from tests.services.eventually import eventually_async
from tests.services.moving import Kind

ROOT = Path(__file__).parents[2]
OF_HANDLERS = [(serving, "_BEGIN_WITHIN"), (serving, "_END_WITHIN")]
OF_A_STOP = [
    *OF_HANDLERS,
    (serving, "_PUT_BACK_WITHIN"),
    (serving, "_PUT_BACK_ALONE_WITHIN"),
    (supervision, "_GRACE"),
    (consumer_module, "_GONE_WITHIN"),
]
"""Where it is said how long a stop waits, for handlers and at all."""


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
    """Seconds that each message waits."""
    blocks_for: float = 0.0
    """Seconds that each takes without waiting, once it has waited."""
    threaded: bool = False
    """Whether the handler is a sync one, which runs in a thread."""
    marks: bool = False
    """Whether the beginning of each is noted too."""
    hurries: bool = False
    """Whether a stop waits a quarter of the time for what is being handled."""
    patient: bool = False
    """Whether all that a stop waits for has ten times as long."""
    unacked: bool = False
    """Whether it is killed once a copy is confirmed, before the ack."""

    def start(self, log: Path) -> GuardedProcess:
        argv = [sys.executable, "-m", "tests.faults.consumer_process", json.dumps(asdict(self))]
        return GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


class Handling:
    """What is done with a message, and noted."""

    def __init__(self, scene: Scene, consumer: Consumer) -> None:
        self._scene = scene
        self._consumer = consumer
        # Whole lines, at once: nothing that was noted is lost with the process.
        self._notes = os.open(scene.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(self, message: Message) -> None:
        self._begin(message)
        if self._scene.works_for:
            await asyncio.sleep(self._scene.works_for)
        if message.body in (b"suspect", b"leaves"):
            await eventually_async(lambda: arrived(self._consumer), what="one that waits")
        if message.body == b"leaves":
            asyncio.get_running_loop().call_soon(sys.exit, 4)
        while message.body == b"hangs":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        self._work(message)

    def handle_in_thread(self, message: Message) -> None:
        self._begin(message)
        self._work(message)

    def _begin(self, message: Message) -> None:
        if self._scene.marks or message.body in (b"poison", b"hangs", b"suspect"):
            self._note("began", message)

    def _work(self, message: Message) -> None:
        identity = message.body.decode()
        if identity == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        if identity == "exits":
            sys.exit(3)
        time.sleep(self._scene.blocks_for)
        self._note("tried", message)
        if identity.startswith("fails"):
            raise ValueError("for ever")
        if identity.startswith("twice") and message.retry_count < 2:
            raise ValueError("not yet")
        self._note("handled", message)

    def _note(self, what: str, message: Message) -> None:
        os.write(self._notes, f"{what} {message.body.decode()} {message.retry_count}\n".encode())


def run(scene: Scene) -> None:
    consumer = Consumer(settings=settings_for(scene.url, scene.kind))
    handling = Handling(scene, consumer)
    register = consumer.handler(
        QUEUE, retries=scene.retries, concurrency=scene.concurrency, prefetch=scene.prefetch
    )
    register(handling.handle_in_thread if scene.threaded else handling.handle)
    with (
        stopping_within(scene),
        once_confirmed(die) if scene.unacked else contextlib.nullcontext(),
    ):
        consumer.run()


@contextmanager
def stopping_within(scene: Scene) -> Iterator[None]:
    """Have a stop take as long as the scene wants."""
    with ExitStack() as stack:
        for place, name in OF_HANDLERS if scene.hurries else OF_A_STOP if scene.patient else ():
            time_of_it = getattr(place, name) * (0.25 if scene.hurries else 10)
            stack.enter_context(patch.object(place, name, time_of_it))
        yield


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def once_confirmed(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call it between the first confirm of a copy and the ack of its delivery."""
    finish, left = Settling._finish, [interrupt]

    async def trapped(
        self: Settling, delivery: Delivery, copy: Publish, answer: LaneOutcome, source: Deliveries
    ) -> bool:
        if answer is CONFIRMED and left:
            left.pop()()
        return await finish(self, delivery, copy, answer, source)

    with patch.object(Settling, "_finish", trapped):
        yield


def arrived(consumer: Consumer) -> bool:
    """Whether a message has arrived that nobody has begun with."""
    serves = consumer._session
    return serves is not None and any(each.intake._ready for each in serves._servings)


if __name__ == "__main__":
    run(Scene(**json.loads(sys.argv[1])))
