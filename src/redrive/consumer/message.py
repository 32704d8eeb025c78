"""The message that a handler is given. Everything is read when it is asked for, and only then."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Final

import orjson

from redrive.amqp import Delivery, Properties, fields
from redrive.amqp.encodings import encodings_of, undone
from redrive.amqp.fields import Value, octets, text_of
from redrive.amqp.ours import came_by_exchange, count_of
from redrive.consumer.signals import DeadLetter
from redrive.domain import headers
from redrive.domain.deaths import Death, read_deaths
from redrive.domain.handling import BODY
from redrive.domain.letter import Envelope
from redrive.errors import MalformedData

_HAS_CONTENT_ENCODING: Final = 0x40
"""In the first byte of properties, which says which of them there are."""
_OURS: Final = b"redrive-"
_BY_EXCHANGE: Final = octets(headers.BY_EXCHANGE)
_MANY_DIGITS: Final = re.compile(rb"[0-9]{19}")


class Message:
    """One message, as its handler sees it.

    `body` is the bytes as they came; `content` is them without their content encoding (gzip,
    deflate, zstd), and `json()` parses that. The properties of AMQP that matter to handlers are
    attributes: `message_id`, `correlation_id`, `reply_to`, `content_type`, `content_encoding`,
    `type`, `app_id`, `priority`, `timestamp`; None where they are not set.
    """

    __slots__ = ("_delivery", "_properties", "_queue", "_vhost", "body")

    def __init__(self, delivery: Delivery, queue: str, vhost: str) -> None:
        self._delivery = delivery
        self._queue = queue
        self._vhost = vhost
        self._properties: Properties | None = None
        self.body = delivery.body

    def __repr__(self) -> str:
        return (
            f"Message(queue={self.queue!r}, routing_key={self.routing_key!r}, "
            f"retry_count={self.retry_count}, {len(self.body)} bytes)"
        )

    def json(self) -> Any:
        """The body as JSON. One that is not JSON goes to the dead letter queue: no retry helps."""
        content = self.content
        try:
            value = orjson.loads(content)
            # Beyond 64 bits it would make a float of a whole number, and lose digits.
            return json.loads(content) if _MANY_DIGITS.search(content) else value
        except ValueError as error:
            raise misfit(self, f"the body is not JSON: {error}") from error

    @property
    def content(self) -> bytes:
        """The body without its content encoding (gzip, deflate, zstd). As it came if it has none,
        or one that cannot be undone, or more than 16 MiB without it."""
        return self._undone()[0]

    def _undone(self) -> tuple[bytes, str | None]:
        if not (self._delivery.properties[:1] or b"\0")[0] & _HAS_CONTENT_ENCODING:
            return self.body, None  # without a look at the properties, as of most messages
        encodings, _ = encodings_of(self.content_encoding)
        content, _, trouble = undone(self.body, encodings)
        return content, trouble

    @property
    def retry_count(self) -> int:
        """Retries made so far in this queue: 0 at the first delivery, on every kind of broker. Of a
        copy that another queue's retry brought by their exchange, the retries of that one, too."""
        attempt = self._own(headers.ATTEMPT)
        if attempt is None and self._came_by_exchange():
            attempt = self._opened().header_field(headers.ATTEMPT)
        return count_of(attempt)

    @property
    def first_failed_at(self) -> datetime | None:
        """When it failed first in this queue; None if it has not."""
        field = self._own(headers.FIRST_FAILED_AT)
        value = None if field is None else self._opened().header(headers.FIRST_FAILED_AT)
        return value if isinstance(value, datetime) else None

    @property
    def deaths(self) -> list[Death]:
        """Every failure so far, in any queue, oldest first (at most 20)."""
        properties = self._opened()
        before = read_deaths(properties.header(headers.DEATHS))
        return [*before, *reversed(read_deaths(properties.header(headers.X_DEATH)))]

    @property
    def headers(self) -> dict[str, Value]:
        """All headers decoded, Redrive's and the broker's among them."""
        return self._opened().headers()

    @property
    def queue(self) -> str:
        """The queue that the handler is for."""
        return self._queue

    @property
    def exchange(self) -> str:
        """The exchange that the message was first published to."""
        first = text_of(self._own(headers.EXCHANGE))
        return self._delivery.exchange if first is None else first

    @property
    def routing_key(self) -> str:
        """The routing key that the message was first published with."""
        first = text_of(self._own(headers.ROUTING_KEY))
        return self._delivery.routing_key if first is None else first

    @property
    def redelivered(self) -> bool:
        """Whether it may have been handled before, in whole or in part."""
        return self._delivery.redelivered or self._own(headers.REDELIVERED) is not None

    @property
    def letter(self) -> str | None:
        """The id of the letter that this is a replay of; None if it is none."""
        return text_of(self._own(headers.LETTER))

    @property
    def envelope(self) -> Envelope:
        """The message as it was on the wire: raw properties, body, exchange, routing key."""
        delivery = self._delivery
        return Envelope(
            vhost=self._vhost,
            queue=self._queue,
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
            redelivered=delivery.redelivered,
            properties=delivery.properties,
            body=delivery.body,
        )

    @property
    def message_id(self) -> str | None:
        return self._text("message_id")

    @property
    def correlation_id(self) -> str | None:
        return self._text("correlation_id")

    @property
    def reply_to(self) -> str | None:
        return self._text("reply_to")

    @property
    def content_type(self) -> str | None:
        return self._text("content_type")

    @property
    def content_encoding(self) -> str | None:
        return self._text("content_encoding")

    @property
    def type(self) -> str | None:
        return self._text("type")

    @property
    def app_id(self) -> str | None:
        return self._text("app_id")

    @property
    def priority(self) -> int | None:
        value = self._opened().get("priority")
        return value if isinstance(value, int) else None

    @property
    def timestamp(self) -> datetime | None:
        value = self._opened().get("timestamp")
        return value if isinstance(value, datetime) else None

    def _text(self, name: str) -> str | None:
        value = self._opened().get(name)
        return value if isinstance(value, str) else None

    def _opened(self) -> Properties:
        if self._properties is None:
            try:
                self._properties = Properties.read(self._delivery.properties)
            except MalformedData:
                self._properties = Properties.empty()  # the envelope has what there is
        return self._properties

    def _own(self, name: str) -> bytes | None:
        """A header of Redrive's, if it is about this queue and not about one before."""
        if _OURS not in self._delivery.properties:
            return None
        found = self._opened().header_field(name)
        noted = text_of(self._opened().header_field(headers.QUEUE))
        return found if noted is None or octets(noted) == octets(self._queue) else None

    def _came_by_exchange(self) -> bool:
        """Whether the queue that is noted had this copy sent, by the exchange of both."""
        if _BY_EXCHANGE not in self._delivery.properties:
            return False
        names = (headers.QUEUE, headers.EXCHANGE, headers.ROUTING_KEY, headers.BY_EXCHANGE)
        noted = ((octets(name), self._opened().header_field(name)) for name in names)
        delivery = self._delivery
        return came_by_exchange(
            {name: field for name, field in noted if field is not None},
            fields.longstr(octets(delivery.exchange)),
            fields.longstr(octets(delivery.routing_key)),
        )


def misfit(message: Message, reason: str) -> DeadLetter:
    """What to raise of a body that is not what its handler expects."""
    trouble = message._undone()[1]
    why = reason if trouble is None else f"{reason}; it {trouble}"
    return DeadLetter(why, error_type=BODY)
