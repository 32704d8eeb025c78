"""Searches: a few at a time, and none for who has gone away.

A search for a text reads every letter that the other filters leave, bodies too, which takes long in
a large store. Without bounds a few open pages would use up the store's connections, and nobody
could log in. So searches of a process take turns, waiting without a connection, and one whose
caller has closed the connection is given up, in PostgreSQL too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fastapi import Request

from redrive.domain.filters import Filters
from redrive.server.problems import Problem

_AT_A_TIME: Final = 2
_LOOK_EVERY: Final = 0.25

T = TypeVar("T")


class Searches:
    """The searches of one process."""

    NAME: Final = "searches"
    """Where the application keeps it."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def ask(self, request: Request, filters: Filters, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` finds by these filters."""
        if not filters.search:
            return await ask()
        asking = asyncio.ensure_future(self._in_turn(ask))
        try:
            while not asking.done():
                await asyncio.wait((asking,), timeout=_LOOK_EVERY)
                if not asking.done() and await request.is_disconnected():
                    raise Problem(408, "gone", "nobody waits for this search any more", remedy="")
        finally:
            if asking.cancel():
                await asyncio.wait((asking,))
        return asking.result()

    async def _in_turn(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._turns:
            return await ask()


def searches_of(request: Request) -> Searches:
    found = getattr(request.app.state, Searches.NAME)
    assert isinstance(found, Searches)
    return found
