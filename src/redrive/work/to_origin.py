"""The way back to the queue where a message failed, and only there, with its original routing key.

By the return path, as the retrier's: an origin queue that is not bound to it yet is looked for and
bound; an exclusive one gets its message by the exchange it came by. A message whose origin is not
known, gone, down or full, or would push out others for it, stays where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Final

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.amqp.fields import octets
from redrive.broker.topology import return_key
from redrive.work.by_exchange import not_by, sent_by_exchange
from redrive.work.dead_letters import trouble
from redrive.work.failed_message import MessageReader
from redrive.work.mover import Hold
from redrive.work.noting import Notes
from redrive.work.return_path import ReturnPath, Unreachable
from redrive.work.rooms import Rooms

NO_ORIGIN: Final = "no header says in which queue it failed; name a queue instead of --to-origin"
_LONGEST_KEY: Final = 255


class _Return(Publish):
    """A message on its way back, and where that is."""

    __slots__ = ("by_exchange", "queue", "tries")

    queue: str
    by_exchange: str
    tries: int


class ToOrigin:
    """Sends each message to its own origin."""

    def __init__(
        self,
        return_exchange: str,
        reader: MessageReader,
        notes: Notes,
        path: ReturnPath,
        rooms: Rooms | None,
    ) -> None:
        """`rooms` tells what is left in origins that would push out others for more; without it,
        they may."""
        self.bound_for: Counter[str] = Counter()
        """How many were sent to each origin, or would have been."""
        self.doubts: Counter[str] = Counter()
        self._rooms = rooms
        self._return_exchange = return_exchange
        self._reader = reader
        self._notes = notes
        self._path = path
        self._refusing: dict[str, Hold] = {}  # origins that did not take one

    async def prepare(self, deliveries: Iterable[Delivery]) -> None:
        """Ask for the room in their origins, before they are sent there."""
        if self._rooms is None or not self._rooms.unasked:
            return
        unasked = self._rooms.unasked
        origins = {self._reader.read(delivery).queue for delivery in deliveries}
        await self._rooms.ask([each for each in origins if each is not None and each in unasked])

    def publish(self, delivery: Delivery, user: str) -> Publish | Hold:
        message = self._reader.read(delivery)
        queue = message.queue
        if queue is None:
            return Hold(NO_ORIGIN)
        if queue in self._refusing:
            return self._refusing[queue]
        exchange, key = message.published(delivery)
        if len(octets(key)) > _LONGEST_KEY:
            return Hold("its original routing key is longer than a broker takes")
        bcc = fields.entry(b"BCC", fields.array((fields.longstr(return_key(queue)),)))
        raw = self._notes.draft(delivery, user).seal(only_on_the_way=bcc)
        room = None if self._rooms is None else self._rooms.of(queue)
        if room is not None and not room.take(delivery.body, raw):
            if not room.may_take_more:
                return self._refuse(queue, room.full)
            self.doubts[room.full] += 1
        self.bound_for[queue] += 1
        sent = _Return(self._return_exchange, key, raw, delivery.body)
        sent.queue, sent.by_exchange, sent.tries = queue, exchange, 1
        return sent

    async def reconsider(
        self, delivery: Delivery, sent: Publish, outcome: Returned | Refused
    ) -> Publish | Hold:
        assert isinstance(sent, _Return)
        if isinstance(outcome, Refused) or sent.tries > 1:
            return self._refuse(sent.queue, f"its queue {sent.queue!r} {trouble(outcome)}")
        try:
            bindable = await self._path.restore(sent.queue)
        except Unreachable as error:
            return self._refuse(sent.queue, str(error))
        again = _Return(sent.exchange, sent.routing_key, sent.properties, sent.body)
        if not bindable:  # only its owner's connection may touch it: by the way it came
            try:
                raw = await sent_by_exchange(Properties.read(sent.properties), self._path)
            except Unreachable as error:
                return Hold(str(error))
            if raw is None:
                return Hold(not_by(sent.by_exchange))
            again = _Return(sent.by_exchange, sent.routing_key, raw, sent.body)
        again.queue, again.by_exchange, again.tries = sent.queue, sent.by_exchange, sent.tries + 1
        return again

    def _refuse(self, queue: str, reason: str) -> Hold:
        self._refusing[queue] = Hold(reason)
        return self._refusing[queue]

    async def unreachable(self) -> AsyncIterator[tuple[str, int]]:
        """Which of the origins cannot be had, for a dry run: why, and how many messages that is."""
        for queue, count in self.bound_for.items():
            why = await self._path.look(queue)
            if why is not None:
                yield str(why), count
