"""What a handler raises to say what should become of its message."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from redrive.domain.durations import format_duration, parse_duration
from redrive.errors import SettingsError

Duration = timedelta | str
"""A `timedelta`, or a text such as "30s", "5m", "1h30m"."""
_LONGEST: Final = timedelta(days=366)
"""Beyond, it is more likely a slip than meant; and somebody would have to know of it still."""


class RetryAfter(Exception):
    """Raise it to have the message delivered again after `delay`, on any queue type.

    `delay` is a text such as "90s", "5m", "1h30m", "250ms", or a `timedelta`, of a year at most. A
    number is refused: it does not say of what.

    It counts as a retry: `retry_count` is one more next time, and with `retries` used up the
    message is dead. With `counts=False` neither is so, and the handler must know when to stop. It
    must with `retries=None`, too: no policy is asked about a delay of the handler's own.

        raise RetryAfter("90s", "the bank is in maintenance")
    """

    error_type: object = "RetryAfter"

    def __init__(self, delay: Duration, reason: object = "", *, counts: bool = True) -> None:
        self.delay = read_duration("RetryAfter", delay)
        if not isinstance(counts, bool):
            raise SettingsError(f"RetryAfter: counts: expected True or False, got {counts!r}")
        if reason in (None, ""):
            reason = f"asked to be delivered again in {format_duration(self.delay)}"
        self.reason = reason
        self.counts = counts
        super().__init__(reason)


class DeadLetter(Exception):
    """Raise it to send the message straight to the dead letter queue: no retry would help.

    `error_type` is what the letter will be grouped and classified by. `reason` may be an exception:
    the letter then has its text and its stack, and its type unless `error_type` says otherwise.

        raise DeadLetter("the card is blocked", error_type="CARD_BLOCKED")
    """

    reason: object = None
    error_type: object = None

    def __init__(self, reason: object = None, *, error_type: object = None) -> None:
        self.reason = reason
        self.error_type = error_type
        super().__init__(reason)


def read_duration(what: str, value: Duration) -> timedelta:
    """A duration as users write it; SettingsError if it is none."""
    try:
        duration = value if isinstance(value, timedelta) else parse_duration(value)
    except (ValueError, TypeError):
        raise SettingsError(
            f"{what}: expected a duration such as '30s', '5m' or a timedelta, got {value!r}"
        ) from None
    if duration < timedelta():
        raise SettingsError(f"{what}: a duration is never negative, got {duration}")
    if duration > _LONGEST:
        raise SettingsError(
            f"{what}: expected a year at most, got {value!r}",
            remedy="have what is due later published later, by a scheduler",
        )
    return duration
