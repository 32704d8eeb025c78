"""How an existing queue can be connected: pure decisions about policies, arguments and limits.

What the broker does (each tried on 3.10, 4.0 and 4.3):
- One policy applies to a queue: of those that match, the one with the highest priority. So ours is
  the policy in force with our keys put in, one priority higher, for exactly this queue.
- A policy with a key that the queue's type does not know (`dead-letter-strategy` on a classic
  queue, `ha-mode` on a quorum queue) does not apply to that queue at all.
- A queue's own arguments beat policies, key by key; but not the overflow of a quorum queue, where
  the policy beats the argument.
- At-least-once dead-lettering needs a quorum queue with `overflow=reject-publish` in force; without
  it the broker falls back to the unsafe way and does not say so. So our policy says it whatever the
  arguments say: the definition that it is merged with may say otherwise.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from redrive.broker.drift import LiveExchange, LiveQueue
from redrive.broker.room import least
from redrive.broker.topology import Binding, return_key
from redrive.settings.sections import TopologyNames

POLICY_PREFIX: Final = "redrive-enroll:"
BINDING_MARK: Final = "redrive-enroll"
"""The argument that marks a binding as made by enroll; its value is the queue enrolled."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of the broker."""

    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: Mapping[str, Any]

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Policy:
        """From the management API's JSON."""
        return cls(
            found["name"],
            found["pattern"],
            found.get("apply-to", "all"),
            found.get("priority", 0),
            found["definition"] or {},
        )

    def matches(self, name: str) -> bool:
        """Whether its pattern may match: Erlang's expressions are almost Python's."""
        return _matches(self.pattern, name)

    def document(self) -> dict[str, Any]:
        """For the management API."""
        return {
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "priority": self.priority,
            "definition": dict(self.definition),
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """A queue that somebody wants to enroll, and what the broker says of it."""

    name: str
    queue: LiveQueue
    base: Policy | None
    """The policy in force, without ours."""
    priority: int
    """Higher than that of every policy that matches."""
    dead_letter_exchange: LiveExchange | None
    """The one that the queue names, if it exists."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What enrolling a queue would do."""

    queue: str
    policy: Policy | None
    base: str | None
    """The name of the policy whose definition is merged."""
    bindings: tuple[Binding, ...]
    """To the return exchange; with `--bind-exchange` also of `retry-queue`."""
    warnings: tuple[str, ...] = ()
    consents: tuple[str, ...] = ()
    """What changes for the users of the queue; done only if they say yes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a queue cannot be enrolled, and what to do instead."""

    queue: str
    reason: str


def policy_name(queue: str) -> str:
    """The policy that enrolls a queue."""
    return f"{POLICY_PREFIX}{queue}"


def matching(policies: Iterable[Policy], queue: str, kind: str) -> list[Policy]:
    """The policies that may match a queue, without ours, the highest priority first."""
    others = (policy for policy in policies if policy.name != policy_name(queue))
    return applying(others, queue, kind)


def applying(policies: Iterable[Policy], queue: str, kind: str) -> list[Policy]:
    """The policies that may match a queue, the highest priority first."""
    kinds = {"all", "queues", f"{kind}_queues"}
    found = [each for each in policies if each.apply_to in kinds and each.matches(queue)]
    return sorted(found, key=lambda policy: policy.priority, reverse=True)


def _matches(pattern: str, queue: str) -> bool:
    """Whether it may match: Erlang's expressions are almost Python's, and the queue decides."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.search(queue) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what Python does not know, or reads differently, such as [[:alpha:]]."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(pattern)
    except (re.error, FutureWarning):
        return None


def exactly(queue: str) -> str:
    """The pattern that matches this queue and no other."""
    # Only ASCII: to the broker other characters are bytes, and a backslash would split them.
    return "^" + re.sub(r"([!-/:-@\[-^`{-~\s])", r"\\\1", queue, flags=re.ASCII) + "$"


def consider(
    candidate: Candidate, names: TopologyNames, *, bind_exchange: bool = False
) -> Intent | Refusal:
    """What to do about a queue."""
    name, queue, base = candidate.name, candidate.queue, candidate.base
    refusal = _impossible(candidate, names)
    if refusal:
        return Refusal(name, refusal)
    by_argument = queue.arguments.get("x-dead-letter-exchange")
    by_policy = base.definition.get("dead-letter-exchange") if base else None
    target = by_policy if by_argument is None else by_argument
    intent = Intent(
        name,
        policy=None,
        base=None,
        bindings=(Binding(names.return_exchange, name, return_key(name)),),
    )
    if target in {None, names.retry_exchange}:
        return _by_policy(candidate, intent, names)
    if bind_exchange:
        return _by_binding(candidate, intent, names, target)
    if by_argument is not None:
        return Refusal(
            name,
            f"its argument x-dead-letter-exchange sends dead messages to {target!r}, which no"
            f" policy can change; --bind-exchange binds {names.retry_queue} to that exchange",
        )
    assert base is not None
    intent = _by_policy(candidate, intent, names)
    instead = (
        f"its dead messages go to {names.retry_exchange} instead of {target!r}, where the policy"
        f" {base.name!r} sends them (--bind-exchange leaves that as it is)"
    )
    return replace(intent, consents=(instead, *intent.consents))


def _impossible(candidate: Candidate, names: TopologyNames) -> str:
    queue = candidate.queue
    if queue.exclusive:
        return _exclusive(queue, names)
    if queue.kind not in {"classic", "quorum"}:
        return f"it is a {queue.kind}, which does not dead-letter"
    return ""


def _exclusive(queue: LiveQueue, names: TopologyNames) -> str:
    """Its messages come back without a binding of ours: by their exchange."""
    reason = "it is exclusive to a connection, so it cannot be enrolled: nobody else can bind it"
    returns = "gets its messages back by its exchange, where its neighbours see every retry"
    if queue.in_force("dead-letter-exchange") == names.retry_exchange:
        return (
            f"{reason}; nothing is to be done: it dead-letters to Redrive, is retried and {returns}"
        )
    argument = f"x-dead-letter-exchange: {names.retry_exchange}"
    return (
        f"{reason}; declare it with the argument {argument}, by which it is retried and {returns}"
    )


# By policy


def _by_policy(candidate: Candidate, intent: Intent, names: TopologyNames) -> Intent:
    queue, base = candidate.queue, candidate.base
    ours = _keys(queue, names)
    definition = dict(base.definition) if base else {}
    without_ours = replace(queue, policy=definition)
    said = all(without_ours.in_force(key) == value for key, value in ours.items())
    renews = queue.policy_name == policy_name(candidate.name)  # or an older one would stay
    if said and not (ours and renews):
        # Its arguments, or the policy in force, say it all.
        return replace(intent, warnings=_unsafe(candidate, {}))
    policy = Policy(
        policy_name(candidate.name),
        exactly(candidate.name),
        "queues",
        candidate.priority,
        definition | ours,
    )
    return replace(
        intent,
        policy=policy,
        base=base.name if base else None,
        warnings=_unsafe(candidate, ours),
        consents=_limited(candidate, ours),
    )


def _keys(queue: LiveQueue, names: TopologyNames) -> dict[str, Any]:
    """What a policy must say of this queue: all that its arguments do not decide."""
    arguments = queue.arguments
    ours: dict[str, Any] = {}
    if "x-dead-letter-exchange" not in arguments:
        ours["dead-letter-exchange"] = names.retry_exchange
        ours["dead-letter-routing-key"] = names.retry_routing_key
    if queue.kind == "quorum":
        ours["dead-letter-strategy"] = "at-least-once"
    ours = {key: value for key, value in ours.items() if f"x-{key}" not in arguments}
    strategy = arguments.get("x-dead-letter-strategy", ours.get("dead-letter-strategy"))
    if queue.kind == "quorum" and strategy == "at-least-once":
        ours["overflow"] = "reject-publish"  # also beside an argument, which it beats
    return ours


def _with(candidate: Candidate, ours: Mapping[str, Any]) -> LiveQueue:
    """The queue with what is in force on it, operators' keys too, and ours put in."""
    base = candidate.base.definition if candidate.base else {}
    return replace(candidate.queue, policy={**base, **candidate.queue.policy, **ours})


def _unsafe(candidate: Candidate, ours: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the broker may lose a message between this queue and Redrive (guarantee 1)."""
    queue = candidate.queue
    if queue.kind == "classic":
        warning = (
            "it is a classic queue: a crash of the broker can lose or double what is on its way"
            " from it to Redrive; only quorum queues dead-letter safely"
        )
        return (warning,)
    enrolled = _with(candidate, ours)
    strategy = enrolled.in_force("dead-letter-strategy")
    if (strategy, enrolled.overflow) != ("at-least-once", "reject-publish"):
        warning = (
            "it does not dead-letter at least once (in force are dead-letter-strategy"
            f" {strategy or 'none'} and overflow {enrolled.overflow}): a crash of the broker can"
            " lose what is on its way from it to Redrive"
        )
        return (warning,)
    return ()


def _limited(candidate: Candidate, ours: Mapping[str, Any]) -> tuple[str, ...]:
    """`reject-publish` means something else to the publishers of a queue with a limit."""
    now = _with(candidate, {})
    limits = [
        f"{key} {limit}"
        for key in ("max-length", "max-length-bytes")
        if (limit := least(now, key)) is not None
    ]
    if not limits or "overflow" not in ours or now.overflow == ours["overflow"]:
        return ()
    consent = (
        f"it has a limit ({', '.join(limits)}): when full it will refuse new messages, where it"
        " now drops the oldest"
    )
    return (consent,)


# By binding


def _by_binding(
    candidate: Candidate, intent: Intent, names: TopologyNames, target: str
) -> Intent | Refusal:
    queue, exchange = candidate.queue, candidate.dead_letter_exchange
    policy = candidate.base.definition if candidate.base else {}
    key = queue.arguments.get("x-dead-letter-routing-key", policy.get("dead-letter-routing-key"))
    if target == "":
        reason = f"it dead-letters straight into the queue {key or candidate.name!r}"
        return Refusal(
            candidate.name, f"{reason}, by the default exchange, which nothing can be bound to"
        )
    if exchange is None:
        return Refusal(
            candidate.name,
            f"the exchange {target!r} that it dead-letters to does not exist, so its dead messages"
            " are dropped; make that exchange first",
        )
    if exchange.kind == "topic":
        key = key or "#"
    elif exchange.kind == "fanout":
        key = key or ""
    elif exchange.kind != "direct" or key is None:
        return Refusal(
            candidate.name,
            f"{names.retry_queue} cannot be bound to {target!r} (type {exchange.kind}) for it: no"
            " single key catches its dead messages; bind it yourself",
        )
    shared = (
        f"whatever else reaches {target!r} with the key {key!r} now goes to {names.retry_queue}"
        " too; queues that were bound there before still get their copy"
    )
    return replace(
        intent,
        bindings=(*intent.bindings, Binding(target, names.retry_queue, key)),
        warnings=(*_unsafe(candidate, {}), shared),
    )
