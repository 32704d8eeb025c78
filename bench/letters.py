"""Dead messages as a DLQ has them: JSON bodies, retries behind them, an error that says why."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from redrive.amqp import Properties, Publish, fields
from redrive.domain import headers

_DIED_AT = datetime(2024, 1, 1, tzinfo=UTC)
QUEUES = tuple(f"service-{number}" for number in range(20))
ERRORS = (
    ("TIMEOUT_ERROR", "External API timeout after {n}ms for order {id}"),
    ("RATE_LIMIT_ERROR", "429 Too Many Requests from https://api.example.com/v1/charges/{id}"),
    ("ConnectionError", "connect ECONNREFUSED 10.0.{b}.{b}:5432"),
    ("ValidationError", "field 'amount' of payment {id}: {n} is above the limit"),
    ("KeyError", "'customer_{n}'"),
)


def dead_letters(target: str, count: int, *, first: int = 0) -> Iterator[Publish]:
    """Publishes straight to a queue: 1 KB bodies, each with ids of its own."""
    draw = random.Random(first)
    for number in range(first, first + count):
        yield Publish("", target, _properties(number, draw), _body(number, draw))


def _properties(number: int, draw: random.Random) -> bytes:
    queue, key = QUEUES[number % len(QUEUES)], f"order.{number % 50}.created"
    error_type, reason = ERRORS[number % len(ERRORS)]
    uuid = UUID(int=draw.getrandbits(128))
    words = reason.format(n=draw.randrange(10_000), id=uuid, b=draw.randrange(256))
    deaths = [_death(queue, key, number + each) for each in range(3)]
    put = {
        headers.ID: fields.longstr(str(UUID(int=draw.getrandbits(128)))),
        headers.ATTEMPT: fields.int32(3),
        headers.QUEUE: fields.longstr(queue),
        headers.EXCHANGE: fields.longstr("shop"),
        headers.ROUTING_KEY: fields.longstr(key),
        headers.FIRST_FAILED_AT: fields.timestamp(_DIED_AT),
        headers.DEATHS: fields.array(deaths),
        headers.ERROR_TYPE: fields.longstr(error_type),
        headers.ERROR_REASON: fields.longstr(words),
    }
    plain = Properties.empty().with_text("content_type", "application/json")
    named = plain.with_text("message_id", f"bench-{number:012}").with_text("app_id", "checkout")
    return named.with_headers(put).persistent().raw


def _death(queue: str, key: str, second: int) -> bytes:
    return fields.table(
        {
            "count": fields.int64(1),
            "reason": fields.longstr("rejected"),
            "queue": fields.longstr(queue),
            "time": fields.timestamp(_DIED_AT + timedelta(seconds=second)),
            "exchange": fields.longstr("shop"),
            "routing-keys": fields.array([fields.longstr(key)]),
        }
    )


def _body(number: int, draw: random.Random) -> bytes:
    order = {"order": number, "customer": draw.randrange(10**6), "note": "x" * 960}
    return json.dumps(order).encode()
