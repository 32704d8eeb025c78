"""What becomes of a message that a handler was given: the one place where that is decided.

The handler's own `retries` decides, whatever the policies say. Without it (None), the policy of the
routing key does. A replayed letter is not retried: its own strategy governs it, and the verdict
should come at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from redrive.domain.failure import Failure

TIMEOUT = "TIMEOUT"
"""The error type of a handler that took too long."""
CRASH = "CRASH"
"""The error type of a message whose process ended, or lost the broker, while it was handled."""
BODY = "BODY_DOES_NOT_FIT"
"""The error type of a message whose body is not what its handler expects."""


@dataclass(frozen=True, slots=True)
class Acked:
    """The handler returned: the message is done."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The handler failed: once more, after the wait of a tier. `attempt` is the number of that
    retry, which the handler will see as `retry_count`."""

    failure: Failure
    tier: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Delayed:
    """The handler asked for the message again, after a time of its own."""

    failure: Failure
    delay: timedelta
    attempt: int


@dataclass(frozen=True, slots=True)
class LeftToPolicy:
    """The handler failed and has no limit of its own: the retrier asks the policy."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """No more: to the dead letter queue, with the failure in the headers."""

    failure: Failure


Outcome = Acked | Retried | Delayed | LeftToPolicy | DeadLettered


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What is known of a message whose handler failed."""

    attempt: int
    """Retries made so far, in this queue."""
    replayed: bool
    retries: int | None
    """How many there may be; None leaves it to the policy."""
    tiers: int


def after_failure(tried: Tried, failure: Failure) -> Outcome:
    """A handler raised, took too long, or took its process with it."""
    if tried.replayed:
        return DeadLettered(failure)
    if tried.retries is None:
        return LeftToPolicy(failure)
    if tried.attempt >= tried.retries:
        return DeadLettered(failure)
    attempt = tried.attempt + 1
    return Retried(failure, min(attempt, tried.tiers), attempt)


def after_request(
    tried: Tried, failure: Failure, delay: timedelta, *, counts: bool = True
) -> Outcome:
    """A handler asked for the message again after a delay. Without `counts`, that is no retry."""
    if tried.replayed:
        return DeadLettered(failure)
    if not counts:
        return Delayed(failure, delay, tried.attempt)
    if tried.retries is not None and tried.attempt >= tried.retries:
        return DeadLettered(failure)
    return Delayed(failure, delay, tried.attempt + 1)
