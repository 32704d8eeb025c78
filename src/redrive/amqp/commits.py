"""Which acks of a connection are known to be in force: those of a transaction that was answered.

An ack has no answer. One that was written to a connection that is lost may or may not have been
read, and its message may be in its queue again. In a transaction, commit-ok says that it was. Tried
on 3.10.8, by stopping the broker in the middle of a sweep: of classic and of quorum queues exactly
those acks were lost whose commit had no answer. A broker that is killed may also forget answered
ones: it writes acks down late.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redrive.amqp import frames
from redrive.amqp.channel import Channel

if TYPE_CHECKING:
    from redrive.amqp.connection import Connection
    from redrive.amqp.wire import Wire


class Commits:
    """Opens the channels of one connection, and knows their commits."""

    def __init__(self) -> None:
        self._channels: list[_Committing] = []

    def channel(self, connection: Connection, wire: Wire, number: int) -> Channel:
        channel = _Committing(connection, wire, number)
        self._channels.append(channel)
        return channel

    @property
    def acked(self) -> int:
        """How many deliveries are known to be acked, of consumers that nack only at their end."""
        return sum(channel.acked for channel in self._channels)


class _Committing(Channel):
    """A channel that keeps count of its transactions."""

    def __init__(self, connection: Connection, wire: Wire, number: int) -> None:
        super().__init__(connection, wire, number)
        self.acked = 0
        self._unanswered: deque[int] = deque()  # deliveries acked by then, of each commit

    def commit(self) -> None:
        if self._transacts and self.consumer is not None:
            self._unanswered.append(self.consumer._settlement.answered)
        super().commit()

    def on_method(self, index: int, payload: bytes) -> None:
        if index == frames.COMMIT_OK and self._unanswered:
            self.acked = self._unanswered.popleft()
        super().on_method(index, payload)
