"""What it costs to look into a queue, and in which order it gets back what was looked at.

Tried on 3.10.8, 4.0.5 and 4.3.6, with the consumer cancelled first and one nack for all of it:
- Classic queues keep the order and count nothing.
- Quorum queues up to 4.2 count every return, and where they have a delivery limit, the message that
  reaches it is dead-lettered or dropped. From 4.0 on they have one, 20, unless told otherwise.
- A limit of -1 means none from 4.0 on. 3.x takes it at its word, also where a policy says more: the
  first return removes the message.
- From 4.3 on a nack does not count towards the limit.
- Order: 4.x keeps it, but what comes back goes behind what came back before and was not taken: so
  only a queue whose first messages were given back before is turned, by a look at some of these.
  3.x does so too where there is a delivery limit, but puts more than 32 messages in no order,
  unless they were fetched and go back a few at a time, as is done where a look costs. Without a
  limit it puts what comes back behind all that is there, in its order: behind what was not taken,
  and what has arrived since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from redrive.broker.live import live_queue
from redrive.broker.topology import DELIVERY_LIMIT

Version = tuple[int, int]

SPEND_DELIVERIES: Final = "--spend-deliveries"
"""The option by which looks that cost are allowed."""
NACK_IS_FREE: Final[Version] = (4, 3)
_LIMITED_BY_DEFAULT: Final[Version] = (4, 0)
_NEGATIVE_IS_NONE: Final[Version] = (4, 0)
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
    limits: tuple[int, ...] = ()
    """Its delivery limits, by argument and by policy, as far as is known."""
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
            limits=_whole(
                live.arguments.get("x-delivery-limit"), live.policy.get("delivery-limit")
            ),
            exclusive=live.exclusive or bool(found.get("owner_pid_details")),
            consumers=tuple(_consumers(found)),
        )

    def delivery_limit(self, version: Version) -> int | None:
        """The limit in force; None if there is none."""
        if not self.limits:
            return _DEFAULT_LIMIT if version >= _LIMITED_BY_DEFAULT else None
        if version < _NEGATIVE_IS_NONE:
            return max(0, min(self.limits))
        limit = max(self.limits) if min(self.limits) < 0 else min(self.limits)
        return None if limit < 0 else limit

    def removes_at_once(self, version: Version) -> bool:
        """Whether somebody meant no limit, and the broker removes at the first return."""
        return version < _NEGATIVE_IS_NONE and any(limit < 0 for limit in self.limits)

    def cost(self, version: Version) -> str:
        """What a look costs its messages, in words; empty if nothing that matters."""
        if version >= NACK_IS_FREE or self.kind not in ("quorum", None):
            return ""
        broker = f"RabbitMQ {version[0]}.{version[1]}"
        if self.kind is None:
            which = "as it has by default" if version >= _LIMITED_BY_DEFAULT else "if it has one"
            return (
                f"its limits are unknown without the management API, and {broker} counts every"
                f" look into a quorum queue towards its delivery limit, {which}, and then removes"
                " the message"
            )
        limit = self.delivery_limit(version)
        if limit is None or limit >= DELIVERY_LIMIT:
            return ""
        if limit == 0:
            said = min(self.limits, default=0)
            return (
                f"by the delivery limit of this quorum queue, {said}, {broker} removes every"
                " message that is looked at and not moved"
            )
        return (
            f"{broker} counts every look towards the delivery limit of this quorum queue, {limit},"
            " and then removes the message"
        )

    def removed_at(self, version: Version) -> int | None:
        """With which delivery count a message is removed when it is given back; None if never, as
        far as is known."""
        return self.delivery_limit(version) if self.cost(version) else None

    def order(
        self, version: Version, went_back: int, untouched: int = 0, *, again: bool = False
    ) -> str:
        """How the order suffers where so many went back and others were not taken at all, in words;
        empty if it does not. `again` if even the last that was taken had been given back before."""
        if self.kind == "classic":
            return ""
        turned = ""
        if untouched and again and self.kind == "quorum":
            turned = (
                "what was looked at and left is now behind what else had been given back to this"
                " quorum queue before, if anything had"
            )
        if version >= (4, 0):
            return turned
        skipped = f"the {untouched:,} that were not looked at, and " if untouched else ""
        behind = f"what was looked at and left is now behind {skipped}what arrived meanwhile"
        if self.kind is None:
            return f"if it is a quorum queue, {behind}"
        if self.limits:
            scrambled = (
                "a quorum queue with a delivery limit, on RabbitMQ 3, did not keep the order"
            )
            one_by_one = self.removed_at(version) is not None
            return scrambled if went_back > _ORDERLY and not one_by_one else turned
        return f"{behind}: a quorum queue on RabbitMQ 3"

    def counts_looks(self, version: Version) -> bool:
        """Whether `x-delivery-count` of its messages counts looks."""
        return version < NACK_IS_FREE and self.kind != "classic"


def _whole(*values: object) -> tuple[int, ...]:
    return tuple(value for value in values if type(value) is int)


def _consumers(found: dict[str, Any]) -> list[str]:
    named = []
    for each in found.get("consumer_details") or ():
        channel = each.get("channel_details") or {}
        where = channel.get("connection_name") or channel.get("name") or "an unknown connection"
        named.append(f"{each.get('consumer_tag') or '?'} of {channel.get('user', '?')} ({where})")
    return named
