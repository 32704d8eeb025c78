"""Ids of letters: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def letter_id(at: datetime, random_bits: int) -> str:
    """An id made of a time and 74 random bits."""
    return _text(_milliseconds(at), random_bits)


def first_id(at: datetime) -> str:
    """The lowest id that a letter of this millisecond can have: where a time begins in an index."""
    return _text(_milliseconds(at), 0)


def last_id(at: datetime) -> str:
    """The highest id that a letter of this millisecond can have."""
    return _text(_milliseconds(at), (1 << 74) - 1)


def _milliseconds(at: datetime) -> int:
    """Since 1970; no letter is older, so an earlier time is that one."""
    return max(0, (at - _EPOCH) // _MILLISECOND)  # as a float it could be the one before


def _text(milliseconds: int, bits: int) -> str:
    high = (bits >> 62) & 0xFFF
    low = bits & ((1 << 62) - 1)
    value = (milliseconds & ((1 << 48) - 1)) << 80 | 7 << 76 | high << 64 | 2 << 62 | low
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
