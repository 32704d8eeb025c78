"""Where, why and how often a message failed, read from a delivery as far as somebody asks.

For what looks into queues: sweep counts tries, move compares and finds the way back. Headers of any
shape are borne; a property section that cannot be read makes a message that tells nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from redrive.amqp import Delivery, Properties, fields
from redrive.amqp.fields import octets
from redrive.domain import headers
from redrive.domain.deaths import Death, NotOrigins, origin_of
from redrive.domain.failure import (
    NAMES,
    died_unsaid,
    failed_queue,
    published_to,
    read_failure,
    without_words,
)
from redrive.domain.retry_count import Evidence, read_evidence
from redrive.errors import MalformedData
from redrive.work.death_reader import DeathReader

_DELIVERY_COUNT: Final = "x-delivery-count"
_COUNTED: Final = {
    octets(name): name
    for name in (
        headers.X_DEATH,
        headers.DEATHS,
        headers.ATTEMPT,
        headers.QUEUE,
        _DELIVERY_COUNT,
    )
}
_READ: Final = _COUNTED | {octets(name): name for name in (*headers.WRITTEN, *NAMES)}
_X_DEATH: Final = octets(headers.X_DEATH)
_DEATHS: Final = octets(headers.DEATHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMessage:
    """What the headers of a message say of its failure."""

    found: Mapping[str, object]
    """The headers that say something, decoded, without those of its deaths."""
    deaths: tuple[Death, ...]
    """Newest first."""
    died: Death | None
    """The newest of them that counts."""
    sent_at: datetime | None
    """When its producer says that it was made."""

    @property
    def queue(self) -> str | None:
        """Where it failed: what the broker wrote counts before what anybody can write."""
        noted = self.found.get(headers.QUEUE)
        if self.died is not None:
            return self.died.queue
        return noted if isinstance(noted, str) and noted else failed_queue(self.found)

    def published(self, delivery: Delivery) -> tuple[str, str]:
        """The exchange and the routing key that it was published with when it failed."""
        exchange, key = self.found.get(headers.EXCHANGE), self.found.get(headers.ROUTING_KEY)
        if self.died is not None and self.died.routing_key is not None:
            noted_here = self.died.queue == self.found.get(headers.QUEUE)
            if not (noted_here and isinstance(key, str)):
                return self.died.exchange, self.died.routing_key
        if not isinstance(key, str):
            exchange, key = published_to(self.found)
        if not isinstance(key, str):
            return delivery.exchange, delivery.routing_key
        return exchange if isinstance(exchange, str) else "", key

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it failed: the broker's word for it, the error's type and its reason."""
        found = self.found
        if self.died is not None and died_unsaid(found, self.died):
            found = without_words(found)
        failure = read_failure(found, self.died.reason if self.died else None)
        said = (failure.error_type, failure.reason)
        return said if self.died is None else (self.died.reason, *said)

    @property
    def failed_at(self) -> datetime | None:
        """When it failed last; when it was made, if no death tells; None if nothing does."""
        times = [death.at for death in self.deaths if death.at is not None]
        return max(times) if times else self.sent_at


class MessageReader:
    """Reads the messages of one queue."""

    def __init__(self, own_queues: Container[str], queue: str) -> None:
        self._not_origins = NotOrigins(own_queues, queue)
        self._deaths = DeathReader()

    def evidence(self, delivery: Delivery) -> Evidence:
        """How often it was tried."""
        try:
            raw = Properties.read(delivery.properties).chosen(_COUNTED)
        except MalformedData:
            return Evidence()
        return read_evidence(
            x_death=self._deaths.read(raw.pop(_X_DEATH, None)),
            redrive_deaths=self._deaths.read(raw.pop(_DEATHS, None)),
            attempt=_decoded(raw.get(octets(headers.ATTEMPT))),
            noted_queue=_decoded(raw.get(octets(headers.QUEUE))),
            delivery_count=_decoded(raw.get(octets(_DELIVERY_COUNT))),
            not_origins=self._not_origins,
        )

    def read(self, delivery: Delivery) -> FailedMessage:
        """Where and why it failed."""
        try:
            properties = Properties.read(delivery.properties)
            raw = properties.chosen(_READ)
            sent_at = properties.get("timestamp")
        except MalformedData:
            return FailedMessage(found={}, deaths=(), died=None, sent_at=None)
        fresh = self._deaths.read(raw.pop(_X_DEATH, None))
        deaths = (*fresh, *reversed(self._deaths.read(raw.pop(_DEATHS, None))))
        found = {_READ[name]: _decoded(field) for name, field in raw.items()}
        noted = found.get(headers.QUEUE)
        died = origin_of(fresh, self._not_origins)
        if died is None and not (isinstance(noted, str) and noted):
            died = origin_of(deaths, self._not_origins)
        return FailedMessage(
            found=found,
            deaths=deaths,
            died=died,
            sent_at=sent_at.astimezone(UTC) if isinstance(sent_at, datetime) else None,
        )


def _decoded(field: bytes | None) -> object:
    return None if field is None else fields.decode(field)
