"""Numbers of bytes as people write them: `64MB` (decimal), `16KiB` (binary), `512B`.

Guarantees: what `format_size` writes, `parse_size` reads back as the same number. Text that is not
a size raises ValueError; a bare number is refused, because it does not say its unit.
"""

from __future__ import annotations

import re

_UNITS = {
    "GiB": 2**30,
    "GB": 10**9,
    "MiB": 2**20,
    "MB": 10**6,
    "KiB": 2**10,
    "KB": 10**3,
    "B": 1,
}
_BY_LOWER_CASE = {name.lower(): factor for name, factor in _UNITS.items()}
# Twelve digits are a terabyte even of single bytes; without an end, int() itself becomes the limit.
_SIZE = re.compile(r"(\d{1,12})([a-z]+)", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Read a number of bytes; ValueError if `text` is not one. `64mb` is read as `64MB`."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _BY_LOWER_CASE:
        raise ValueError(f"not a size: {text!r}")
    return int(match[1]) * _BY_LOWER_CASE[match[2].lower()]


def format_size(size: int) -> str:
    """Write a number of bytes in the largest unit that expresses it as a whole number."""
    if size < 0:
        raise ValueError(f"a size is never negative: {size}")
    if size == 0:
        return "0B"
    name, factor = next((name, factor) for name, factor in _UNITS.items() if size % factor == 0)
    return f"{size // factor}{name}"
