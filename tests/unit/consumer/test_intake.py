"""Which worker takes what, while the broker has not confirmed what is set aside."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from redrive.amqp import Delivery, Properties
from redrive.consumer.gate import Gate
from redrive.consumer.intake import Intake, Sources
from redrive.consumer.message import Message
from redrive.consumer.running import Limits, Runner
from tests.services.eventually import eventually_async

PLAIN = Properties.empty().raw


class Arrived:
    """A supply that has all it will have; and the consumer it came by."""

    def __init__(self, queue: str, *deliveries: Delivery) -> None:
        self.queue = queue
        self.ready = deque(deliveries)
        self.by_former: dict[Delivery, Any] = {}
        self.consumer = self
        self.acked: list[Delivery] = []
        self.held: list[Delivery] = []

    def source_of(self, delivery: Delivery) -> Arrived:
        return self

    def ack(self, *deliveries: Delivery) -> None:
        self.acked += deliveries

    def write_acks(self) -> None:
        pass

    def put_first(self, delivery: Delivery, source: Arrived) -> None:
        self.ready.appendleft(delivery)

    def begin_no_more(self) -> list[tuple[Delivery, Arrived]]:
        left = [(delivery, self) for delivery in self.ready]
        self.ready.clear()
        return left

    def hold(self, delivery: Delivery) -> None:
        self.held.append(delivery)


class Silent:
    """Settles, but for what is set aside: the broker does not confirm that."""

    def __init__(self) -> None:
        self.confirms = asyncio.Event()

    async def set_again(self, delivery: Delivery, source: Arrived) -> bool:
        await self.confirms.wait()
        return True

    async def settle(self, delivery: Delivery, outcome: object, source: Arrived) -> None:
        source.ack(delivery)


def delivered(tag: int, body: bytes, *, redelivered: bool = False) -> Delivery:
    return Delivery(tag, redelivered, "", "q", PLAIN, body)


async def test_what_is_ready_is_handled_while_one_waits_for_what_is_set_aside() -> None:
    seen: list[bytes] = []

    async def handle(message: Message) -> None:
        seen.append(message.body)

    own, again, settling = Arrived("q"), Arrived("again"), Silent()
    intake = Intake(
        Sources(own, again),  # type: ignore[arg-type]
        Runner(handle, Limits(), tiers=3),
        settling,  # type: ignore[arg-type]
        Gate(),
        place=("q", "/"),
        on_set_alone=lambda: None,
    )
    workers = [asyncio.create_task(intake.work()) for _ in range(3)]
    try:
        await eventually_async(lambda: len(intake._waiting) == 3, what="workers that wait")
        own.ready.append(delivered(1, b"was elsewhere", redelivered=True))
        intake.wake()
        await eventually_async(lambda: intake.settling, what="its copy")
        # The last to arrive: the prefetch is full.
        again.ready.append(delivered(1, b"again"))
        own.ready.extend(delivered(tag, b"plain") for tag in range(2, 6))
        intake.wake()
        await eventually_async(lambda: len(seen) == 4, what="what is ready")
        assert b"again" not in seen
        settling.confirms.set()
        await eventually_async(lambda: b"again" in seen, what="what waited")
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)


class Hanging:
    """A sync handler that may hang, its queues, and workers that hand it what arrives there."""

    def __init__(self) -> None:
        self.own, self.again, self.gate = Arrived("q"), Arrived("again"), Gate(patience=60)
        self.seen: list[bytes] = []
        self._ends: dict[bytes, threading.Event] = {}
        self.settling = Silent()
        self.intake = Intake(
            Sources(self.own, self.again),  # type: ignore[arg-type]
            Runner(self.handle, Limits(timeout=timedelta(milliseconds=20)), tiers=3),
            self.settling,  # type: ignore[arg-type]
            self.gate,
            place=("q", "/"),
            on_set_alone=lambda: None,
        )

    def handle(self, message: Message) -> None:
        self.seen.append(message.body)
        self.end_of(message.body).wait(60)

    def end_of(self, body: bytes) -> threading.Event:
        return self._ends.setdefault(body, threading.Event())

    def arrive(self, *bodies: bytes) -> None:
        self.own.ready.extend(delivered(tag, body) for tag, body in enumerate(bodies, 1))
        self.intake.wake()

    @asynccontextmanager
    async def at_work(self, workers: int) -> AsyncIterator[None]:
        at_work = [asyncio.create_task(self.intake.work()) for _ in range(workers)]
        try:
            await eventually_async(lambda: len(self.intake._waiting) == workers)
            yield
        finally:
            for end in tuple(self._ends.values()):
                end.set()
            for worker in at_work:
                worker.cancel()
            await asyncio.wait(at_work)


async def test_who_waits_for_a_thread_to_end_has_nothing_in_hand() -> None:
    hanging = Hanging()
    async with hanging.at_work(1):
        hanging.arrive(b"hangs", b"hangs too", b"waits")  # one that runs, one that is left behind
        await eventually_async(lambda: len(hanging.own.acked) == 2, what="two timeouts")
        await eventually_async(lambda: hanging.intake.running == 0, what="nothing in hand")
        async with asyncio.timeout(30), hanging.gate.alone_inside() as alone:
            assert alone  # another handler's message may be
            hanging.end_of(b"hangs").set()
            await eventually_async(lambda: not hanging.intake._without_room, what="room")
            assert len(hanging.seen) == 2  # and nothing begins meanwhile
        await eventually_async(lambda: b"waits" in hanging.seen, what="what waited")


async def test_what_waits_for_a_thread_to_end_is_left_by_one_that_stops() -> None:
    hanging = Hanging()
    async with hanging.at_work(2):
        hanging.arrive(b"hangs", b"hangs too", b"waits", b"waits too")
        await eventually_async(lambda: len(hanging.own.acked) == 2, what="two timeouts")
        hanging.intake.begin_no_more()
        assert [each.body for each in hanging.own.held] == [b"waits", b"waits too"]
        await eventually_async(lambda: hanging.intake.idle, what="nothing in hand")
        hanging.end_of(b"hangs").set()
        await eventually_async(lambda: not hanging.intake._without_room, what="room")
    assert len(hanging.seen) == 2


async def test_what_finds_its_room_taken_is_begun_with_later() -> None:
    hanging = Hanging()
    async with hanging.at_work(3):
        # It has to wait for what is set aside, and meanwhile others hang.
        hanging.own.ready.append(delivered(9, b"was elsewhere", redelivered=True))
        hanging.intake.wake()
        await eventually_async(lambda: hanging.intake.settling, what="its copy")
        hanging.again.ready.append(delivered(1, b"again"))
        hanging.arrive(b"hangs", b"hangs too")
        await eventually_async(lambda: len(hanging.own.acked) == 2, what="two timeouts")
        hanging.settling.confirms.set()
        await eventually_async(lambda: not hanging.gate.running, what="nothing that runs")
        assert [each.body for each in hanging.again.ready] == [b"again"]
        assert not hanging.intake._in_hand
        hanging.end_of(b"hangs").set()
        await eventually_async(lambda: b"again" in hanging.seen, what="what waited")
