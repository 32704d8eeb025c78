"""The gate of a process: many messages at a time, or one alone.

A message that was being handled when a process ended may be what ended it. Nobody can tell it from
its neighbours, so each of them is handled alone, while nothing else runs in the process: if that
ends again, there is only one that it can have been.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Gate:
    """Counts what runs. Who starts something looks at `closed` first; who ends it calls `left`."""

    __slots__ = ("_idle", "_on_open", "_one_at_a_time", "_opened", "alone", "closed", "running")

    def __init__(self) -> None:
        self.closed = False
        self.running = 0
        self.alone = False
        self._one_at_a_time = asyncio.Lock()
        self._idle = asyncio.Event()
        self._opened = asyncio.Event()
        self._on_open: list[Callable[[], None]] = []

    def when_open(self, wake: Callable[[], None]) -> None:
        """Have somebody told each time that the gate opens."""
        self._on_open.append(wake)

    def left(self) -> None:
        self.running -= 1
        if self.closed and not self.running:
            self._idle.set()

    async def open(self) -> None:
        """Wait until something may begin."""
        while self.closed:
            await self._opened.wait()

    @property
    def idle(self) -> bool:
        return not self.running and not self.alone

    @asynccontextmanager
    async def alone_inside(self) -> AsyncIterator[None]:
        """Wait until nothing runs, and let nothing begin meanwhile."""
        async with self._one_at_a_time:
            self.closed = True
            self._opened.clear()
            try:
                while self.running:
                    self._idle.clear()
                    await self._idle.wait()
                self.alone = True
                yield
            finally:
                self.alone = self.closed = False
                self._opened.set()
                for wake in self._on_open:
                    wake()
