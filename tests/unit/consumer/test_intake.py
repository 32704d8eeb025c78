"""Which worker takes what, while the broker has not confirmed what is set aside."""

from __future__ import annotations

import asyncio
from collections import deque
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

    def source_of(self, delivery: Delivery) -> Arrived:
        return self

    def ack(self, *deliveries: Delivery) -> None:
        self.acked += deliveries

    def write_acks(self) -> None:
        pass


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
