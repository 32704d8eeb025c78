"""Which queues keep what is rejected in them: it arrives, unchanged, in the dead letter queue.

Asked right before a message is rejected, each time: somebody may have deleted since what was there
when the process started, and then the broker would drop it without a word. Many who ask at a time
get one answer, of a question that was put after theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from redrive.errors import BrokerError

Ask = Callable[[], Awaitable[Collection[str]]]
"""Finds out the names of such queues."""


class Parking:
    """Asks, no more than one question at a time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._asking = asyncio.Lock()
        self._next: asyncio.Task[Collection[str]] | None = None

    async def keeps(self, queue: str) -> bool:
        """Whether what is rejected in a queue is known to be kept. Raises nothing: no if nobody can
        be asked."""
        if self._next is None:
            self._next = asyncio.create_task(self._answer())
        return queue in await asyncio.shield(self._next)

    async def _answer(self) -> Collection[str]:
        async with self._asking:
            self._next = None  # who asks from now on wants to know it of later
            try:
                return await self._ask()
            except BrokerError:
                return ()
