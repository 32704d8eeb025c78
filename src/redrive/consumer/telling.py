"""What the log says about a message: enough to find it again, on the broker and in the store."""

from __future__ import annotations

import time
from typing import Final

from redrive.amqp import Delivery, Properties
from redrive.amqp.fields import text_of
from redrive.consumer.message import Message
from redrive.consumer.queues import Declared
from redrive.domain import headers
from redrive.domain.handling import Acked, Delayed, Outcome, Retried
from redrive.errors import MalformedData

_LONGEST: Final = 300
_AGAIN_AFTER: Final = 60.0
"""Seconds after which a trouble that lasts is told again."""


class Told:
    """What was said of a trouble: it is said at once, and then now and then, not at every try."""

    def __init__(self) -> None:
        self._what = ""
        self._at = 0.0

    def is_news(self, what: str) -> bool:
        """Whether that is to be said now."""
        now = time.monotonic()
        if what == self._what and now - self._at < _AGAIN_AFTER:
            return False
        self._what, self._at = what, now
        return True

    @property
    def lasts(self) -> bool:
        return self._what != ""

    def is_over(self) -> bool:
        """Forget the trouble; whether there was one."""
        was, self._what = self._what, ""
        return was != ""


def about(delivery: Delivery, declared: Declared) -> dict[str, str | int]:
    """Queue, handler, ids, the key it was first published with, and the retries made so far."""
    message = Message(delivery, declared.name, "")
    found: dict[str, str | int | None] = {
        "queue": declared.name,
        "handler": declared.handler,
        "routing_key": message.routing_key,
        "message_id": message.message_id,
        "redrive_id": _id(delivery),
        "letter": message.letter,
        "retry_count": message.retry_count,
    }
    return {
        name: _cut(value) if isinstance(value, str) else value
        for name, value in found.items()
        if value is not None
    }


def _id(delivery: Delivery) -> str | None:
    try:
        return text_of(Properties.read(delivery.properties).header_field(headers.ID))
    except MalformedData:
        return None


def about_outcome(outcome: Outcome) -> dict[str, str | int]:
    """What went wrong, and the number of the retry that follows."""
    if isinstance(outcome, Acked):
        return {}
    failure = outcome.failure
    found: dict[str, str | int] = {
        "error_type": _cut(failure.error_type),
        "reason": _cut(failure.reason),
    }
    if isinstance(outcome, (Retried, Delayed)):
        found["retry"] = outcome.attempt
    return found


def _cut(text: str) -> str:
    """As much of a text as a line of the log bears, of what can be written."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return short.encode("utf-8", "backslashreplace").decode()
