"""Messages that are handled alone, since a process ended while it had them, and another while it
had them again.

They wait in a queue of their own. One is taken off it only when nothing else runs in this process
and nothing may begin. So one that comes with the redelivered flag was in hand, alone, when a
process ended: that is a failure like any other, and counts. On classic queues, where brokers do not
count, as on quorum queues, where they count the neighbours too.

It is settled before anything else begins, and the broker has said so: or the next one that ends the
process would have this one counted against. Only where the broker takes no copy of it do the others
go on after some seconds.

A connection that is lost while such a message is handled counts as well: from outside the two look
the same. A process that is told to stop puts it back unmarked before it goes, so that does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final

from redrive.amqp import Channel, Delivery
from redrive.consumer.gate import Gate
from redrive.consumer.message import Message
from redrive.consumer.running import Runner
from redrive.consumer.settling import Settling, Taken
from redrive.domain.failure import Failure
from redrive.domain.handling import CRASH, Outcome

_LOOK_EVERY: Final = 5.0
"""Seconds between two looks, for what another process has left; what this one sets aside is looked
for at once."""
_LONGEST_PAUSE: Final = 1.0
_SETTLED_WITHIN: Final = 5.0
"""Seconds that the others wait for the broker to take what becomes of it."""
_LETS_GO_WITHIN: Final = 0.3
"""Seconds that a handler has to end once it is cancelled."""
CRASHED: Final = Failure(
    error_type=CRASH,
    reason="the process that handled it ended, or lost the broker, before it was done",
)


class Alone:
    """Handles what one queue has set aside."""

    def __init__(
        self,
        channel: Channel,
        queue: str,
        runner: Runner,
        settling: Settling,
        gate: Gate,
        *,
        place: tuple[str, str],
    ) -> None:
        """`queue` is where they wait, `place` the handler's own queue and the vhost."""
        self._channel = channel
        self._queue = queue
        self._runner = runner
        self._settling = settling
        self._gate = gate
        self._place = place
        self._source = Taken(channel, queue)
        self._nudged = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._in_hand: Delivery | None = None
        self.running = False
        """Whether it has the process for itself."""
        self.settling: set[asyncio.Task[Any] | None] = set()
        """The task that handles them, while what became of one is being settled."""

    @property
    def idle(self) -> bool:
        return not self.settling and not self.running

    def nudge(self) -> None:
        """Something was set aside."""
        self._nudged.set()

    def stop(self) -> None:
        """Begin with nothing more."""
        self._stopping.set()
        self._nudged.set()

    async def run(self) -> None:
        """Until stopped; raises what ended it otherwise."""
        self._task = asyncio.current_task()
        while not self._stopping.is_set():
            self._nudged.clear()
            ready, _ = await self._channel.inspect_queue(self._queue)
            if not ready:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._nudged.wait(), _LOOK_EVERY)
                continue
            await self._runner.room()  # not while nothing else may begin
            took = await self._handle_one()
            # The others get as much time as it took, up to a second, or a hundred of these would
            # keep them waiting.
            await asyncio.sleep(min(took, _LONGEST_PAUSE))

    async def _handle_one(self) -> float:
        """Handle one alone, if there is one and it can be; how many seconds the others waited."""
        async with asyncio.TaskGroup() as settling:
            async with self._gate.alone_inside() as alone:
                began = time.monotonic()
                can_begin = self._runner.has_room and not self._stopping.is_set()
                self.running = alone and can_begin
                try:
                    if self.running and (taken := await self._take_one()):
                        settled = settling.create_task(self._settle(*taken))
                        await asyncio.wait((settled,), timeout=_SETTLED_WITHIN)
                finally:
                    self.running = False
            return time.monotonic() - began

    async def _take_one(self) -> tuple[Delivery, Outcome] | None:
        delivery = await self._channel.get(self._queue)
        if delivery is None:
            return None
        message = Message(delivery, *self._place)
        if delivery.redelivered:
            return delivery, self._runner.judge(message, CRASHED)
        self._in_hand = delivery
        await self._gate.acks.before_a_suspect()
        outcome = await self._runner.run(message)
        if self._let_go() is None:  # the handler did not end in time, and it was given back
            return None
        return delivery, outcome

    def _let_go(self) -> Delivery | None:
        delivery, self._in_hand = self._in_hand, None
        return delivery

    async def give_back(self, deadline: float) -> None:
        """End what is handled and put it back as it was: that we stop is nothing it did. A copy
        that is not confirmed by the deadline, a time of the loop, is there beside the message."""
        if self._in_hand is None or self._task is None:
            return
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=_LETS_GO_WITHIN)
        delivery = self._let_go()
        if delivery is not None:
            with contextlib.suppress(TimeoutError):  # the broker takes nothing now
                async with asyncio.timeout_at(deadline):
                    await self._settling.put_back_alone(delivery, self._source)

    async def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        self.settling.add(self._task)
        try:
            await self._settling.settle(delivery, outcome, self._source)
            await self._channel.inspect_queue(self._queue)  # its answer comes after the ack
        finally:
            self.settling.discard(self._task)
