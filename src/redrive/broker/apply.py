"""Makes what is missing of the topology, and nothing else.

Guarantees: what exists is never changed, whoever made it; a second run makes nothing; two runs at a
time do not disturb each other. Where an exchange or a queue of our name differs from the
description it may be somebody else's, so it is not bound to anything either: those bindings are
held back until the difference is settled. What was made before a failure stays, and the next run
goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.amqp import Connection
from redrive.broker.drift import Finding, Standing
from redrive.broker.live import SpareChannel, declare, examine, refused
from redrive.broker.management import Management
from redrive.broker.topology import Binding, Exchange, Part, Queue, Topology
from redrive.errors import PreconditionFailed, ResourceLocked


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an apply."""

    made: tuple[Part, ...]
    assured: tuple[Binding, ...]
    """Bound again, to be sure: without the management API nobody can tell whether they were."""
    differing: tuple[Finding, ...]
    held_back: tuple[Binding, ...]
    """Not made, because the exchange or the queue differs."""
    sound: tuple[Part, ...] = ()
    """On the broker now, and known to be as described."""

    @property
    def complete(self) -> bool:
        """Whether the broker now has all of the description, as described."""
        return not self.differing and not self.held_back


async def apply(
    topology: Topology, connection: Connection, management: Management | None = None
) -> Applied:
    """Make what is missing. A broker that refuses (403) raises its error at the first refusal."""
    drift = await examine(topology, connection, management)
    wire = SpareChannel(connection)
    made: list[Part] = []
    assured: list[Binding] = []
    held_back: list[Binding] = []
    differing = list(drift.of(Standing.DIFFERS))
    try:
        for finding in drift.of(Standing.MISSING, Standing.UNKNOWN):
            part = finding.part
            if isinstance(part, Binding):
                if _touches(part, differing):
                    held_back.append(part)
                    continue
            elif finding.standing is Standing.UNKNOWN:
                continue  # it exists; more cannot be known
            try:
                await declare(await wire.open(), part)
            except (PreconditionFailed, ResourceLocked) as error:
                differing.append(refused(part, error))  # somebody made it, just now, differently
            else:
                if isinstance(part, Binding) and finding.standing is Standing.UNKNOWN:
                    assured.append(part)
                else:
                    made.append(part)
    finally:
        await wire.close()
    same = [finding.part for finding in drift.of(Standing.SAME)]
    return Applied(
        made=tuple(made),
        assured=tuple(assured),
        differing=tuple(differing),
        held_back=tuple(held_back),
        sound=(*same, *made, *assured),
    )


def _touches(binding: Binding, differing: list[Finding]) -> bool:
    return any(
        (isinstance(finding.part, Exchange) and finding.part.name == binding.exchange)
        or (isinstance(finding.part, Queue) and finding.part.name == binding.queue)
        for finding in differing
    )
