"""A broker as the doctor sees it: one value, taken at one time, that every check reads.

Pure. What the management API's JSON says is read here and nowhere else in the doctor. Counts are
the broker's own statistics, which are some seconds old.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from redrive.broker.doctor.finding import Unseen
from redrive.broker.drift import DROP_HEAD, Drift, LiveExchange, LiveQueue, Snapshot
from redrive.broker.enrollment import Policy, matching, policy_name
from redrive.broker.live import live_exchange, live_queue
from redrive.broker.looking import QueueFacts, Version
from redrive.broker.topology import Binding, Topology
from redrive.domain import globs
from redrive.settings.sections import TopologyNames

GROWTH_OVER: Final = timedelta(minutes=10)
COLUMNS: Final = (
    *("name", "type", "durable", "exclusive", "auto_delete", "arguments", "policy"),
    *("operator_policy", "effective_policy_definition", "owner_pid_details"),
    *("messages", "message_bytes", "messages_dlx", "consumers", "messages_details.avg_rate"),
    *("message_stats.ack", "message_stats.deliver_no_ack", "message_stats.get_no_ack"),
)
# Names by which queues say that what is in them is there to stay; so they need no dead letter
# exchange. Spring, MassTransit, NServiceBus and people call them so.
_ENDS: Final = re.compile(
    r"(?:^|[._:/-])(?:dlq|dead|dead[._-]?letters?|parked|parking(?:[._-]?lot)?|poison|errors?"
    r"|failed|failures?|skipped|undeliverable)(?:$|[._:/-])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQueue:
    """A queue, with what is in force on it."""

    name: str
    live: LiveQueue
    facts: QueueFacts
    messages: int = 0
    bytes: int = 0
    consumers: int = 0
    dead_lettering: int = 0
    """Messages that wait until their dead letter target confirms them (at-least-once)."""
    grown: int | None = None
    """By how many messages over the last minutes; None if unknown."""
    never_taken: bool = False
    """Whether nobody is known to have taken a message for good."""

    @classmethod
    def read(cls, found: Mapping[str, Any], policies: Iterable[Policy] = ()) -> SeenQueue:
        """From the management API. A queue that shows no policy yet has the one that matches."""
        document = dict(found)
        if "policy" not in document:
            policy = _expected(policies, str(found["name"]), live_queue(document).kind)
            if policy is not None:
                document["policy"] = policy.name
                document["effective_policy_definition"] = dict(policy.definition)
        stats = document.get("message_stats") or {}
        rate = (document.get("messages_details") or {}).get("avg_rate")
        return cls(
            name=str(document["name"]),
            live=live_queue(document),
            facts=QueueFacts.from_management(document),
            messages=_count(document.get("messages")),
            bytes=_count(document.get("message_bytes")),
            consumers=_count(document.get("consumers")),
            dead_lettering=_count(document.get("messages_dlx")),
            grown=_grown(rate),
            never_taken=not any(stats.values()),
        )

    def in_force(self, key: str) -> Any:
        """What counts of a key such as `overflow`; None if nothing says it."""
        return self.live.in_force(key)

    def limit(self, key: str) -> int | None:
        """The value of a limit such as `max-length`: of argument and policy the smaller."""
        found = [self.live.arguments.get(f"x-{key}"), self.live.policy.get(key)]
        return min((value for value in found if type(value) is int), default=None)

    @property
    def kind(self) -> str:
        return self.live.kind

    @property
    def dead_letter_exchange(self) -> str | None:
        value = self.in_force("dead-letter-exchange")
        return None if value is None else str(value)

    @property
    def dead_letter_key(self) -> str | None:
        value = self.in_force("dead-letter-routing-key")
        return None if value is None else str(value)

    @property
    def asks_at_least_once(self) -> bool:
        return bool(self.in_force("dead-letter-strategy") == "at-least-once")

    @property
    def lasts(self) -> bool:
        """Whether it is there to stay, and holds messages as queues do."""
        return (
            self.live.durable
            and not self.facts.exclusive
            and not self.live.auto_delete
            and self.in_force("expires") is None
            and self.kind in ("classic", "quorum")
        )

    @property
    def is_delay(self) -> bool:
        """Whether messages only wait in it, to go on when their time is over."""
        return (
            self.dead_letter_exchange is not None
            and self.limit("message-ttl") is not None
            and not self.consumers
        )

    @property
    def waits_by_messages(self) -> bool:
        """Whether messages may wait in it by TTLs of their own: nobody takes them, and it has no
        TTL for all."""
        return (
            self.dead_letter_exchange is not None
            and self.limit("message-ttl") is None
            and self.never_taken
            and not self.consumers
        )

    @property
    def is_full(self) -> bool:
        """Whether it refuses messages for want of room."""
        if self.live.overflow == DROP_HEAD:
            return False
        length, size = self.limit("max-length"), self.limit("max-length-bytes")
        return (length is not None and self.messages >= length) or (
            size is not None and self.bytes >= size
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first messages of a delay queue, front to back."""

    ttls: tuple[timedelta | None, ...]
    """How long each is to wait; None is for ever."""
    overdue: int = 0
    """How many stood behind them and had waited long enough. A look lets them go."""

    def within(self, ttl: timedelta | None) -> Waiting:
        """The same in a queue that lets nothing wait longer."""
        if ttl is None:
            return self
        shorter = tuple(ttl if each is None else min(each, ttl) for each in self.ttls)
        return Waiting(shorter, self.overdue)


@dataclass(frozen=True, slots=True)
class Need:
    """A permission that Redrive's work takes, and what for."""

    permission: str
    kind: str
    name: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may do in the vhost, as three patterns."""

    configure: str
    write: str
    read: str


@dataclass(frozen=True, kw_only=True)
class View:
    """All that was seen of a broker."""

    version: Version
    full_version: str
    vhost: str
    user: str
    topology: Topology
    names: TopologyNames
    drift: Drift
    own: frozenset[str] = frozenset()
    """Redrive's queues, those of left-over tiers and the ladder's too."""
    collected: tuple[str, ...] = ()
    """Globs of the dead letter queues that the collector reads beside its own."""
    complete: bool = True
    """Whether the management API told: without it, only Redrive's own queues are known."""
    management_url: str = ""
    queues: Mapping[str, SeenQueue] = field(default_factory=dict)
    exchanges: Mapping[str, LiveExchange] = field(default_factory=dict)
    bindings: Sequence[Mapping[str, Any]] = ()
    policies: tuple[Policy, ...] = ()
    exchange_types: frozenset[str] = frozenset()
    flags: Mapping[str, str] | None = None
    """Feature flags and their states; None if unknown."""
    lacking: tuple[Need, ...] = ()
    permissions: Permissions | None = None
    """None if only an administrator may know."""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    """Delay queues that were looked into."""
    global_qos: tuple[str, ...] = ()
    """Connections with a channel whose prefetch limit is shared by its consumers."""
    unseen: tuple[Unseen, ...] = ()

    @cached_property
    def bindings_from(self) -> dict[str, list[Mapping[str, Any]]]:
        found: dict[str, list[Mapping[str, Any]]] = {}
        for binding in self.bindings:
            found.setdefault(str(binding["source"]), []).append(binding)
        return found

    @cached_property
    def bindings_to(self) -> dict[str, list[Mapping[str, Any]]]:
        found: dict[str, list[Mapping[str, Any]]] = {}
        for binding in self.bindings:
            if binding.get("destination_type") == "queue":
                found.setdefault(str(binding["destination"]), []).append(binding)
        return found

    @cached_property
    def users_queues(self) -> tuple[SeenQueue, ...]:
        """The queues that are there to stay and are not Redrive's own."""
        return tuple(
            queue
            for queue in self.queues.values()
            if queue.lasts and queue.name not in self.own and not queue.name.startswith("amq.gen-")
        )

    @cached_property
    def undescribed(self) -> tuple[SeenQueue, ...]:
        """Redrive's own queues that its topology does not describe, so that no drift tells of them:
        rungs of the ladder, and what is left of tiers that the settings no longer have."""
        described = self.topology.queue_names()
        return tuple(
            queue
            for queue in self.queues.values()
            if queue.name in self.own and queue.name not in described
        )

    def is_collected(self, queue: str) -> bool:
        return queue == self.names.dlq_queue or any(
            globs.matching(pattern, [queue]) for pattern in self.collected
        )

    def is_end_by_name(self, queue: str) -> bool:
        """Whether a queue's name says that messages are there to stay."""
        return self.is_collected(queue) or _ENDS.search(queue) is not None

    @property
    def is_applied(self) -> bool:
        """Whether nothing of Redrive's topology is missing."""
        return not any(finding.standing == "missing" for finding in self.drift.findings)


def drift_snapshot(
    queues: Mapping[str, SeenQueue],
    exchanges: Mapping[str, LiveExchange],
    bindings: Iterable[Mapping[str, Any]],
) -> Snapshot:
    """What the comparison with the description needs of a view."""
    return Snapshot(
        exchanges=exchanges,
        queues={name: queue.live for name, queue in queues.items()},
        bindings=frozenset(
            Binding(found["source"], found["destination"], found["routing_key"])
            for found in bindings
            if found.get("destination_type") == "queue" and not found.get("arguments")
        ),
    )


def read_exchanges(found: Iterable[dict[str, Any]]) -> dict[str, LiveExchange]:
    """Exchanges by name, from the management API."""
    return {str(each["name"]): live_exchange(each) for each in found}


def _expected(policies: Iterable[Policy], queue: str, kind: str) -> Policy | None:
    """The policy that should be in force on a queue."""
    policies = tuple(policies)
    ours = [policy for policy in policies if policy.name == policy_name(queue)]
    found = [*ours, *matching(policies, queue, kind)]
    return max(found, key=lambda policy: policy.priority, default=None)


def _grown(rate: object) -> int | None:
    return round(rate * GROWTH_OVER.total_seconds()) if isinstance(rate, int | float) else None


def _count(value: object) -> int:
    return value if type(value) is int else 0
