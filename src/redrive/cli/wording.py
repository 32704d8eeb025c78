"""Times, sizes and states as people say them.

Guarantees: rounding is always down, so that "3m ago" is at least three minutes; a time that is
said to be past and is not, because two clocks differ, is "just now".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from redrive.cli.rendering import Marked
from redrive.domain.lifecycle import State

STYLES: Final = {
    State.PENDING: "yellow",
    State.PROCESSING: "cyan",
    State.RESOLVED: "green",
    State.FAILED: "bold red",
    State.MANUAL: "magenta",
    State.ARCHIVED: "dim",
}
"""What colour a state has on a terminal."""

_UNITS: Final = (
    (timedelta(days=365), "y"),
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "m"),
    (timedelta(seconds=1), "s"),
)
_SECOND: Final = timedelta(seconds=1)
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def span(duration: timedelta) -> str:
    """How long, in one unit: `45s`, `3m`, `2h`, `5d`; short ones exactly: `1.5s`, `20ms`."""
    if duration < _SECOND:
        return f"{duration // timedelta(milliseconds=1)}ms"
    if duration < 10 * _SECOND and duration % _SECOND:
        return f"{duration // timedelta(milliseconds=100) / 10:g}s"
    unit, letter = next(
        (unit, letter) for unit, letter in _UNITS if duration >= unit or letter == "s"
    )
    return f"{duration // unit}{letter}"


def relative(at: datetime | None, now: datetime) -> str:
    """`3m ago`, `in 5m`; `-` for a time that is not known."""
    if at is None:
        return "-"
    if abs(at - now) < _SECOND:
        return "just now"
    whole = abs(at - now) // _SECOND * _SECOND
    return f"in {span(whole)}" if at > now else f"{span(whole)} ago"


def ago(at: datetime, now: datetime) -> str:
    """How long something is past."""
    return relative(min(at, now), now)


def clock(at: datetime) -> str:
    """A moment, exactly enough for people: `2026-02-11 12:00:07 UTC`."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def size(number: int) -> str:
    """A number of bytes: `17 B`, `1.4 KiB`, `15 MiB`."""
    if number < 1024:
        return f"{number} B"
    amount = float(number)
    unit = 0
    while amount >= 1024 and unit < len(_SIZES) - 1:
        amount /= 1024
        unit += 1
    return f"{amount:.1f} {_SIZES[unit]}" if amount < 10 else f"{int(amount)} {_SIZES[unit]}"


def state(of: State) -> Marked:
    """A state in its colour."""
    return Marked(of.word, STYLES[of])


def counts(by_state: Mapping[State, int]) -> str:
    """`12 pending, 3 manual`; the states that have any."""
    found = [f"{by_state[state]:,} {state.word}" for state in State if by_state.get(state)]
    return ", ".join(found) or "none"


def plural(number: int, word: str, words: str | None = None) -> str:
    """`1 letter`, `2,000 letters`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {words or word + 's'}"
