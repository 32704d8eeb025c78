"""Which messages of a queue are meant: by header, routing key, reason, age and text in the body.

All that is given must hold. Names and texts with `*` and `?` are globs (`*` crosses dots), others
are taken literally; upper and lower case differ, but for what is searched in the body. What a
message does not tell (its age, if nothing says when it failed) does not match.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from redrive.amqp import Delivery, Properties, fields
from redrive.domain.globs import matching
from redrive.errors import MalformedData
from redrive.work.decode import decode_body
from redrive.work.failed_message import FailedMessage, MessageReader


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilters:
    """What messages must have in common. Nothing given: all of them."""

    headers: tuple[tuple[str, str], ...] = ()
    """Names, and globs of their values as text."""
    routing_key: str | None = None
    """The key it has now, or the one it was published with when it failed."""
    reason: str | None = None
    """The broker's word for its death, the error's type, or its reason."""
    failed_until: datetime | None = None
    search: str | None = None


class Matching:
    """Compares the deliveries of one queue."""

    def __init__(self, filters: MessageFilters, reader: MessageReader) -> None:
        self._filters = filters
        self._reader = reader
        self._needs_reading = any(
            given is not None
            for given in (filters.routing_key, filters.reason, filters.failed_until)
        )

    def __call__(self, delivery: Delivery) -> bool:
        if self._filters.headers and not self._has_headers(delivery):
            return False
        if self._needs_reading and not self._is_meant(delivery, self._reader.read(delivery)):
            return False
        return self._filters.search is None or _holds(delivery, self._filters.search)

    def _has_headers(self, delivery: Delivery) -> bool:
        try:
            entries = Properties.read(delivery.properties).entries()
        except MalformedData:
            return False
        return all(
            any(name == wanted and matching(value, [_text(field)]) for name, field in entries)
            for wanted, value in self._filters.headers
        )

    def _is_meant(self, delivery: Delivery, message: FailedMessage) -> bool:
        filters = self._filters
        if filters.routing_key is not None:
            _, published_with = message.published(delivery)
            if not matching(filters.routing_key, (delivery.routing_key, published_with)):
                return False
        if filters.reason is not None and not matching(filters.reason, message.reasons):
            return False
        if filters.failed_until is None:
            return True
        return message.failed_at is not None and message.failed_at <= filters.failed_until


def _text(field: bytes) -> str:
    value = fields.decode(field)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _holds(delivery: Delivery, search: str) -> bool:
    content_type = content_encoding = None
    try:
        properties = Properties.read(delivery.properties)
        content_type = properties.get("content_type")
        content_encoding = properties.get("content_encoding")
    except MalformedData:
        pass  # the body can be searched all the same
    decoded = decode_body(
        delivery.body,
        content_type if isinstance(content_type, str) else None,
        content_encoding if isinstance(content_encoding, str) else None,
    )
    if decoded.text is not None:
        return search.casefold() in decoded.text.casefold()
    return search.encode("utf-8", "surrogateescape") in decoded.content
