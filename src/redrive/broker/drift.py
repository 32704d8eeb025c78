"""How a broker differs from the description: pure comparison of what should be with what is.

A part of the description is the same, missing, different, unknown (the wire cannot tell) or left
over from a tier that the settings no longer have. A policy of the broker that would drop messages
of a Redrive queue, cut its delay, delete it or keep it from dead-lettering at least once counts as
a difference of that queue: such policies match by pattern, and `.*` matches ours too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from redrive.broker.topology import Binding, Exchange, Part, Queue, Topology

DROP_HEAD: Final = "drop-head"


class Standing(StrEnum):
    """How a part of the description stands on the broker."""

    SAME = "same"
    MISSING = "missing"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    LEFT_OVER = "left over"


@dataclass(frozen=True, slots=True)
class Difference:
    """One property of a part; None stands for "not set"."""

    what: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.what}: expected {_shown(self.expected)}, got {_shown(self.got)}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the description, and how it stands."""

    part: Part
    standing: Standing
    differences: tuple[Difference, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        said = [*map(str, self.differences), *filter(None, (self.note,))]
        return f"{self.part}: {'; '.join(said)}"


@dataclass(frozen=True, slots=True)
class Drift:
    """Every part of the description, and how it stands."""

    findings: tuple[Finding, ...]
    exact: bool
    """Whether the management API told: the wire alone sees no bindings and no policies."""

    def of(self, *standings: Standing) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.standing in standings)

    @property
    def clean(self) -> bool:
        """Whether nothing is known to be wrong."""
        return not self.of(Standing.MISSING, Standing.DIFFERS, Standing.LEFT_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveExchange:
    """An exchange as the management API shows it."""

    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQueue:
    """A queue as the management API shows it; `policy` is the definition in force."""

    kind: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    policy_name: str = ""
    policy: Mapping[str, Any] = field(default_factory=dict)

    def in_force(self, key: str) -> Any:
        """What counts of a key such as `dead-letter-strategy`, None if nothing says it: the
        argument, else the policy; but of `overflow`, see there. Of two limits the lower counts."""
        if key == "overflow":
            return self.overflow
        argument = self.arguments.get(f"x-{key}")
        return self.policy.get(key) if argument is None else argument

    @property
    def overflow(self) -> str:
        """What it does with what is over its limits.

        Where argument and policy name different ways, the argument counts in a classic queue, and
        the policy in a quorum queue, which knows `reject-publish` and `drop-head` only. By that way
        a quorum queue also decides whether it dead-letters at least once as it was told to (each
        tried on 3.10.8, 4.0.5 and 4.3.6).
        """
        said = self.arguments.get("x-overflow"), self.policy.get("overflow")
        argument, policy = (str(each) if each else "" for each in said)
        if self.kind != "quorum":
            return argument or policy or DROP_HEAD
        said_last = policy or argument
        return said_last if said_last == "reject-publish" else DROP_HEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a broker has of what the description names."""

    exchanges: Mapping[str, LiveExchange] = field(default_factory=dict)
    queues: Mapping[str, LiveQueue] = field(default_factory=dict)
    bindings: frozenset[Binding] = frozenset()


def compare(topology: Topology, snapshot: Snapshot) -> Drift:
    """Every part of the description against what the broker has."""
    return Drift(tuple(_compare(part, snapshot) for part in topology.parts()), exact=True)


def _compare(part: Part, snapshot: Snapshot) -> Finding:
    match part:
        case Binding():
            found = part in snapshot.bindings
            return Finding(part, Standing.SAME if found else Standing.MISSING)
        case Exchange():
            exchange = snapshot.exchanges.get(part.name)
            if exchange is None:
                return Finding(part, Standing.MISSING)
            differences = tuple(_of_exchange(part, exchange))
        case Queue():
            queue = snapshot.queues.get(part.name)
            if queue is None:
                return Finding(part, Standing.MISSING)
            differences = (*_of_queue(part, queue), *_of_policy(part, queue))
    return Finding(part, Standing.DIFFERS if differences else Standing.SAME, differences)


def _of_exchange(expected: Exchange, got: LiveExchange) -> Iterator[Difference]:
    if got.kind != expected.kind:
        yield Difference("type", expected.kind, got.kind)
    yield from _of_flags(durable=got.durable, auto_delete=got.auto_delete, internal=got.internal)
    yield from _of_arguments({}, got.arguments)


def _of_queue(expected: Queue, got: LiveQueue) -> Iterator[Difference]:
    if got.kind != expected.kind:
        yield Difference("x-queue-type", expected.kind, got.kind)
    yield from _of_flags(durable=got.durable, auto_delete=got.auto_delete, exclusive=got.exclusive)
    yield from _of_arguments(expected.arguments, got.arguments)


def _of_flags(**flags: bool) -> Iterator[Difference]:
    for name, got in flags.items():
        expected = name == "durable"
        if got != expected:
            yield Difference(name.replace("_", "-"), expected, got)


def _of_arguments(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[Difference]:
    # The type is compared by itself: a classic queue may have been declared without saying so.
    for name in sorted((expected.keys() | got.keys()) - {"x-queue-type"}):
        if expected.get(name) != got.get(name):
            yield Difference(name, expected.get(name), got.get(name))


# Policy key → the argument that bounds it. The broker takes the smaller of the two.
_BOUNDS: Final = {
    "message-ttl": "x-message-ttl",
    "delivery-limit": "x-delivery-limit",
    "expires": "x-expires",
    "max-length": "x-max-length",
    "max-length-bytes": "x-max-length-bytes",
}


def _of_policy(expected: Queue, got: LiveQueue) -> Iterator[Difference]:
    if expected.users:
        return
    for key, argument in _BOUNDS.items():
        limit, ours = got.policy.get(key), expected.arguments.get(argument)
        if limit is None or (key == "delivery-limit" and expected.kind == "classic"):
            continue
        if ours is None or not isinstance(limit, int) or not isinstance(ours, int) or limit < ours:
            yield Difference(f"{key} by the policy {got.policy_name!r}", ours, limit)
    refuses = expected.arguments.get("x-overflow")
    if refuses is not None and "overflow" in got.policy and got.overflow != refuses:
        yield Difference(f"overflow by the policy {got.policy_name!r}", refuses, got.overflow)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
