"""Connects existing queues to Redrive by a policy of the broker, and takes that back.

Guarantees: every queue is considered before any is changed; if one cannot be enrolled, none is. A
policy is set only after the return binding is there, and it is read back from the queue: where the
broker does not put it in force, it is removed again and the error says so. `unenroll` deletes our
policy and our bindings, after which the users' own policy is in force as before. Needs the
management API: AMQP knows no policies.

The broker shows a queue's policy with a delay (its statistics intervals; 5 to 12 s with their
defaults), so reading back takes that long. Before that, the list of policies, which is always
current, tells which policy is in force; where the queue itself shows another one (a policy with a
key that the type of queue does not know is passed over), the queue is believed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from redrive.amqp import Connection
from redrive.broker.drift import Standing
from redrive.broker.enrollment import (
    BINDING_MARK,
    Candidate,
    Intent,
    Policy,
    Refusal,
    consider,
    matching,
    policy_name,
)
from redrive.broker.live import SpareChannel, examine, live_exchange, live_queue
from redrive.broker.management import Management
from redrive.broker.topology import Binding, Topology
from redrive.errors import BrokerError, NotFound
from redrive.settings.sections import TopologyNames

SHOWN_WITHIN: Final = timedelta(seconds=30)
"""How long the broker may take to show a queue's policy: its statistics interval, and some."""
_STALE_FOR: Final = 15.0  # seconds: 12 were seen with the default interval
_STEP: Final = 0.1


@dataclass(frozen=True, slots=True)
class Consideration:
    """What enrolling would do, before anything is done."""

    intents: tuple[Intent, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Unenrolled:
    """What was taken back; neither: the queue was not enrolled."""

    queue: str
    policy: bool
    bindings: int


class Enroller:
    """Enrolls queues of one broker; made with what Redrive has there."""

    def __init__(
        self,
        topology: Topology,
        names: TopologyNames,
        connection: Connection,
        management: Management,
        *,
        shown_within: timedelta = SHOWN_WITHIN,
    ) -> None:
        self._topology = topology
        self._names = names
        self._connection = connection
        self._management = management
        self._patience = shown_within.total_seconds()

    # Enroll

    async def consider(
        self, queues: Sequence[str], *, bind_exchange: bool = False
    ) -> Consideration:
        """What enrolling these queues would do.

        Raises BrokerError where the topology is incomplete: dead messages would be dropped.
        """
        drift = await examine(self._topology, self._connection, self._management)
        missing = drift.of(Standing.MISSING)
        if missing:
            raise BrokerError(
                f"the broker lacks {len(missing)} parts of Redrive's topology, so dead messages"
                " would be dropped",
                remedy="run 'redrive topology apply' first",
            )
        policies = [Policy.read(found) for found in await self._management.policies()]
        answers = await asyncio.gather(
            *(self._consider(queue, policies, bind_exchange=bind_exchange) for queue in queues)
        )
        return Consideration(
            tuple(answer for answer in answers if isinstance(answer, Intent)),
            tuple(answer for answer in answers if isinstance(answer, Refusal)),
        )

    async def enroll(self, intents: Sequence[Intent]) -> None:
        """Do it, for all or for none: on an error everything is taken back."""
        before = {intent.queue: await self._ours(intent.queue) for intent in intents}
        try:
            for intent in intents:
                await self._bind(intent)
            for intent in intents:
                if intent.policy is not None:
                    await self._management.set_policy(intent.policy.name, intent.policy.document())
            await self._verify_all(intents)
        except BaseException:
            for intent in intents:
                await self._take_back(intent, before[intent.queue])
            raise

    async def _consider(
        self, name: str, policies: list[Policy], *, bind_exchange: bool
    ) -> Intent | Refusal:
        if name in {queue.name for queue in self._topology.queues}:
            return Refusal(name, "it is one of Redrive's own, or has a [[queue]] in the settings")
        found = await self._management.queue(name)
        if found is None:
            return Refusal(name, "there is no such queue in this vhost")
        queue = live_queue(found)
        matches = matching(policies, name, queue.kind)
        base = None
        if matches or found.get("policy"):
            base = await self._in_force(name, matches, policies)
        target = queue.arguments.get("x-dead-letter-exchange")
        if target is None and base is not None:
            target = base.definition.get("dead-letter-exchange")
        exchange = await self._management.exchange(target) if target else None
        candidate = Candidate(
            name,
            queue,
            base,
            priority=matches[0].priority + 1 if matches else 1,
            dead_letter_exchange=live_exchange(exchange) if exchange else None,
        )
        return consider(candidate, self._names, bind_exchange=bind_exchange)

    async def _in_force(
        self, queue: str, matches: list[Policy], policies: list[Policy]
    ) -> Policy | None:
        """The policy in force, without ours, as the queue itself shows it."""
        first = matches[0] if matches else None
        expected = {policy_name(queue), first.name if first else None}
        shown: dict[str, Any] = {}
        began = time.monotonic()
        while time.monotonic() - began < self._patience:
            shown = await self._management.queue(queue) or {}
            if "policy" in shown and shown["policy"] in expected:
                return first
            if "policy" in shown and time.monotonic() - began > _STALE_FOR:
                break  # it is not late, it is so
            await asyncio.sleep(_STEP)
        if "policy" not in shown:
            return first  # a broker that keeps no statistics shows no policies
        by_name = {policy.name: policy for policy in policies}
        return by_name.get(shown["policy"])

    async def _ours(self, queue: str) -> dict[str, Any] | None:
        return await self._management.policy(policy_name(queue))

    async def _bind(self, intent: Intent) -> None:
        wire = SpareChannel(self._connection)
        try:
            for binding in intent.bindings:
                channel = await wire.open()
                await channel.bind_queue(
                    binding.queue, binding.exchange, binding.routing_key, _mark(intent, binding)
                )
        finally:
            await wire.close()

    async def _verify_all(self, intents: Sequence[Intent]) -> None:
        outcomes = await asyncio.gather(
            *(self._verify(intent) for intent in intents), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _verify(self, intent: Intent) -> None:
        """Wait until the queue itself shows our policy, with every key in force."""
        policy = intent.policy
        if policy is None:
            return
        shown: dict[str, Any] = {}
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            shown = await self._management.queue(intent.queue) or {}
            in_force = shown.get("effective_policy_definition") or {}
            if shown.get("policy") == policy.name and _holds(in_force, policy):
                return
            await asyncio.sleep(_STEP)
        if shown.get("policy") == policy.name:
            cause = f"the operator policy {shown.get('operator_policy')!r} overrides it"
        elif shown.get("policy"):
            cause = f"{shown['policy']!r} is in force instead"
        else:
            cause = "none is shown"
        raise BrokerError(
            f"the policy that enrolls {intent.queue!r} did not come into force: {cause};"
            " it was removed again",
            remedy="see the queue's page in the management console",
        )

    async def _take_back(self, intent: Intent, before: dict[str, Any] | None) -> None:
        if intent.policy is not None:
            if before is None:
                await self._management.delete_policy(intent.policy.name)
            else:
                await self._management.set_policy(
                    intent.policy.name, Policy.read(before).document()
                )
        if before is None:
            await self._unbind(intent.queue)

    # Unenroll

    async def unenroll(self, queue: str) -> Unenrolled:
        """Take back what enroll did. Nothing else is touched, and a queue that is gone is fine."""
        policy = await self._management.delete_policy(policy_name(queue))
        return Unenrolled(queue, policy, await self._unbind(queue))

    async def _unbind(self, queue: str) -> int:
        returns = self._names.return_exchange
        found = [
            *(b for b in await self._management.bindings_of(queue) if b["source"] == returns),
            *(
                b
                for b in await self._management.bindings_of(self._names.retry_queue)
                if (b.get("arguments") or {}).get(BINDING_MARK) == queue
            ),
        ]
        wire = SpareChannel(self._connection)
        try:
            for binding in found:
                await (await wire.open()).unbind_queue(
                    binding["destination"],
                    binding["source"],
                    binding["routing_key"],
                    binding.get("arguments") or None,
                )
        except NotFound:
            return 0  # the queue was deleted meanwhile, and its bindings with it
        finally:
            await wire.close()
        return len(found)


def _mark(intent: Intent, binding: Binding) -> dict[str, Any] | None:
    """Bindings of our own queue to a users' exchange say for which queue they were made."""
    return None if binding.queue == intent.queue else {BINDING_MARK: intent.queue}


def _holds(in_force: dict[str, Any], policy: Policy) -> bool:
    """Whether the keys that make an enrollment are in force; limits may be lowered by operators."""
    keys = ("dead-letter-exchange", "dead-letter-strategy", "overflow")
    return all(
        in_force.get(key) == policy.definition[key] for key in keys if key in policy.definition
    )
