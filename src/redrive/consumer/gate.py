"""The gate of a process: many messages at a time, or one alone.

A message that was being handled when a process ended may be what ended it. Nobody can tell it from
its neighbours, so once that has happened twice each of them is handled alone, while nothing else
runs in the process: if that ends again, there is only one that it can have been.

Who is to be alone waits only for some time: one handler that hangs would else stop every queue of
the process. Then the gate opens again, and it is tried later, each time later and more patiently.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from redrive.consumer.acks import Acks
from redrive.consumer.logs import log

_PATIENCE: Final = 5.0
_MOST_PATIENCE: Final = 60.0
_LONGEST_REST: Final = 600.0
"""Seconds: how long the gate stays closed for what still runs, and how long it then is open."""


class Gate:
    """Counts what runs. Who starts something looks at `closed` first; who ends it calls `left`."""

    def __init__(self, *, patience: float = _PATIENCE) -> None:
        self.acks = Acks()
        self._patience = patience
        self._in_vain = 0
        self._rests_until = 0.0
        self._given_up = asyncio.Event()
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

    def forget(self, wake: Callable[[], None]) -> None:
        """Do not tell them any more."""
        self._on_open.remove(wake)

    def left(self) -> None:
        self.running -= 1
        if self.closed and not self.running:
            self._idle.set()

    async def open(self) -> None:
        """Wait until something may begin."""
        while self.closed:
            await self._opened.wait()

    def give_up(self) -> None:
        """Let nobody wait to be alone any more."""
        self._given_up.set()
        self._idle.set()

    async def _rest(self) -> None:
        """Let the others go on after it was tried in vain."""
        left = self._rests_until - asyncio.get_running_loop().time()
        if left > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._given_up.wait(), left)

    async def _empties(self) -> bool:
        """Wait until nothing runs; whether that is so."""
        patience = min(self._patience * 2**self._in_vain, _MOST_PATIENCE)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self.running and not self._given_up.is_set():
                    self._idle.clear()
                    await self._idle.wait()
        if not self.running:
            self._in_vain = 0
            return True
        if not self._given_up.is_set():
            self._in_vain = min(self._in_vain + 1, 20)
            rest = min(self._patience * 2**self._in_vain, _LONGEST_REST)
            self._rests_until = asyncio.get_running_loop().time() + rest
            log.warning(
                "consumer.cannot_handle_alone", running=self.running, waited_s=patience, rest_s=rest
            )
        return False

    @property
    def idle(self) -> bool:
        return not self.running and not self.alone

    @asynccontextmanager
    async def alone_inside(self) -> AsyncIterator[bool]:
        """Wait until nothing runs, and let nothing begin meanwhile. Gives whether that is so: what
        runs may not end for too long."""
        async with self._one_at_a_time:
            await self._rest()
            self.closed = True
            self._opened.clear()
            try:
                self.alone = await self._empties()
                yield self.alone
            finally:
                self.alone = self.closed = False
                self._opened.set()
                for wake in self._on_open:
                    wake()
