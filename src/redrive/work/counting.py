"""Writes what this process counts to the store, and that it is there, every few seconds.

What cannot be written stays for the next time, so an outage of the store loses no count; and it is
written as the same batch, so what the store had taken after all counts once. A kill -9 loses the
counts of the last `_EVERY` seconds, and nothing else. The work itself never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Collection
from typing import Final

import structlog

from redrive.errors import StoreError
from redrive.store.counts import Batch, Counts
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
        self._unsure: Batch | None = None
        """Written, or not: the store did not say."""

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
        try:
            if not last or self._unsure is not None:
                await self._beat()
            if last:
                await self._counts.leave(self._process, self._tally.take())
        except StoreError:
            return
        except Exception:
            log.exception("run.not_counted")  # now, and not when the process ends
            raise

    async def _beat(self) -> None:
        batch = self._unsure or Batch(secrets.randbits(62), self._tally.take())
        self._unsure = batch
        await self._counts.beat(self._process, self._roles, self._tally.levels, batch)
        self._unsure = None
