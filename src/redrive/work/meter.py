"""Measures a Mover: what it brought where, how long confirms take, what a lost connection left.

It costs the Mover next to nothing: one message at a time is timed, and what was confirmed is
counted a batch at a time, by where it went.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from redrive.amqp import Publish
from redrive.domain import metrics
from redrive.domain.metrics import Metric
from redrive.tally import Tally

Place = Callable[[str, str], tuple[Metric, str] | None]
"""What counts a message that went to an exchange with a routing key: a metric and its label."""


_GIVEN_UP: Final = 60.0


class Meter:
    """Counts for a tally."""

    def __init__(
        self,
        tally: Tally | None = None,
        *,
        role: str = "",
        place: Place | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """`on_ready` hears of every time that the Mover begins to consume."""
        self.on_ready = on_ready or (lambda: None)
        self._tally = tally or Tally()
        self._role = role
        self._place = place
        self._timed: Publish | None = None
        self._timed_at = 0.0

    def sent(self, publishes: Sequence[Publish]) -> None:
        """Messages are about to be published."""
        if self._timed is None and publishes:
            self._timed, self._timed_at = publishes[-1], time.monotonic()

    def confirmed(self, publishes: Sequence[Publish]) -> None:
        """The broker has these."""
        if self._timed is not None and any(each is self._timed for each in publishes):
            self._tally.observe(metrics.CONFIRMS, time.monotonic() - self._timed_at)
            self._timed = None
        elif self._timed is not None and time.monotonic() - self._timed_at > _GIVEN_UP:
            self._timed = None  # it was returned, or refused
        if self._place is None:
            return
        went = Counter([(each.exchange, each.routing_key) for each in publishes])
        for (exchange, key), number in went.items():
            counted = self._place(exchange, key)
            if counted is not None:
                self._tally.count(*counted, number)

    def lost(self) -> None:
        """The broker was lost, or could not be reached."""
        self._timed = None
        if self._role:
            self._tally.count(metrics.RECONNECTS, self._role)

    def left_in_doubt(self, publishes: int) -> None:
        """So many publishes had no answer when the connection was lost."""
        if publishes:
            self._tally.count(metrics.IN_DOUBT, number=publishes)
