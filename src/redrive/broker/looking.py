"""What it costs to look into a queue, and in which order it gets back what was looked at.

Tried on 3.10.8, 4.0.5 and 4.3.6, with the consumer cancelled first and one nack for all of it:
- Classic queues keep the order and count nothing.
- Quorum queues up to 4.2 count every return, and where they have a delivery limit, the message that
  reaches it is dead-lettered or dropped. From 4.0 on they have one, 20, unless told otherwise.
- From 4.3 on a nack does not count towards the limit.
- Order: 4.x keeps it. 3.x puts what comes back behind what has arrived since, in its order; where
  there is a delivery limit, in front, and more than 32 messages in no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from redrive.broker.live import live_queue
from redrive.broker.topology import DELIVERY_LIMIT

Version = tuple[int, int]

NACK_IS_FREE: Final[Version] = (4, 3)
_LIMITED_BY_DEFAULT: Final[Version] = (4, 0)
_DEFAULT_LIMIT: Final = 20
_ORDERLY: Final = 32


def read_version(text: object) -> Version:
    """`4.0.5` as (4, 0). What cannot be read counts as the version that forgives least."""
    parts = str(text).split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return _LIMITED_BY_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What matters of a queue before one looks into it."""

    name: str
    kind: str | None = None
    """`classic`, `quorum`, `stream`; None if unknown."""
    limit: int | None = None
    """Its delivery limit, by argument or policy, as far as is known."""
    exclusive: bool = False
    consumers: tuple[str, ...] = ()
    """Who consumes it, as far as is known."""

    @classmethod
    def from_management(cls, found: dict[str, Any]) -> QueueFacts:
        """From the management API's JSON."""
        live = live_queue(found)
        return cls(
            name=str(found["name"]),
            kind=live.kind,
            limit=_stricter(
                _whole(live.arguments.get("x-delivery-limit")),
                _whole(live.policy.get("delivery-limit")),
            ),
            exclusive=live.exclusive or bool(found.get("owner_pid_details")),
            consumers=tuple(_consumers(found)),
        )

    def delivery_limit(self, version: Version) -> int | None:
        """The limit in force; None if there is none."""
        limit = self.limit
        if limit is None and version >= _LIMITED_BY_DEFAULT:
            limit = _DEFAULT_LIMIT
        return None if limit is None or limit < 0 else limit

    def cost(self, version: Version) -> str:
        """What a look costs its messages, in words; empty if nothing that matters."""
        if version >= NACK_IS_FREE or self.kind not in ("quorum", None):
            return ""
        limit = self.delivery_limit(version)
        if limit is None or limit >= DELIVERY_LIMIT:
            return ""
        by = f"RabbitMQ {version[0]}.{version[1]} counts every look towards the delivery limit"
        if self.kind is None:
            return f"if it is a quorum queue, {by}, by default {limit}"
        return f"{by} of this quorum queue, {limit}, and then removes the message"

    def order(self, version: Version, left: int) -> str:
        """How the order of so many that are left suffers, in words; empty if it does not."""
        if version >= (4, 0) or self.kind == "classic":
            return ""
        if self.kind is None:
            return "if it is a quorum queue, what is left is now behind what arrived meanwhile"
        if self.limit is not None:
            scrambled = (
                "a quorum queue with a delivery limit, on RabbitMQ 3, did not keep the order"
            )
            return scrambled if left > _ORDERLY else ""
        return "what is left is now behind what arrived meanwhile: a quorum queue on RabbitMQ 3"

    def counts_looks(self, version: Version) -> bool:
        """Whether `x-delivery-count` of its messages counts looks."""
        return version < NACK_IS_FREE and self.kind != "classic"


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _stricter(argument: int | None, policy: int | None) -> int | None:
    """The limit that holds of two: the lower, unless one says that there is none."""
    if argument is None or policy is None:
        return policy if argument is None else argument
    return max(argument, policy) if argument < 0 or policy < 0 else min(argument, policy)


def _consumers(found: dict[str, Any]) -> list[str]:
    named = []
    for each in found.get("consumer_details") or ():
        channel = each.get("channel_details") or {}
        where = channel.get("connection_name") or channel.get("name") or "an unknown connection"
        named.append(f"{each.get('consumer_tag') or '?'} of {channel.get('user', '?')} ({where})")
    return named
