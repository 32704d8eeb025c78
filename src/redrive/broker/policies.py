"""Which policy is in force for a queue, where one that was just set must not be missed.

The management API shows the policy of a queue among its statistics, which are seconds late (tried:
up to 6 s on 3.10 and 4.3). The policies themselves it lists as they are; but whether one applies to
a queue only the queue knows: its pattern is Erlang's, and one with a key that the queue's type does
not know does not apply. So where the two differ, both are told, and who asks goes by what harms
more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from redrive.broker.enrollment import Policy, applying
from redrive.broker.live import live_queue
from redrive.broker.management import Management
from redrive.errors import ManagementError


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a vhost, as they are now; None where they may not be listed."""

    of_users: tuple[Policy, ...] | None = None
    of_operators: tuple[Policy, ...] | None = None

    @classmethod
    async def read(cls, management: Management) -> Policies:
        return cls(
            await _listed(management.policies()), await _listed(management.operator_policies())
        )

    def as_it_may_be(self, found: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A queue's JSON as it is shown; and, if that differs, as the policies have it now."""
        shown = dict(found)
        if self.of_users is None:
            return [shown]
        kind = live_queue(shown).kind
        users = _first(self.of_users, shown["name"], kind)
        operators = _first(self.of_operators or (), shown["name"], kind)
        now = _merged(users, operators)
        if now == (shown.get("effective_policy_definition") or {}):
            return [shown]
        return [shown, shown | {"effective_policy_definition": now}]


async def _listed(asked: Awaitable[list[dict[str, Any]]]) -> tuple[Policy, ...] | None:
    try:
        return tuple(Policy.read(found) for found in await asked)
    except ManagementError:
        return None


def _first(policies: tuple[Policy, ...], queue: str, kind: str) -> Mapping[str, Any]:
    return next((policy.definition for policy in applying(policies, queue, kind)), {})


def _merged(users: Mapping[str, Any], operators: Mapping[str, Any]) -> dict[str, Any]:
    """An operator's policy comes on top: of two numbers the lower counts, unless it is negative: as
    a delivery limit, on 4.x, that is none (tried on 4.0.5 and 4.3.6; 3.10 has none in a policy).
    Of two ways to overflow 4.x takes the operator's, 3.10 the user's; the one that harms more is
    drop-head."""
    merged = {**operators, **users}
    for key in users.keys() & operators.keys():
        both = users[key], operators[key]
        if all(type(value) is int for value in both):
            merged[key] = max(both) if min(both) < 0 else min(both)
        elif "drop-head" in both:
            merged[key] = "drop-head"
    return merged
