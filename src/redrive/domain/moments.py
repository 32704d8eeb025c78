"""Moments as people write them: a time, a day, or how long ago.

Dates without a zone are UTC; a day alone begins, or ends, with the day.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from redrive.domain.durations import parse_duration

# No letter is older, and an id holds no earlier time.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_moment(text: str, now: datetime, *, end_of_day: bool = False) -> datetime:
    """A time (RFC 3339), a day, or how long ago: `2h`. ValueError if it is none of them."""
    text = text.strip()
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        day = date.fromisoformat(text)
        return max(datetime.combine(day, time.max if end_of_day else time.min, UTC), _EPOCH)
    try:
        duration = parse_duration(text.removesuffix(" ago"))
    except ValueError:
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        return max(moment, _EPOCH)
    return before(now, duration)


def before(now: datetime, duration: timedelta) -> datetime:
    """So long ago; no earlier than letters can be."""
    try:
        return max(now - duration, _EPOCH)
    except OverflowError:
        return _EPOCH
