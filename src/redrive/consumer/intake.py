"""The deliveries of one queue and the workers that give them to its handler.

A worker takes delivery after delivery, in their order, and works through what is there without
leaving its turn of the loop as long as the handler waits for nothing. Only when it does is another
worker woken. So a quick handler costs no task, no timer and no wake-up a message, and acks go out
in ranges. They are written before a handler begins, at most a millisecond late (`acks.py`).

A delivery that a process had before and did not answer may be what ended that process, and what is
running here would be taken along. Most often it is not: a deploy or a lost connection brings back
all that was prefetched. So it is set aside, to a second queue, which is consumed beside the first
by the same workers, in turn with it. What comes back from there too, or ended a process before, is
handled alone (`alone.py`).

A process that stops puts what it has of the second queue back there by a copy: a message that is
given back would have the mark of one that came back.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from redrive.amqp import Consumer, Delivery, Properties
from redrive.amqp.ours import count_of
from redrive.consumer.gate import Gate
from redrive.consumer.logs import log
from redrive.consumer.message import Message
from redrive.consumer.running import ACKED, Runner
from redrive.consumer.settling import Settling
from redrive.consumer.supply import Supply
from redrive.domain import headers
from redrive.domain.handling import Outcome
from redrive.errors import MalformedData

_OURS: Final = b"redrive-"
_BREATH: Final = 0.02
"""Seconds after which a worker that waits for nothing lets the loop have a turn."""
_SAY_WITHIN: Final = 3.0
"""Seconds in which what is set aside is counted for one line of the log."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is consumed for one handler: its queue, and the one for what is handled again."""

    own: Supply
    again: Supply


class Intake:
    """Takes in what one handler's queues deliver, and hands it to the workers."""

    def __init__(
        self,
        sources: Sources,
        runner: Runner,
        settling: Settling,
        gate: Gate,
        *,
        place: tuple[str, str],
        on_set_alone: Callable[[], None],
    ) -> None:
        """`place` is the queue and the vhost."""
        self._own = sources.own
        self._again = sources.again
        self._runner = runner
        self._settling = settling
        self._gate = gate
        self._acks = gate.acks
        self._queue, self._vhost = place
        self._on_set_alone = on_set_alone
        self._ready = sources.own.ready
        self._ready_again = sources.again.ready
        # Of the second queue, and where each is answered.
        self._in_hand: dict[Delivery, Consumer] = {}
        self._left: dict[Delivery, Consumer] = {}
        self._set_aside = 0
        self._workers = 0
        self._without_room = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._begins = True
        self.settling: set[asyncio.Task[Any] | None] = set()
        """The workers of which a copy may be on its way. Were one ended meanwhile, the copy and the
        message would both be there."""
        self._loop = asyncio.get_running_loop()
        gate.acks.written_by(self.write_acks)
        gate.when_open(self.wake)
        runner.on_wait = self.wake

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """What takes deliveries in, until it is stopped; each raises what ended it otherwise."""

        def lowered(prefetch: int) -> None:
            # What is given back for that is set aside to the second queue, and large there too.
            self._again.most = min(self._again.most, prefetch)

        return [
            self._own.take_in(self.wake),
            self._again.take_in(self.wake),
            self._own.watch(lowered),
            self._again.watch(lowered),
        ]

    def wake(self) -> None:
        """Have one more worker look for something to do."""
        if self._gate.closed or not (self._ready or self._ready_again):
            return
        while self._waiting:
            worker = self._waiting.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    async def work(self) -> None:
        """What a worker does, for ever."""
        self._workers += 1
        try:
            await self._work()
        finally:
            self._workers -= 1

    async def _work(self) -> None:
        ready, again, gate, begin = self._ready, self._ready_again, self._gate, self._runner.begin
        own, runner, threaded = self._own, self._runner, self._runner.threaded
        queue, vhost, acks, clock = self._queue, self._vhost, self._acks, time.monotonic
        task = asyncio.current_task()
        turn = False
        while True:
            breath = clock() + _BREATH
            while (ready or again) and not gate.closed:
                if threaded and not runner.has_room:
                    await self._room()
                    continue
                now = clock()
                if now > breath:
                    await asyncio.sleep(0)
                    breath = clock() + _BREATH
                    continue
                if now > acks.due:
                    acks.write(now)
                turn = not turn
                if again and (turn or not ready):
                    delivery = again.popleft()
                    await self._carefully(delivery, self._again.source_of(delivery))
                elif (delivery := ready.popleft()).redelivered or _OURS in delivery.properties:
                    await self._carefully(delivery, own.source_of(delivery))
                else:
                    source = own.source_of(delivery) if own.by_former else own.consumer
                    gate.running += 1
                    try:
                        rest = begin(Message(delivery, queue, vhost), task)
                        outcome = ACKED if rest is None else await rest
                    finally:
                        gate.left()
                    if outcome is ACKED and source is own.consumer:
                        own.ack(delivery)
                    else:
                        await self._settle(delivery, outcome, source)
            waiting = self._loop.create_future()
            self._waiting.append(waiting)
            await waiting

    async def _carefully(self, delivery: Delivery, source: Consumer) -> None:
        """A delivery that was somewhere before."""
        is_again = self._is_again(source)
        if delivery.redelivered or has_crashed(delivery):
            if await self._aside(delivery, source):
                return
            await self._gate.open()
            if not self._begins:
                self._leave(delivery, source)
                return
            self._acks.write(time.monotonic())
        if is_again:
            self._in_hand[delivery] = source
        self._gate.running += 1
        try:
            if is_again:
                if self._acks.keep_suspects_waiting:
                    self.wake()  # for as long as the broker confirms nothing; others are ready
                await self._acks.before_a_suspect()
            if not self._runner.has_room:  # somebody else took it meanwhile
                self._have_begun_later(delivery, source)
                return
            outcome = await self._runner.run(Message(delivery, self._queue, self._vhost))
        finally:
            self._gate.left()
        if is_again and self._in_hand.pop(delivery, None) is None:
            return  # it did not end in time, and was put back
        await self._settle(delivery, outcome, source)

    async def _room(self) -> None:
        """Wait until a handler can begin, with nothing in hand. That is no handler that runs: what
        is left at the end was not begun with, and others may be handled alone meanwhile."""
        self._without_room += 1
        try:
            await self._runner.room()
        finally:
            self._without_room -= 1

    def _have_begun_later(self, delivery: Delivery, source: Consumer) -> None:
        is_again = self._is_again(source)
        if is_again and self._in_hand.pop(delivery, None) is None:
            return  # it was put back
        if self._begins:
            (self._again if is_again else self._own).put_first(delivery, source)
        else:
            self._leave(delivery, source)

    def _is_again(self, source: Consumer) -> bool:
        return source.queue == self._again.queue

    # A copy may have to be sent, and to wait for a queue. That is no handler that runs: it neither
    # keeps others from going on, nor one from being handled alone.

    async def _settle(self, delivery: Delivery, outcome: Outcome, source: Consumer) -> None:
        self.wake()
        with self._one_settles():
            try:
                await self._settling.settle(delivery, outcome, source)
            finally:
                self._acks.hurry()

    @contextmanager
    def _one_settles(self) -> Iterator[None]:
        worker = asyncio.current_task()
        self.settling.add(worker)
        try:
            yield
        finally:
            self.settling.discard(worker)

    async def _aside(self, delivery: Delivery, source: Consumer) -> bool:
        """Set a delivery aside; False if neither queue takes it. Meanwhile nothing is handled
        alone: were that to end the process, the copy and the message would both be there."""
        self._gate.running += 1
        self.wake()
        try:
            with self._one_settles(), self._acks.setting_aside():
                return await self._set_aside_from(delivery, source)
        finally:
            self._gate.left()

    async def _set_aside_from(self, delivery: Delivery, source: Consumer) -> bool:
        first_time = not (self._is_again(source) or has_crashed(delivery))
        if first_time and await self._settling.set_again(delivery, source):
            self._note_set_aside()
            return True
        if await self._settling.set_alone(delivery, source):
            self._note_set_aside()
            self._on_set_alone()
            return True
        return False

    def _note_set_aside(self) -> None:
        if not self._set_aside:
            self._loop.call_later(_SAY_WITHIN, self.say_set_aside)
        self._set_aside += 1

    def say_set_aside(self) -> None:
        """Tell of what was set aside and not told yet."""
        if not self._set_aside:
            return
        log.warning(
            "consumer.set_aside",
            queue=self._queue,
            messages=self._set_aside,
            because="a process ended, lost the broker or lowered its prefetch while it had them",
        )
        self._set_aside = 0

    def write_acks(self) -> None:
        """Send every ack that is due, and write it before the turn of the loop ends."""
        self._own.write_acks()
        self._again.write_acks()

    # The end

    async def stop_taking(self) -> None:
        """Take nothing more. What has arrived is still worked on."""
        await self._own.stop()
        await self._again.stop()
        await asyncio.sleep(0)  # what has arrived is taken in

    @property
    def idle(self) -> bool:
        return not (self._ready or self._ready_again or self.settling or self.running)

    @property
    def running(self) -> int:
        """How many workers have something in hand that is not being settled."""
        waiting = sum(not worker.done() for worker in self._waiting)
        return self._workers - waiting - len(self.settling) - self._without_room

    def forget(self) -> None:
        """Have nobody call this any more."""
        self._acks.forget(self.write_acks)
        self._gate.forget(self.wake)

    @property
    def waiting(self) -> int:
        """How many deliveries nobody has begun with."""
        return len(self._ready) + len(self._ready_again)

    def begin_no_more(self) -> None:
        """Leave what nobody has begun with."""
        self._begins = False
        for supply in (self._own, self._again):
            for delivery, source in supply.begin_no_more():
                self._leave(delivery, source)

    def _leave(self, delivery: Delivery, source: Consumer) -> None:
        if self._is_again(source):
            self._left[delivery] = source
        else:
            source.hold(delivery)

    async def give_back(self, deadline: float) -> None:
        """Send every ack that is due, and give back what was left: by one nack, since single ones
        were seen to leave copies of acked messages in a quorum queue. Nothing is settled after.
        Copies are waited for until `deadline`, a time of the loop."""
        self.write_acks()
        await self._put_back_again(deadline)
        await self._own.give_back()
        await self._again.give_back()

    async def _put_back_again(self, deadline: float) -> None:
        """Of the second queue, what was left and what was handled and not to its end. A copy that
        is not confirmed in time is there beside the message itself."""
        back = self._left | self._in_hand
        self._left.clear()
        self._in_hand.clear()
        if not back or self._loop.time() >= deadline:
            return  # a copy that nobody waits for would only double it: they come back marked
        with suppress(TimeoutError):  # the broker takes nothing now: they come back marked
            async with asyncio.timeout_at(deadline):
                await asyncio.gather(
                    *[self._settling.put_back_again(each, source) for each, source in back.items()]
                )


def has_crashed(delivery: Delivery) -> bool:
    """Whether a process ended while it handled this message alone."""
    try:
        field = Properties.read(delivery.properties).header_field(headers.CRASHES)
        return count_of(field) > 0
    except MalformedData:
        return False
