"""Time series that are asked for again and again: what is past is counted once in a while.

A bucket that ended a minute ago hardly changes any more: only by what retention removes. Its count
is kept for five minutes, so of a series of a million letters only the last stretch is read each
time somebody looks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_SETTLED: Final = timedelta(minutes=1)
_KEPT: Final = timedelta(minutes=5)
_MOST: Final = 1000
"""Series that are remembered; beyond it all are forgotten."""


@dataclass(frozen=True, slots=True)
class _Known:
    since: datetime
    counts: dict[datetime, int]


class ClosedBuckets:
    """Remembers counts of buckets that are past."""

    def __init__(self) -> None:
        self._series: dict[Hashable, _Known] = {}

    async def counted(
        self,
        series: Hashable,
        edges: Sequence[datetime],
        now: datetime,
        count: Callable[[Sequence[datetime]], Awaitable[list[int]]],
    ) -> list[int]:
        """The counts between each edge and the next; only those that are not known are asked."""
        known = self._series.get(series)
        if known is None or now - known.since > _KEPT:
            known = _Known(now, {})
        starts = edges[:-1]
        first = next((i for i, start in enumerate(starts) if start not in known.counts), None)
        counts = [known.counts[start] for start in starts[:first]]
        if first is not None:
            counts += await count(edges[first:])
        if len(self._series) >= _MOST:
            self._series.clear()
        self._series[series] = _Known(
            known.since,
            {
                start: number
                for start, end, number in zip(starts, edges[1:], counts, strict=True)
                if end <= now - _SETTLED
            },
        )
        return counts
