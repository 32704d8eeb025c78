"""What fits into the queues of a vhost, asked for as they turn up among those that messages go to.

To know how many bytes are in a queue takes a second or more, and is not known at all of one that
messages come to and go from: who brings messages to one queue need not wait for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from redrive.broker.room import LengthLimit, Room

_AT_ONCE: Final = 100
"""Queues that are asked for at the same time: each takes a channel meanwhile."""
AskForRoom = Callable[[str, LengthLimit], Awaitable[Room]]


class Rooms:
    """The queues that have a length limit, by name."""

    def __init__(self, limits: Mapping[str, LengthLimit], ask: AskForRoom) -> None:
        self._unasked = dict(limits)
        self._ask = ask
        self._rooms: dict[str, Room] = {}

    @property
    def unasked(self) -> Collection[str]:
        """Those of which only the limit is known."""
        return self._unasked.keys()

    async def ask(self, queues: Iterable[str]) -> None:
        """Find out what fits into these of them, all at the same time."""
        limits = {queue: self._unasked[queue] for queue in queues}
        turn = asyncio.Semaphore(_AT_ONCE)

        async def find(queue: str, limit: LengthLimit) -> None:
            async with turn:
                self._rooms[queue] = await self._ask(queue, limit)
            del self._unasked[queue]

        await asyncio.gather(*(find(*each) for each in limits.items()))

    def of(self, queue: str) -> Room | None:
        """What fits into a queue that was asked for; None if nothing bounds that."""
        return self._rooms.get(queue)
