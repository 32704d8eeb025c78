"""Writes what this process counts to the store, and that it is there, every few seconds.

What cannot be written stays for the next time, so an outage of the store loses no count; a kill -9
loses the counts of the last `_EVERY` seconds, and nothing else. The work itself never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Final

import structlog

from redrive.errors import StoreError
from redrive.store.counts import Counts
from redrive.tally import Tally

log = structlog.get_logger()

_EVERY: Final = 10.0


class Counting:
    """Keeps the counts of one process."""

    def __init__(self, process: str, roles: Collection[str], counts: Counts, tally: Tally) -> None:
        self._process = process
        self._roles = roles
        self._counts = counts
        self._tally = tally

    async def run(self, ended: asyncio.Event) -> None:
        """Until the roles have ended, and once more then."""
        while not ended.is_set():
            await self.write()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _EVERY)
        await self.write(last=True)

    async def write(self, *, last: bool = False) -> None:
        """Write what was counted since the last time. Says nothing of a store that is away: whoever
        needs it more does."""
        taken = self._tally.take()
        try:
            if last:
                await self._counts.leave(self._process, taken)
            else:
                levels = self._tally.levels
                await self._counts.beat(self._process, self._roles, levels, taken)
        except StoreError:
            self._tally.give_back(taken)
        except Exception:
            log.exception("run.not_counted")  # now, and not when the process ends
            raise
