"""Durations as people write them: `10s`, `250ms`, `1h30m`, `30d`.

Guarantees: what `format_duration` writes, `parse_duration` reads back as the same duration, for
any whole number of milliseconds. Text that is not a duration raises ValueError; nothing is guessed,
so a bare number (seconds? milliseconds?) is refused.
"""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
# Largest unit first and each at most once: `30m1h` and `5s5s` are likelier slips than intentions.
# ASCII: the digits of other scripts are no less digits to Python, but nobody means to write them.
_DURATION = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS), re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Read a duration; ValueError if `text` is not one."""
    amounts = _DURATION.fullmatch(text)
    if not text or amounts is None:
        raise ValueError(f"not a duration: {text!r}")
    try:
        return sum(
            (
                int(amount) * unit
                for amount, unit in zip(amounts.groups(), _UNITS.values(), strict=True)
                if amount is not None
            ),
            timedelta(),
        )
    except OverflowError:
        raise ValueError(f"too long a duration: {text!r}") from None


def format_duration(duration: timedelta) -> str:
    """Write a duration in the largest units that fit; below a millisecond, the rest is dropped."""
    if duration < timedelta():
        raise ValueError(f"a duration is never negative: {duration}")
    parts = []
    rest = duration
    for name, unit in _UNITS.items():
        amount, rest = divmod(rest, unit)
        if amount:
            parts.append(f"{amount}{name}")
    return "".join(parts) or "0s"
