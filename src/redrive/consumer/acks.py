"""What has to be out before a handler begins: it may end its process at once, and take with it what
was not written.

- Acks of messages that are done. They do not wait for the turn of the loop to end, nor for earlier
  deliveries to be done, but are written through to the socket. A write for each message would cost
  more than a quick handler does: where the last was less than a millisecond ago, a handler begins
  without. So what was done in the millisecond before a process ended may be done again.
- Not so around messages that a process had before and did not answer. Before one of them begins,
  and before anything begins after one was settled, everything is written; and before one begins,
  none is on its way to a queue beside, or it would be there and here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_KEPT: Final = 0.001
"""Seconds that an ack may be kept back, while handlers begin, to go out in a range with others."""


class Acks:
    """The acks of all handlers of a process. Who begins a handler calls `write` if it is past
    `due`, a time of the monotonic clock."""

    def __init__(self) -> None:
        self._writers: list[Callable[[], None]] = []
        self._set_aside = asyncio.Event()
        self._being_set_aside = 0
        self.due = 0.0

    def written_by(self, write: Callable[[], None]) -> None:
        """Have a function called that writes what is due."""
        self._writers.append(write)

    def forget(self, write: Callable[[], None]) -> None:
        """Do not call that function any more."""
        self._writers.remove(write)

    def hurry(self) -> None:
        """Let nothing begin before all is written."""
        self.due = 0.0

    def write(self, now: float) -> None:
        for write in self._writers:
            write()
        self.due = now + _KEPT

    @contextmanager
    def setting_aside(self) -> Iterator[None]:
        """While a copy of a message is on its way to a queue beside, and the message not acked."""
        self._being_set_aside += 1
        try:
            yield
        finally:
            self._being_set_aside -= 1
            self.hurry()
            self._set_aside.set()

    @property
    def keep_suspects_waiting(self) -> bool:
        """Whether something is on its way to a queue beside."""
        return self._being_set_aside > 0

    async def before_a_suspect(self) -> None:
        """Wait until nothing is on its way to a queue beside, and write all acks."""
        while self._being_set_aside:
            self._set_aside.clear()
            await self._set_aside.wait()
        self.write(time.monotonic())
