"""The deliveries of one queue and the workers that give them to its handler.

A worker takes delivery after delivery, in their order, and works through what is there without
leaving its turn of the loop as long as the handler waits for nothing. Only when it does is another
worker woken. So a quick handler costs no task, no timer and no wake-up a message, and acks go out
in ranges.

A delivery that a process had before and did not answer is not run here: it is set aside, to be
handled alone (`alone.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from redrive.amqp import Consumer, Delivery, Properties
from redrive.amqp.ours import count_of
from redrive.consumer.gate import Gate
from redrive.consumer.message import Message
from redrive.consumer.running import ACKED, Runner
from redrive.consumer.settling import Settling
from redrive.domain import headers
from redrive.domain.handling import Outcome
from redrive.errors import MalformedData

log = structlog.get_logger()

_OURS: Final = b"redrive-"
_BREATH: Final = 0.02
"""Seconds after which a worker that waits for nothing lets the loop have a turn."""


class Intake:
    """Takes in what one queue delivers, and hands it to the workers."""

    def __init__(
        self,
        consumer: Consumer,
        runner: Runner,
        settling: Settling,
        gate: Gate,
        *,
        place: tuple[str, str],
        on_set_alone: Callable[[], None],
    ) -> None:
        """`place` is the queue and the vhost."""
        self._consumer = consumer
        self._runner = runner
        self._settling = settling
        self._gate = gate
        self._queue, self._vhost = place
        self._on_set_alone = on_set_alone
        self._ready: deque[Delivery] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._done: list[Delivery] = []
        self._unsettled = 0
        self._loop = asyncio.get_running_loop()
        gate.when_open(self.wake)
        runner.on_wait = self.wake

    async def take_in(self) -> None:
        """Until the consumer is cancelled; raises what ended it otherwise."""
        while batch := await self._consumer.next_batch():
            self._ready.extend(batch)
            self.wake()

    def wake(self) -> None:
        """Have one more worker look for something to do."""
        if self._gate.closed or not self._ready:
            return
        while self._waiting:
            worker = self._waiting.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    async def work(self) -> None:
        """What a worker does, for ever."""
        ready, gate, run = self._ready, self._gate, self._runner.run
        queue, vhost, clock = self._queue, self._vhost, time.monotonic
        while True:
            breath = clock() + _BREATH
            while ready and not gate.closed:
                delivery = ready.popleft()
                if delivery.redelivered or _OURS in delivery.properties:
                    await self._carefully(delivery)
                else:
                    gate.running += 1
                    try:
                        outcome = await run(Message(delivery, queue, vhost))
                    finally:
                        gate.left()
                    if outcome is ACKED:
                        self._ack(delivery)
                    else:
                        await self._settle(delivery, outcome)
                if clock() > breath:
                    await asyncio.sleep(0)
                    breath = clock() + _BREATH
            waiting = self._loop.create_future()
            self._waiting.append(waiting)
            await waiting

    async def _carefully(self, delivery: Delivery) -> None:
        """A delivery that was somewhere before."""
        if delivery.redelivered or has_crashed(delivery):
            if await self._set_alone(delivery):
                self._on_set_alone()
                return
            await self._gate.open()
        self._gate.running += 1
        try:
            outcome = await self._runner.run(Message(delivery, self._queue, self._vhost))
        finally:
            self._gate.left()
        await self._settle(delivery, outcome)

    # A copy may have to be sent, and to wait for a queue. That is no handler that runs: it neither
    # keeps others from going on, nor one from being handled alone.

    async def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        self._unsettled += 1
        self.wake()
        try:
            await self._settling.settle(delivery, outcome, self._consumer)
        finally:
            self._unsettled -= 1

    async def _set_alone(self, delivery: Delivery) -> bool:
        self._unsettled += 1
        self.wake()
        try:
            return await self._settling.set_alone(delivery, self._consumer)
        finally:
            self._unsettled -= 1

    def _ack(self, delivery: Delivery) -> None:
        if not self._done:
            self._loop.call_soon(self._flush)
        self._done.append(delivery)

    def _flush(self) -> None:
        done, self._done = self._done, []
        self._consumer.ack(*done)
        self._consumer.flush()

    # The end

    async def stop_taking(self) -> None:
        """Take nothing more. What has arrived is still worked on."""
        await self._consumer.cancel()

    @property
    def idle(self) -> bool:
        return not self._ready and not self._unsettled

    def begin_no_more(self) -> None:
        """Leave what nobody has begun with."""
        while self._ready:
            self._consumer.hold(self._ready.popleft())

    async def give_back(self) -> None:
        """Send every ack that is due, and give back what was left: by one nack, since single ones
        were seen to leave copies of acked messages in a quorum queue. Nothing is settled after."""
        if self._done:
            self._flush()
        await self._consumer.give_back()


def has_crashed(delivery: Delivery) -> bool:
    """Whether a process ended while it handled this message alone."""
    try:
        field = Properties.read(delivery.properties).header_field(headers.CRASHES)
        return count_of(field) > 0
    except MalformedData:
        return False
