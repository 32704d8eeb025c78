"""Turns on a way that took nothing: one tries it now and then, while the others wait.

Each try costs: an exchange that is missing or forbidden closes the channel on all that is on its
way there, and one that has a full queue gives its other queues a copy. So after a failure one may
try, at intervals that double. If nothing is heard of its failure, two may, then four, and so on: if
there is room for a few, what fails is no more than about what arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

_ALL: Final = 1024
"""Once so many may try together, the way is open."""

_SHORTEST: Final = timedelta(milliseconds=1)


class Turns:
    """Whose turn it is to try one way."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self.is_open = True
        self._first = self._pause = timedelta()
        self._may_try = 0  # since the last failure; none until the pause is over
        self._left = 0  # of those, who has not tried yet
        self._until = 0.0  # then more may

    def failed(self, first: timedelta, longest: timedelta) -> None:
        """A try failed. The pause after it is `first`, doubled with each that follows."""
        if self.is_open:
            self._pause = first
        elif self._may_try:  # or it is one of many that were on their way together
            self._pause = min(self._pause * 2, longest)
        self.is_open = False
        self._first = first
        self._may_try = self._left = 0
        self._until = self._clock() + self._pause.total_seconds()

    def take(self) -> timedelta:
        """Take a turn: nothing if it may try now, else how long to wait before asking again."""
        if self.is_open:
            return timedelta()
        now = self._clock()
        if now >= self._until:
            self._let_more_try(now)
        if self._left:
            self._left -= 1
            return timedelta()
        return max(timedelta(seconds=self._until - now), _SHORTEST)

    def _let_more_try(self, now: float) -> None:
        if self._may_try:  # and it was not heard that one failed
            self._pause = self._first
        self._may_try = self._left = self._may_try * 2 or 1
        self._until = now + self._first.total_seconds()
        self.is_open = self._may_try > _ALL
