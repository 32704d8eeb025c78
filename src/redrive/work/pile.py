"""What is understood and waits for a writer of the store.

A writer takes all that there is, up to what a transaction should hold: the busier it is, the larger
its next batch, and one message alone waits for no other. Of many it takes whole hundreds, for which
a store may have a statement ready. The pile itself has no limit: it holds
deliveries without an answer, and those the broker and the consumer's budget limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from redrive.amqp import Delivery
from redrive.domain.letter import Arrival

_BATCH: Final = 500
_BATCH_BYTES: Final = 8_000_000
"""A transaction holds no more than one of these, or one message that is larger."""

_WHOLE: Final = 100

Batch = tuple[list[Delivery], list[Arrival]]


class Pile:
    """Taken from in the order in which it was added to, by any number of writers."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Delivery, Arrival]] = deque()
        self._closed = False
        self._changed = asyncio.Event()

    def add(self, deliveries: Sequence[Delivery], arrivals: Sequence[Arrival]) -> None:
        """Put deliveries on it, each with what it was understood as."""
        self._waiting.extend(zip(deliveries, arrivals, strict=True))
        self._changed.set()

    def close(self) -> None:
        """Nothing more is added."""
        self._closed = True
        self._changed.set()

    async def take(self) -> Batch | None:
        """Wait for something and take a batch of it; None once it is closed and empty."""
        while not self._waiting:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        count = min(len(self._waiting), _BATCH)
        if count > _WHOLE:
            count -= count % _WHOLE
        deliveries: list[Delivery] = []
        arrivals: list[Arrival] = []
        size = 0
        while len(deliveries) < count:
            size += self._waiting[0][0].size
            if deliveries and size > _BATCH_BYTES:
                break
            delivery, arrival = self._waiting.popleft()
            deliveries.append(delivery)
            arrivals.append(arrival)
        return deliveries, arrivals
