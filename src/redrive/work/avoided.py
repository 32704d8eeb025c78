"""Exchanges that are avoided for now, because of what the broker answered.

One that is gone, or that we may not write to, closes the channel on what is sent there, and all
that is on its way is in doubt and sent again: tried with every message, it would double the others
over and over. So whether it is back is asked on a spare channel, of a few at a time, in turn; of
one that is forbidden, only trying tells, which is done seldom. One that has a full queue refuses
what the others take: tried again, they would get it twice.

What no message was for in a while is forgotten.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from redrive.errors import BrokerError
from redrive.work.return_path import ReturnPath

_MISSING: Final = 404
_CLOSES_THE_CHANNEL: Final = frozenset((403, _MISSING))
_OF_ONE_KEY: Final = "access to topic "
"""What a broker says that refuses a routing key, by topic permissions, and not the exchange."""
_LOOK_EVERY: Final = 1.0
_LOOKS: Final = 4
"""How many are asked for at a time. Each is a channel opened, and others wait for their turn."""
_GONE_FOR: Final = 300.0
_FULL_FOR: Final = 30.0
_MOST: Final = 4096
"""How many are kept in mind. Names can be forged: beyond it all are forgotten."""


@dataclass(slots=True)
class Gone:
    """An exchange that closes the channel, because it is missing, or else forbidden."""

    why: str
    is_missing: bool
    until: float
    is_wanted: bool = True
    """A message was for it since it was last looked for."""


class Avoided:
    """What one plan knows of exchanges."""

    def __init__(self, path: ReturnPath) -> None:
        self._path = path
        self._gone: dict[str, Gone] = {}  # the next to be looked for first
        self._full: dict[str, float] = {}
        self._looked = 0.0

    def __bool__(self) -> bool:
        return bool(self._gone or self._full)

    def note_gone(self, exchange: str, code: int, reason: str) -> None:
        """Whatever was returned: if that closed the channel, the exchange is avoided."""
        if code not in _CLOSES_THE_CHANNEL or _OF_ONE_KEY in reason:
            return
        if len(self._gone) >= _MOST:
            self._gone.clear()
        self._gone[exchange] = Gone(reason, code == _MISSING, time.monotonic() + _GONE_FOR)

    def note_full(self, exchange: str) -> None:
        if len(self._full) >= _MOST:
            self._full.clear()
        self._full[exchange] = time.monotonic() + _FULL_FOR

    def gone(self, exchange: str) -> Gone | None:
        """None for one that may be tried."""
        gone = self._gone.get(exchange)
        if gone is not None and time.monotonic() >= gone.until:
            del self._gone[exchange]
            return None
        if gone is not None:
            gone.is_wanted = True
        return gone

    def is_full(self, exchange: str) -> bool:
        until = self._full.get(exchange)
        if until is not None and time.monotonic() >= until:
            del self._full[exchange]
            return False
        return until is not None

    async def look(self) -> None:
        """Find out whether some that were missing are back, at most once a second."""
        now = time.monotonic()
        if not self._gone or now - self._looked < _LOOK_EVERY:
            return
        missing = [
            name
            for name, gone in self._gone.items()
            if gone.is_missing and (gone.is_wanted or now < gone.until)
        ]
        for exchange in missing[:_LOOKS]:
            if (gone := self._gone.pop(exchange, None)) is None:
                continue
            self._gone[exchange] = gone  # as the last: next time it is the turn of others
            try:
                is_back = await self._path.has_exchange(exchange)
            except BrokerError:  # who cannot be asked is avoided on; the messages go on without
                break
            if is_back:
                self._gone.pop(exchange, None)
            elif gone.is_wanted:
                gone.until, gone.is_wanted = time.monotonic() + _GONE_FOR, False
        self._looked = now = time.monotonic()
        self._gone = {name: gone for name, gone in self._gone.items() if now < gone.until}
