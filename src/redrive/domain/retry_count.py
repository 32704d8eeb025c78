"""How often was a message tried? Several headers tell; the largest of them counts.

- Redrive's own `redrive-attempt`, unless the message has failed elsewhere since.
- The deaths in the queue where it failed, all entries of `x-death` together: a broker keeps one
  entry for each queue and reason, so the first alone says too little. Where Redrive took `x-death`
  off to publish the message again, `redrive-deaths` has them; the retrier counts those itself.
- `x-delivery-count`, with which a quorum queue counts how often it delivered the message.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum

from redrive.domain.deaths import Death, origin_of


class CountBy(StrEnum):
    """Which evidence counts."""

    LARGEST = "largest"
    HEADER = "header"
    DEATHS = "deaths"
    DELIVERIES = "deliveries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a message's headers tell of how often it was tried; None where they tell nothing."""

    header: int | None = None
    deaths: int | None = None
    deliveries: int | None = None

    def count(self, by: CountBy, *, deliveries_tell: bool = True) -> int:
        """How often it was tried; 0 where nothing tells.

        `deliveries_tell`: whether looking into the queue leaves its delivery count alone. Where
        it does not, that count is of looks, and only who asks for it gets it.
        """
        if by is CountBy.HEADER:
            return self.header or 0
        if by is CountBy.DEATHS:
            return self.deaths or 0
        if by is CountBy.DELIVERIES:
            return self.deliveries or 0
        deliveries = self.deliveries if deliveries_tell else None
        return max(self.header or 0, self.deaths or 0, deliveries or 0)


def read_evidence(
    *,
    x_death: Sequence[Death] = (),
    redrive_deaths: Sequence[Death] = (),
    attempt: object = None,
    noted_queue: object = None,
    delivery_count: object = None,
    not_origins: Container[str] = (),
) -> Evidence:
    """The evidence of one message. `x_death` is newest first, `redrive_deaths` oldest first.

    `not_origins` are the queues in which nothing fails: Redrive's own, and the one looked into. A
    message that has died nowhere else did fail there.
    """
    newest_first = [*x_death, *reversed(redrive_deaths)]
    origin = origin_of(newest_first, not_origins) or origin_of(newest_first, ())
    own = _natural(attempt)
    if own is not None:
        died = origin_of(x_death, not_origins)
        if died is not None and isinstance(noted_queue, str) and noted_queue != died.queue:
            own = None  # it has moved on: the retries were another queue's
    counted = x_death if own is not None else newest_first
    deaths = [death.count for death in counted if origin and death.queue == origin.queue]
    return Evidence(
        header=own,
        deaths=sum(deaths) if deaths else None,
        deliveries=_natural(delivery_count),
    )


def _natural(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
