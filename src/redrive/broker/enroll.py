"""Connects existing queues to Redrive by a policy of the broker, and takes that back.

Guarantees: every queue is considered before any is changed; if one cannot be enrolled, none is. A
policy is set only after the return binding is there, and it is read back from the queue: where the
broker does not put it in force, or anything else fails, what this run made is taken back and no
more: what an earlier run enrolled stays so. Where the broker does not let something be taken back,
the rest is, and the error names the queues that are left changed and what to do about them.
`unenroll` deletes our policy and our bindings, after which the users' own policy is in force as
before. Needs the management API: AMQP knows no policies.

The broker shows a queue's policy with a delay (its statistics intervals; 5 to 12 s with their
defaults), so reading back takes that long. Before that, the list of policies, which is always
current, tells which policy is in force; where the queue itself shows another one (a policy with a
key that the type of queue does not know is passed over), the queue is believed.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
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
from redrive.broker.live import SpareChannel, examine, is_down, live_exchange, live_queue
from redrive.broker.management import Management
from redrive.broker.topology import Binding, Topology
from redrive.errors import BrokerError, ChannelClosed, NotFound, RedriveError
from redrive.settings.sections import TopologyNames

SHOWN_WITHIN: Final = timedelta(seconds=30)
"""How long the broker may take to show a queue's policy: its statistics interval, and some."""
_STALE_FOR: Final = 15.0  # seconds: 12 were seen with the default interval
_STEP: Final = 0.1
_AT_ONCE: Final = 8  # queues that are taken back


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


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run of enroll does to a queue: what there was before, and how to take back what it
    made. A step is noted before it is made: without an answer nobody knows whether it was."""

    intent: Intent
    policy: Policy | None
    """Ours, as it was before."""
    bindings: frozenset[Binding]
    """Ours that were there before."""
    undo: list[Callable[[], Awaitable[object]]] = field(default_factory=list)

    @property
    def is_renewal(self) -> bool:
        """Whether the queue was enrolled before; any queue may have been bound for the way back."""
        queue = self.intent.queue
        return self.policy is not None or any(each.queue != queue for each in self.bindings)


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
        """Do it, for all or for none: on an error, what was made here is taken back.

        Raises BrokerError, which says whether anything is left changed.
        """
        runs = await asyncio.gather(*(self._begin(intent) for intent in intents))
        try:
            for run in runs:
                await self._bind(run)
            for run in runs:
                await self._set_policy(run)
            await self._verify_all(intents)
        except BaseException as error:
            left = await self._take_back(runs)
            if left:
                raise _left_changed(error, left) from error
            if isinstance(error, RedriveError):
                raise BrokerError(f"{error}; nothing was changed", remedy=error.remedy) from error
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

    async def _begin(self, intent: Intent) -> _Run:
        policy, bindings = await asyncio.gather(
            self._management.policy(policy_name(intent.queue)), self._bindings(intent.queue)
        )
        return _Run(
            intent,
            None if policy is None else Policy.read(policy),
            frozenset(
                Binding(found["source"], found["destination"], found["routing_key"])
                for found in bindings
            ),
        )

    async def _bind(self, run: _Run) -> None:
        wire = SpareChannel(self._connection)
        try:
            for binding in run.intent.bindings:
                if binding in run.bindings:
                    continue
                mark = _mark(run.intent, binding)
                channel = await wire.open()
                run.undo.append(partial(self._unbind, [(binding, mark)]))
                try:
                    await channel.bind_queue(
                        binding.queue, binding.exchange, binding.routing_key, mark
                    )
                except ChannelClosed:  # an answer, and it is no
                    run.undo.pop()
                    raise
        finally:
            await wire.close()

    async def _set_policy(self, run: _Run) -> None:
        policy, before = run.intent.policy, run.policy
        if policy is None:
            return
        if before is None:
            run.undo.append(partial(self._management.delete_policy, policy.name))
        elif before != policy:
            run.undo.append(partial(self._management.set_policy, before.name, before.document()))
        await self._management.set_policy(policy.name, policy.document())

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
            f"the policy that enrolls {intent.queue!r} did not come into force: {cause}",
            remedy="see the queue's page in the management console",
        )

    async def _take_back(self, runs: Sequence[_Run]) -> list[tuple[_Run, RedriveError]]:
        """What could not be taken back, and why. All is tried, of some queues at once: an API that
        hangs would else be waited for again and again."""
        turn = asyncio.Semaphore(_AT_ONCE)
        failures = await asyncio.gather(*(_undone(run, turn) for run in runs))
        return [
            (run, failure)
            for run, failure in zip(runs, failures, strict=True)
            if failure is not None
        ]

    # Unenroll

    async def is_enrolled(self, queue: str) -> bool:
        """Whether what the queue rejects comes to us by what enroll made."""
        policy = await self._management.policy(policy_name(queue))
        return policy is not None or bool(await self._bindings_for(queue))

    async def unenroll(self, queue: str) -> Unenrolled:
        """Take back what enroll did. Nothing else is touched, and a queue that is gone is fine."""
        policy = await self._management.delete_policy(policy_name(queue))
        bindings = [
            (
                Binding(found["source"], found["destination"], found["routing_key"]),
                found.get("arguments") or None,
            )
            for found in await self._bindings(queue)
        ]
        return Unenrolled(queue, policy, await self._unbind(bindings))

    # Bindings

    async def _bindings(self, queue: str) -> list[dict[str, Any]]:
        """The bindings that enroll makes for a queue, as far as they are there."""
        returns = self._names.return_exchange
        return [
            *(b for b in await self._management.bindings_of(queue) if b["source"] == returns),
            *await self._bindings_for(queue),
        ]

    async def _bindings_for(self, queue: str) -> list[dict[str, Any]]:
        """Those of our own queue to where that one dead-letters by its arguments."""
        return [
            b
            for b in await self._management.bindings_of(self._names.retry_queue)
            if (b.get("arguments") or {}).get(BINDING_MARK) == queue
        ]

    async def _unbind(self, bindings: Iterable[tuple[Binding, dict[str, Any] | None]]) -> int:
        """How many were taken away: none that went with its queue or exchange meanwhile."""
        wire = SpareChannel(self._connection)
        gone = 0
        try:
            for binding, arguments in bindings:
                try:
                    await (await wire.open()).unbind_queue(
                        binding.queue, binding.exchange, binding.routing_key, arguments
                    )
                    gone += 1
                except NotFound as error:
                    if is_down(error):
                        raise
        finally:
            await wire.close()
        return gone


async def _undone(run: _Run, turn: asyncio.Semaphore) -> RedriveError | None:
    """Take back what a run made, the last first; why something could not be."""
    failure: RedriveError | None = None
    async with turn:
        for undo in reversed(run.undo):
            try:
                await undo()
            except RedriveError as error:
                failure = failure or error
    return failure


def _left_changed(error: BaseException, left: Sequence[tuple[_Run, RedriveError]]) -> BrokerError:
    """The error, and which queues are neither as they were nor enrolled."""
    queues = ", ".join(repr(run.intent.queue) for run, _ in left)
    why = "; ".join(dict.fromkeys(str(failure) for _, failure in left))
    new = [run.intent.queue for run, _ in left if not run.is_renewal]
    renewed = [run.intent.queue for run, _ in left if run.is_renewal]
    commands = []
    if new:
        commands.append(f"redrive topology unenroll {shlex.join(new)}")
    if renewed:  # they were enrolled before, and are to stay so
        binds = any(len(run.intent.bindings) > 1 for run, _ in left)
        option = " --bind-exchange" if binds else ""
        commands.append(f"redrive topology enroll {shlex.join(renewed)}{option}")
    return BrokerError(
        f"{str(error) or 'interrupted'}; not all could be taken back ({why}), and these queues are"
        f" left changed: {queues}",
        remedy=f"when the broker takes changes again, run: {'; '.join(commands)}",
    )


def _mark(intent: Intent, binding: Binding) -> dict[str, Any] | None:
    """Bindings of our own queue to a users' exchange say for which queue they were made."""
    return None if binding.queue == intent.queue else {BINDING_MARK: intent.queue}


def _holds(in_force: dict[str, Any], policy: Policy) -> bool:
    """Whether the keys that make an enrollment are in force; limits may be lowered by operators."""
    keys = ("dead-letter-exchange", "dead-letter-strategy", "overflow")
    return all(
        in_force.get(key) == policy.definition[key] for key in keys if key in policy.definition
    )
