"""The message that every bench moves: 1 KB, persistent, with the headers of a dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from redrive.amqp import Properties, Publish, fields

BODY = bytes(range(256)) * 4
_DIED_AT = datetime(2024, 1, 1, tzinfo=UTC)


def dead_letters(queue: str, count: int, *, first: int = 0) -> Iterator[Publish]:
    """Publishes straight to a queue, each with a message id of its own."""
    properties = _properties()
    for number in range(first, first + count):
        yield Publish(
            "", queue, properties.with_text("message_id", f"bench-{number:012}").raw, BODY
        )


def _properties() -> Properties:
    death = fields.table(
        {
            "count": fields.int64(1),
            "reason": fields.longstr("rejected"),
            "queue": fields.longstr("orders"),
            "time": fields.timestamp(_DIED_AT),
            "exchange": fields.longstr("shop"),
            "routing-keys": fields.array([fields.longstr("order.created")]),
        }
    )
    headers = {"x-death": fields.array([death]), "tenant": fields.longstr("tenant-0042")}
    plain = Properties.empty().with_text("content_type", "application/json")
    return plain.with_headers(headers).persistent()
