"""What a worker does with a letter that is due. Decided here, done by the store and the sender."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

FULL_AGAIN: Final = timedelta(minutes=1)
"""When a letter is tried again whose queue was full or down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send it now."""

    strategy: str
    queue: str | None
    """Where to; None for an exchange."""
    exchange: str | None = None
    gated: bool = False
    """Only if the destination's breaker admits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postpone:
    """Look at it again later."""

    at: datetime
    strategy: str
    reason: str
    noted: bool = True
    """Whether its history tells: a condition that does not hold for an hour is looked at often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveToPerson:
    """Only a person knows."""

    reason: str


Decision = Send | Postpone | LeaveToPerson
