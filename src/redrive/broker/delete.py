"""Takes Redrive's queues and exchanges off a broker, and nothing that is not Redrive's.

Guarantees: users' own queues and exchanges stay, also those of the per-queue layout. Unless told
otherwise, nothing at all is deleted while one of the queues holds messages, has a consumer, or a
queue of the users still dead-letters into one of the exchanges: its dead messages would be dropped
in silence. What differs from the description may be somebody else's: it stays unless it is named.
Without the management API, nobody can tell what queues dead-letter into an exchange, nor how many
messages a quorum queue is dead-lettering itself; with it, they are known seconds later. Where such
messages have no way on, that is waited for; else what a full queue refuses meanwhile may go
(`not_taken.py`).

A classic queue is deleted only if it is still empty and unused at that moment (if-empty,
if-unused). Quorum queues know neither flag (any version closes the connection with 540), so their
messages and consumers are counted once more right before; a message that comes in between is lost,
and the outcome says so, unless it expired by then: what is being dead-lettered no delete counts.
One whose leader does not answer looks empty and unused: whether it is, is made sure of once for
all, before anything is deleted.

Once something is deleted nothing raises: whatever goes wrong with one part is why that part stays,
and the outcome says of every part what became of it. Where a queue could not be deleted, all that
its messages may go to stays as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field

from redrive.amqp import Connection
from redrive.broker.drift import Drift, Standing
from redrive.broker.live import SpareChannel, count_surely, examine, is_down
from redrive.broker.management import Management
from redrive.broker.not_taken import not_taken
from redrive.broker.topology import Binding, Exchange, Queue, Topology
from redrive.errors import BrokerError, NotFound, PreconditionFailed


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something is not deleted."""

    part: Exchange | Queue
    reason: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of a delete."""

    deleted: tuple[Exchange | Queue, ...] = ()
    left: tuple[Obstacle, ...] = ()
    refused: tuple[Obstacle, ...] = ()
    """Why nothing was deleted at all."""
    lost: int = 0
    """Messages that were ready in the queues: told to delete them, or they came at the last moment.
    What a quorum queue was dead-lettering itself is not: the broker does not count it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a delete may do beyond the harmless."""

    names: Collection[str] = ()
    """Only these; and these also where they differ from the description."""
    even_with_messages: bool = False
    even_if_used: bool = False


@dataclass(slots=True)
class _Progress:
    deleted: list[Exchange | Queue] = field(default_factory=list)
    left: list[Obstacle] = field(default_factory=list)
    lost: int = 0


async def delete(
    topology: Topology,
    connection: Connection,
    management: Management | None = None,
    permission: Permission = Permission(),  # noqa: B008 - it is frozen
) -> Deleted:
    """Delete Redrive's queues, then its exchanges; bindings go with them."""
    drift = await examine(topology, connection, management)
    doomed, left = _choose(drift, permission)
    wire = SpareChannel(connection)
    try:
        refused = [
            *(await _occupied(doomed, wire.count, permission)),
            *(await _depended_on(topology, doomed, management, permission)),
        ]
        patient = not refused  # else there is enough to say already
        refused += await _dead_lettering(doomed, management, permission, patient=patient)
        refused = refused or await _occupied_for_sure(doomed, connection, management, permission)
        if refused:
            return Deleted(refused=tuple(refused))
        progress = _Progress(left=left)
        await _delete_all(topology, doomed, wire, permission, progress)
    finally:
        await wire.close()
    return Deleted(tuple(progress.deleted), tuple(progress.left), lost=progress.lost)


def _choose(drift: Drift, permission: Permission) -> tuple[list[Exchange | Queue], list[Obstacle]]:
    doomed: list[Exchange | Queue] = []
    left: list[Obstacle] = []
    for finding in drift.findings:
        part = finding.part
        if isinstance(part, Binding) or finding.standing is Standing.MISSING:
            continue
        named = part.name in permission.names
        if permission.names and not named:
            continue
        if part.users:
            left.append(Obstacle(part, "it is yours, with your messages"))
        elif finding.standing is Standing.DIFFERS and not named:
            difference = "; ".join(map(str, finding.differences)) or finding.note
            reason = f"it differs, so it may not be Redrive's ({difference}); name it to delete it"
            left.append(Obstacle(part, reason))
        else:
            doomed.append(part)
    return doomed, left


_Count = Callable[[str], Awaitable[tuple[int, int] | None]]


async def _occupied(
    doomed: Iterable[Exchange | Queue], count: _Count, permission: Permission
) -> list[Obstacle]:
    obstacles = []
    for part in doomed:
        reason = await _occupation(part, count, permission) if isinstance(part, Queue) else ""
        if reason:
            obstacles.append(Obstacle(part, reason))
    return obstacles


async def _occupied_for_sure(
    doomed: Iterable[Exchange | Queue],
    connection: Connection,
    management: Management | None,
    permission: Permission,
) -> list[Obstacle]:
    async def count(queue: str) -> tuple[int, int] | None:
        return await count_surely(connection, queue, management)

    queues = [part for part in doomed if isinstance(part, Queue)]
    asked = await asyncio.gather(*(_occupied([queue], count, permission) for queue in queues))
    return [obstacle for obstacles in asked for obstacle in obstacles]


async def _occupation(queue: Queue, count: _Count, permission: Permission) -> str:
    counts = await count(queue.name)
    if counts is None:
        return ""
    messages, consumers = counts
    if consumers:
        who = (
            "1 consumer reads it; stop it"
            if consumers == 1
            else f"{consumers} consumers read it; stop them"
        )
        return f"{who} first"
    if messages and not permission.even_with_messages:
        return "1 message is in it" if messages == 1 else f"{messages} messages are in it"
    return ""


async def _dead_lettering(
    doomed: list[Exchange | Queue],
    management: Management | None,
    permission: Permission,
    *,
    patient: bool,
) -> list[Obstacle]:
    """Queues with messages that are on their way elsewhere, and wait for it to take them."""
    if management is None or permission.even_with_messages:
        return []
    queues = {part.name: part for part in doomed if isinstance(part, Queue)}
    held = await not_taken(queues, management, patient=patient)
    return [Obstacle(queues[name], reason) for name, reason in held.items()]


async def _depended_on(
    topology: Topology,
    doomed: list[Exchange | Queue],
    management: Management | None,
    permission: Permission,
) -> list[Obstacle]:
    """What queues that stay dead-letter into; only the management API can tell."""
    if management is None or permission.even_if_used:
        return []
    dependents = await _dependents(management, {part.name for part in doomed})
    exchanges = {part.name for part in doomed if isinstance(part, Exchange)}
    obstacles = []
    for part in doomed:
        if isinstance(part, Exchange):
            ways = {part.name}
        else:
            bound = {
                binding.exchange for binding in topology.bindings if binding.queue == part.name
            }
            ways = bound - exchanges  # those have an obstacle of their own
        users = sorted({queue for way in ways for queue in dependents.get(way, ())})
        if users:
            obstacles.append(Obstacle(part, f"it gets the dead messages of {_some(users)}"))
    return obstacles


async def _dependents(management: Management, without: Collection[str]) -> dict[str, list[str]]:
    """Exchange → the queues that dead-letter into it."""
    dependents: dict[str, list[str]] = {}
    for queue in await management.queues("name", "arguments", "effective_policy_definition"):
        if queue["name"] in without:
            continue
        policy = queue.get("effective_policy_definition") or {}
        arguments = queue.get("arguments") or {}
        target = arguments.get("x-dead-letter-exchange", policy.get("dead-letter-exchange"))
        if target is not None:
            dependents.setdefault(target, []).append(queue["name"])
    return dependents


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


async def _delete_all(
    topology: Topology,
    doomed: list[Exchange | Queue],
    wire: SpareChannel,
    permission: Permission,
    progress: _Progress,
) -> None:
    # Backwards, so that a queue goes before the one that its messages would go to.
    queues = [part for part in reversed(doomed) if isinstance(part, Queue)]
    exchanges = [part for part in reversed(doomed) if isinstance(part, Exchange)]
    for number, queue in enumerate(queues, start=1):
        reason = await _delete_queue(queue, wire, permission, progress)
        if reason:
            progress.left.append(Obstacle(queue, reason))
            not_tried: list[Exchange | Queue] = [*queues[number:], *exchanges]
            because = f"{queue.name} stays, and its messages may come here"
            progress.left += [Obstacle(part, because) for part in not_tried]
            return
    for exchange in exchanges:
        reason = await _delete_exchange(exchange, wire, topology.return_exchange, progress)
        if reason:
            progress.left.append(Obstacle(exchange, reason))


async def _delete_queue(
    queue: Queue, wire: SpareChannel, permission: Permission, progress: _Progress
) -> str:
    """Delete a queue; why it stays, if it does."""
    classic = queue.kind == "classic"
    try:
        reason = await _occupation(queue, wire.count, permission)
        if reason:
            return reason
        channel = await wire.open()
        progress.lost += await channel.delete_queue(
            queue.name,
            if_unused=classic,
            if_empty=classic and not permission.even_with_messages,
        )
    except NotFound as error:
        return str(error) if is_down(error) else ""  # or somebody else deleted it
    except BrokerError as error:
        return error.text if isinstance(error, PreconditionFailed) else str(error)
    progress.deleted.append(queue)
    return ""


async def _delete_exchange(
    exchange: Exchange, wire: SpareChannel, return_exchange: str, progress: _Progress
) -> str:
    """Delete an exchange; why it stays, if it does."""
    try:
        channel = await wire.open()
        # The return exchange is bound to users' queues, by bindings that are Redrive's.
        await channel.delete_exchange(exchange.name, if_unused=exchange.name != return_exchange)
    except PreconditionFailed:
        return "something that is not Redrive's is bound to it"
    except NotFound:
        return ""  # somebody else deleted it
    except BrokerError as error:
        return str(error)
    progress.deleted.append(exchange)
    return ""
