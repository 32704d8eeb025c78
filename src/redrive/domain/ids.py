"""Ids of letters: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_BITS: Final = 74
_ENOUGH: Final = 1 << 60
"""Numbers that must be left above the last one, or two ids could be alike by chance."""


def letter_id(at: datetime, random_bits: int) -> str:
    """An id made of a time and 74 random bits."""
    return _text(_milliseconds(at), random_bits)


def rising(
    now: datetime, draws: Iterable[int], last: tuple[datetime, int]
) -> tuple[datetime, list[int]]:
    """A time and random bits for ids that sort behind each other and behind the last one.

    Within a millisecond the bits rise; the time is the real one, unless the clock went back or a
    millisecond has no more room. `draws` are of 74 random bits each, `last` has the time and bits
    of the last id.
    """
    at, floor = (now, 0) if now > last[0] else (last[0], last[1] + 1)
    room = (1 << _BITS) - floor
    if room < _ENOUGH:
        at, floor, room = at + _MILLISECOND, 0, 1 << _BITS
    return at, sorted([floor + (draw * room >> _BITS) for draw in draws])


def first_id(at: datetime) -> str:
    """The lowest id that a letter of this millisecond can have: where a time begins in an index."""
    return _text(_milliseconds(at), 0)


def last_id(at: datetime) -> str:
    """The highest id that a letter of this millisecond can have."""
    return _text(_milliseconds(at), (1 << _BITS) - 1)


def _milliseconds(at: datetime) -> int:
    """Since 1970; no letter is older, so an earlier time is that one."""
    return max(0, (at - _EPOCH) // _MILLISECOND)  # as a float it could be the one before


def _text(milliseconds: int, bits: int) -> str:
    high = (bits >> 62) & 0xFFF
    low = bits & ((1 << 62) - 1)
    value = (milliseconds & ((1 << 48) - 1)) << 80 | 7 << 76 | high << 64 | 2 << 62 | low
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
