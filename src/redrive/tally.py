"""What this process counts, until it is written to the store.

Whoever works counts here, in memory, for next to nothing; `work/counting.py` adds it to the counts
of the store every few seconds. Levels are how things stand in this process, and go with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from redrive.domain.metrics import COUNTED, SUM, Metric

Counts = Counter[tuple[str, str]]
"""By the name of a metric and the value of its label, how many more."""


class Tally:
    """Counts of one process."""

    def __init__(self) -> None:
        self._counts: Counts = Counter()
        self.levels: Counter[str] = Counter()
        """By the name of a gauge, how things stand in this process."""

    def count(self, metric: Metric, label: str = "", number: int = 1) -> None:
        """So many more."""
        self._counts[metric.name, label] += number

    def observe(self, metric: Metric, seconds: float) -> None:
        """One more observation of a histogram."""
        observe(self._counts, metric, seconds)

    @contextmanager
    def level(self, metric: Metric) -> Iterator[None]:
        """One more of a gauge, as long as the block lasts."""
        self.levels[metric.name] += 1
        try:
            yield
        finally:
            self.levels[metric.name] -= 1

    def take(self) -> Counts:
        """What was counted since the last time."""
        taken, self._counts = self._counts, Counter()
        return taken


def observe(counts: Counts, metric: Metric, seconds: float) -> None:
    """Count an observation of a histogram: its bucket, and the sum in milliseconds."""
    assert metric.name in COUNTED
    counts[metric.name, metric.bucket(seconds)] += 1
    counts[metric.name, SUM] += round(seconds * 1000)
