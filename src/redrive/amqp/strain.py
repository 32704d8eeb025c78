"""When does a consumer have too much on its way?

While a budget is spent nothing is read, and a broker that has more to write resets the connection:
on 3.10.8 after a minute, and after half of one where 250 KB/s were read, not where it was 500. What
was in hand would come again. So who has its budget spent for some seconds, and settles little
meanwhile, should consume anew with a prefetch that fits. That is told only of a consumer which has
more than its share of the budget: the others are read on.

Who has taken less at a time since, and had room for a while, may take more again.
"""

from __future__ import annotations

from typing import Final

from redrive.amqp.consumer import Consumer

LOOK_EVERY: Final = 1.0
"""Seconds between two looks."""
_LOOKS: Final = 5
"""At how many in a row a spent budget is too much."""
_CALM_LOOKS: Final = 60
"""At how many in a row there has to be room before more is taken at a time."""


class Fit:
    """Looks at one consumer now and then: what prefetch should its queue be consumed with?"""

    def __init__(
        self, consumer: Consumer, prefetch: int, *, most: int, stays: bool = False
    ) -> None:
        """`prefetch` is what it has, `most` the usual one. `stays`: what it has in hand is still
        there when the next one consumes, and is to fit beside it."""
        self._consumer = consumer
        self._prefetch = prefetch
        self._most = most
        self._stays = stays
        self._strain = Strain(consumer)
        self._calm = Calm(consumer)

    def look(self, *, may_take_more: bool = True) -> int:
        """The prefetch that it has, mostly; less if more is on its way than fits; or twice that,
        where less than usual is taken and for a while it might have taken more and had room."""
        if self._strain.is_too_much():
            return self._consumer.fitting_beside if self._stays else self._consumer.fitting
        if not may_take_more:
            self._calm = Calm(self._consumer)
        elif self._prefetch < self._most and self._calm.is_long():
            return min(2 * self._prefetch, self._most)
        return self._prefetch


class Strain:
    """Looks at one consumer now and then."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._looks = 0
        self._answered = consumer.answered  # at the first of them

    def is_too_much(self) -> bool:
        """Whether the budget was spent at each of the last looks, more may be on its way, and not
        even as much as fits it was settled meanwhile."""
        consumer = self._consumer
        settled = consumer.answered - self._answered
        is_over = consumer.is_over_budget and not consumer.is_cancelled
        if is_over and settled < consumer.fitting:
            self._looks += 1
        else:
            self._looks, self._answered = 0, consumer.answered
        return self._looks >= _LOOKS


class Calm:
    """Looks at one consumer, whose prefetch was lowered, now and then."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._looks = 0

    def is_long(self) -> bool:
        """Whether at each of the last looks twice what it had would have fit. Where the messages
        still are such that the lower prefetch is needed, what it lets come fills the share."""
        consumer = self._consumer
        has_room = consumer.has_ample_room and not consumer.is_cancelled
        self._looks = self._looks + 1 if has_room else 0
        return self._looks >= _CALM_LOOKS
