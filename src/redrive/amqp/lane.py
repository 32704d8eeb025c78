"""A lane to the broker that one bad message cannot close.

Publishes go out pipelined. When the broker answers one of them by closing the channel or the
connection, nothing tells which one it was: all that are unanswered are in doubt. The lane then
opens anew and sends them one at a time, marked as possible duplicates; a message that closes it
again, alone this time, is the culprit, and everything behind it goes through.

Lanes that share a connection lose it together, each with messages in doubt: they take turns to send
alone, or the culprit of one would look like that of another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from redrive.amqp.confirms import Outcome, Publish, Returned
from redrive.amqp.connection import Connection
from redrive.amqp.publisher import Publisher
from redrive.amqp.republish import marked_redelivered
from redrive.errors import (
    BrokerError,
    ChannelClosed,
    ConnectionClosed,
    MalformedData,
    Unpublishable,
)

Connect = Callable[[str], Awaitable[Connection]]

_DESTINATION_AT_FAULT: Final = frozenset((403, 404))
_MESSAGE_MAY_BE_AT_FAULT: Final = frozenset((501, 502, 505, 541))


@dataclass(frozen=True, slots=True)
class Poison:
    """The broker closed the channel on this message twice, the second time on it alone."""

    error: BrokerError


LaneOutcome = Outcome | Poison


class Lane:
    """A publisher that recovers. One owner publishes and reads the outcomes."""

    def __init__(self, connect: Connect, name: str, turns: asyncio.Lock | None = None) -> None:
        """`turns` is one for all lanes of a connection."""
        self._connect = connect
        self._name = name
        self._turns = turns or asyncio.Lock()
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        self._in_doubt: deque[Publish] = deque()  # being sent again, one at a time
        self._waiting: list[Publish] = []  # not sent yet: they came while it recovered

    async def open(self) -> None:
        async with self._turns:
            await self._open()

    async def _open(self) -> None:
        self._connection = await self._connect(self._name)
        await self._open_channel()

    async def _open_channel(self) -> None:
        assert self._connection is not None
        channel = await self._connection.channel()
        self._publisher = await channel.publisher()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    @property
    def user(self) -> str:
        assert self._connection is not None
        return self._connection.user

    @property
    def unanswered(self) -> int:
        """Publishes of which nobody knows whether the broker has them."""
        # While it recovers, whatever is sent is one of those in doubt.
        sent = self._publisher.unanswered if self._publisher is not None else ()
        return len(self._in_doubt) or len(sent)

    async def ready(self) -> None:
        """Wait while the broker blocks publishers or the socket is full.

        A closed lane does not raise here: `next_outcomes` is where it recovers or ends.
        """
        assert self._publisher is not None
        with contextlib.suppress(BrokerError):
            await self._publisher.ready()

    def publish_all(self, publishes: Sequence[Publish]) -> list[tuple[Publish, Unpublishable]]:
        """Send messages, or keep them until the lane has recovered. What no broker would take comes
        back unsent."""
        assert self._publisher is not None
        if self._in_doubt or self._publisher.closed:
            self._waiting += publishes
            return []
        return self._publisher.publish_all(publishes)

    async def next_outcomes(self) -> list[tuple[Publish, LaneOutcome]]:
        """Wait for outcomes and take all that are there; while it recovers, one at a time."""
        assert self._publisher is not None
        if self._in_doubt:
            async with self._turns:
                if not self._publisher.closed:  # by another lane, before it was this one's turn
                    # It counts as in doubt until its outcome is known: only then may others go out.
                    publish = self._in_doubt[0]
                    found = [(publish, await self._send_alone(publish))]
                    self._in_doubt.popleft()
                    return found
        elif self._waiting and not self._publisher.closed:
            return self._send_waiting() or await self.next_outcomes()
        try:
            return await self._publisher.next_outcomes()  # type: ignore[return-value]
        except (ChannelClosed, ConnectionClosed) as error:
            if not _may_blame_a_message(error):
                raise
            await self._begin_recovery()
            return []

    async def _begin_recovery(self) -> None:
        assert self._publisher is not None
        self._in_doubt.extend(self._publisher.unanswered)
        for publish in self._in_doubt:
            publish.returned = None
            with contextlib.suppress(MalformedData):  # sent as it is, then: better than not at all
                publish.properties = marked_redelivered(publish.properties)
        async with self._turns:
            await self._reopen()

    def _send_waiting(self) -> list[tuple[Publish, LaneOutcome]]:
        """Send what was kept during a recovery; what cannot be sent comes back at once."""
        waiting, self._waiting = self._waiting, []
        refused = self.publish_all(waiting)
        return [(publish, Poison(BrokerError(str(error)))) for publish, error in refused]

    async def _send_alone(self, publish: Publish) -> LaneOutcome:
        assert self._publisher is not None
        try:
            return await self._publisher.send(publish)
        except Unpublishable as error:
            return Poison(BrokerError(str(error)))
        except (ChannelClosed, ConnectionClosed) as error:
            if not _may_blame_a_message(error):
                raise
            await self._reopen()
            if error.code in _DESTINATION_AT_FAULT:
                return Returned(error.code, error.text)
            return Poison(error)

    async def _reopen(self) -> None:
        assert self._connection is not None
        if self._connection.is_open:
            await self._open_channel()
        else:
            await self._open()


def _may_blame_a_message(error: ChannelClosed | ConnectionClosed) -> bool:
    return isinstance(error, ChannelClosed) or error.code in _MESSAGE_MAY_BE_AT_FAULT
