"""Whether a failed message is retried, and after how long, or is dead."""

from __future__ import annotations

from typing import NamedTuple

from redrive.domain.policy import Policy

ERROR_TYPES = {
    "rejected": "REJECTED",
    "expired": "EXPIRED",
    "maxlen": "MAX_LENGTH",
    "delivery_limit": "DELIVERY_LIMIT",
}
"""What a broker's reason for a death is called, where the consumer did not say more."""


class Failed(NamedTuple):
    """A message that came back from its consumer."""

    queue: str
    routing_key: str
    reason: str
    attempt: int
    """Retries made so far, in this queue."""
    replayed: bool
    """Whether it was sent by a replay: then its letter's strategy decides, not the retrier."""


class Retry(NamedTuple):
    """Once more, after the wait of a tier."""

    tier: int
    attempt: int


class Dead(NamedTuple):
    """No more: to the dead letter queue, for this reason."""

    error_type: str
    reason: str


Decision = Retry | Dead


def decide(failed: Failed, policy: Policy | None, tiers: int) -> Decision:
    """What becomes of a failed message."""
    if failed.replayed:
        return _dead(failed, f"failed again in queue {failed.queue!r} after a replay")
    if policy is None:
        return _dead(failed, f"no policy for routing key {failed.routing_key!r}: not retried")
    if failed.reason == "expired" and not policy.retry_expired:
        return _dead(failed, f"expired in queue {failed.queue!r} before it was consumed")
    if failed.attempt >= policy.max_retries:
        retries = "1 retry" if failed.attempt == 1 else f"{failed.attempt} retries"
        return _dead(failed, f"gave up after {retries} in queue {failed.queue!r}")
    return Retry(tier=min(failed.attempt + 1, tiers), attempt=failed.attempt + 1)


def _dead(failed: Failed, reason: str) -> Dead:
    return Dead(ERROR_TYPES.get(failed.reason, "UNKNOWN"), reason)
