"""The janitor: what has to be done now and then, by any process, never by a person.

So far it sums up the ledger, so that reading the books costs the same however much came in. Any
number of janitors may run: none needs the others to be away.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Protocol

import structlog

from redrive.errors import StoreError

log = structlog.get_logger()

_EVERY: Final = 30.0


class LedgerBooks(Protocol):
    """The books that are kept short."""

    async def compact(self) -> int: ...


class Janitor:
    """Does its round until told to stop, through every loss of the store."""

    def __init__(self, books: LedgerBooks) -> None:
        self._books = books

    async def run(self, stopping: asyncio.Event) -> None:
        """A round every half minute."""
        while not stopping.is_set():
            try:
                await self._books.compact()
            except StoreError as error:
                log.warning("janitor.store_away", error=str(error), remedy=error.remedy)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _EVERY)
