"""What reads much of the store: a few at a time, and none for who has gone away.

A search for a text reads every letter that the other filters leave, bodies too; a check of the
ledger counts every letter. Both take long in a large store. Without bounds a few open pages would
use up the store's connections, and nobody could log in. So the long reads of a process take turns,
waiting without a connection, and one whose caller has closed the connection is given up, in
PostgreSQL too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fastapi import Request

from redrive.domain.filters import Filters
from redrive.server.problems import Problem

GIVEN_UP: Final = 408
"""The status of what was given up. Nobody hears it, and whoever asks again has it done."""
_AT_A_TIME: Final = 2
_LOOK_EVERY: Final = 0.25

T = TypeVar("T")


class LongReads:
    """Those of one process."""

    NAME: Final = "long_reads"
    """Where the application keeps it."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def ask(self, request: Request, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` finds, when it is its turn."""
        asking = asyncio.ensure_future(self._in_turn(ask))
        try:
            while not asking.done():
                await asyncio.wait((asking,), timeout=_LOOK_EVERY)
                if not asking.done() and await request.is_disconnected():
                    raise Problem(GIVEN_UP, "gone", "nobody waits for this answer any more")
        finally:
            if asking.cancel():
                await asyncio.wait((asking,))
        return asking.result()

    async def _in_turn(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._turns:
            return await ask()


async def read_long(request: Request, ask: Callable[[], Awaitable[T]]) -> T:
    """Read much, in turn with others."""
    found = getattr(request.app.state, LongReads.NAME)
    assert isinstance(found, LongReads)
    return await found.ask(request, ask)


async def read_by(request: Request, filters: Filters, ask: Callable[[], Awaitable[T]]) -> T:
    """Read what matches; in turn with others if that is a search."""
    return await (read_long(request, ask) if filters.search else ask())
