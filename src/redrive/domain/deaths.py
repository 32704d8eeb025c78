"""Deaths: what a message's headers say about where, when and why it failed.

`x-death` is the broker's, but any software may write one, so nothing about its shape is taken for
granted: what is not a death is passed over, what a death lacks is filled with the least surprising
value, and nothing raises.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One failure of a message."""

    queue: str
    reason: str = "unknown"
    count: int = 1
    exchange: str = ""
    routing_keys: tuple[str, ...] = ()
    at: datetime | None = None

    @property
    def routing_key(self) -> str | None:
        """The key it was published with; those after the first come from CC and BCC."""
        return self.routing_keys[0] if self.routing_keys else None


def read_deaths(value: object) -> list[Death]:
    """The deaths in a decoded header, in the header's order (of `x-death`: newest first)."""
    if not isinstance(value, list):
        return []
    return [death for item in value if (death := _read(item)) is not None]


def _read(item: object) -> Death | None:
    if not isinstance(item, dict):
        return None
    queue = item.get("queue")
    if not isinstance(queue, str):
        return None
    reason, count, exchange = item.get("reason"), item.get("count"), item.get("exchange")
    return Death(
        queue=queue,
        reason=reason if isinstance(reason, str) else "unknown",
        count=count if type(count) is int and count > 0 else 1,
        exchange=exchange if isinstance(exchange, str) else "",
        routing_keys=_keys(item.get("routing-keys")),
        at=_time(item.get("time")),
    )


def _keys(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list):
        return tuple(key for key in value if isinstance(key, str))
    return ()


def _time(value: object) -> datetime | None:
    try:
        if isinstance(value, datetime):
            return value
        if type(value) is int:
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
            return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


@dataclass(frozen=True, slots=True)
class NotOrigins(Container[str]):
    """In which queues nothing fails, for who reads one: Redrive's own, and that one."""

    own_queues: Container[str]
    queue: str

    def __contains__(self, queue: object) -> bool:
        return queue == self.queue or queue in self.own_queues


def origin_of(newest_first: Iterable[Death], not_origins: Container[str]) -> Death | None:
    """Where the message failed: the newest death that is not of one of Redrive's own queues."""
    for death in newest_first:
        if death.queue not in not_origins:
            return death
    return None
