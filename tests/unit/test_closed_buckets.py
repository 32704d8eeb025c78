"""Time series: what is past is counted once, what is under way every time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from redrive.server.closed_buckets import ClosedBuckets

NOW = datetime(2026, 2, 11, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Counting:
    """Counts how many buckets it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def __call__(self, edges: Sequence[datetime]) -> list[int]:
        self.asked.append(len(edges) - 1)
        return [edge.minute for edge in edges[:-1]]


def edges(now: datetime) -> list[datetime]:
    end = now.replace(second=0) + MINUTE
    return [end - MINUTE * (10 - each) for each in range(11)]


async def test_only_what_may_still_change_is_counted_again() -> None:
    closed, count = ClosedBuckets(), Counting()
    first = await closed.counted("x", edges(NOW), NOW, count)
    assert first == [51, 52, 53, 54, 55, 56, 57, 58, 59, 0]
    assert await closed.counted("x", edges(NOW), NOW, count) == first
    later = NOW + MINUTE
    assert await closed.counted("x", edges(later), later, count) == [*first[1:], 1]
    assert count.asked == [10, 2, 3]


async def test_all_is_counted_anew_after_five_minutes_and_for_another_series() -> None:
    closed, count = ClosedBuckets(), Counting()
    await closed.counted("x", edges(NOW), NOW, count)
    await closed.counted("y", edges(NOW), NOW, count)
    later = NOW + 6 * MINUTE
    await closed.counted("x", edges(later), later, count)
    assert count.asked == [10, 10, 10]
