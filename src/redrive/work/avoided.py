"""Exchanges that are avoided for now, because of what the broker answered.

One that is gone, or that we may not write to, closes the channel on what is sent there, and all
that is on its way is in doubt and sent again: tried with every message, it would double the others
over and over. So whether it is back is asked on a spare channel; of one that is forbidden, only
trying tells, which is done seldom. One that has a full queue refuses what the others take: tried
again, they would get it twice.
"""

from __future__ import annotations

import time
from typing import Final

from redrive.work.return_path import ReturnPath

_MISSING: Final = 404
_CLOSES_THE_CHANNEL: Final = frozenset((403, _MISSING))
_LOOK_EVERY: Final = 1.0
_FORBIDDEN_FOR: Final = 300.0
_FULL_FOR: Final = 30.0
_MOST: Final = 4096
"""How many are kept in mind. Names can be forged: beyond it all are forgotten."""


class Avoided:
    """What one plan knows of exchanges."""

    def __init__(self, path: ReturnPath) -> None:
        self._path = path
        self._gone: dict[str, tuple[float | None, str]] = {}  # until when, if not looked for; why
        self._full: dict[str, float] = {}
        self._looked = 0.0

    def __bool__(self) -> bool:
        return bool(self._gone or self._full)

    def note_gone(self, exchange: str, code: int, reason: str) -> None:
        """Whatever was returned: if that closed the channel, the exchange is avoided."""
        if code not in _CLOSES_THE_CHANNEL:
            return
        if len(self._gone) >= _MOST:
            self._gone.clear()
        until = None if code == _MISSING else time.monotonic() + _FORBIDDEN_FOR
        self._gone[exchange] = until, reason

    def note_full(self, exchange: str) -> None:
        if len(self._full) >= _MOST:
            self._full.clear()
        self._full[exchange] = time.monotonic() + _FULL_FOR

    def why_gone(self, exchange: str) -> str:
        """Empty for one that may be tried."""
        until, why = self._gone.get(exchange, (None, ""))
        if until is not None and time.monotonic() >= until:
            del self._gone[exchange]
            return ""
        return why

    def is_full(self, exchange: str) -> bool:
        until = self._full.get(exchange)
        if until is not None and time.monotonic() >= until:
            del self._full[exchange]
            return False
        return until is not None

    async def look(self) -> None:
        """Find out which of those that were missing are back, at most once a second."""
        if not self._gone or time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        for exchange, (until, _) in tuple(self._gone.items()):
            if until is None and await self._path.has_exchange(exchange):
                self._gone.pop(exchange, None)
