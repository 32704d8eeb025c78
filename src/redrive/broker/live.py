"""Looks at a broker: what it has of the description, and what older settings left on it.

By the management API where there is one that answers: exact, with bindings and policies. Else on
the wire, where a passive declare tells whether a thing exists and a redeclare of what exists, with
our arguments, whether it is the same: the broker changes nothing and names the first argument that
differs. Bindings are then unknown. Nothing is made here (only a queue that somebody deletes between
those two declares would be made again).

A user without configure permission cannot redeclare: what exists is then unknown, not different.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from redrive.amqp import Channel, Connection
from redrive.broker.drift import (
    Difference,
    Drift,
    Finding,
    LiveExchange,
    LiveQueue,
    Snapshot,
    Standing,
    compare,
)
from redrive.broker.management import Management
from redrive.broker.topology import Binding, Exchange, Part, Queue, Topology, tier_beyond
from redrive.errors import (
    AccessRefused,
    ChannelClosed,
    ConnectionLost,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from redrive.settings.sections import TopologySettings

UNREAD_BINDING: Final = "bindings can be read by the management API only"
NOTHING: Final = (0, 0)
"""No messages and no consumers: of a quorum queue also where its leader does not answer within
250 ms, or is gone (3.10.8 and later)."""
_LOOKS: Final = 4
_LOOK_AGAIN_AFTER: Final = 0.3
_STATISTICS_WITHIN: Final = 12.0
"""Seconds: they are 10 behind with the broker's default intervals."""
_LONGEST_NAME: Final = 255


async def examine(
    topology: Topology, connection: Connection, management: Management | None = None
) -> Drift:
    """How the broker differs from the description. A ManagementError is the caller's to answer."""
    if management is not None:
        return compare(topology, await _snapshot(topology, management))
    wire = SpareChannel(connection)
    try:
        return await _on_the_wire(topology, wire)
    finally:
        await wire.close()


async def left_over(settings: TopologySettings, connection: Connection) -> tuple[Finding, ...]:
    """The queues of tiers after the last: nobody reads them, so what is in them stays there.

    RabbitMQ 4.3 tells nothing of a queue to a user without a permission on it: none is found then.
    """
    wire = SpareChannel(connection)
    found: list[Finding] = []
    tier = len(settings.tiers)
    try:
        while True:
            tier += 1
            queues = tier_beyond(settings, tier).queues
            of_tier = [(queue, await wire.count(queue.name)) for queue in queues]
            present = [(queue, counts) for queue, counts in of_tier if counts is not None]
            if not present:
                return tuple(found)
            found += [
                Finding(queue, Standing.LEFT_OVER, note=f"{counts[0]} messages wait in it")
                for queue, counts in present
            ]
    except AccessRefused:
        return tuple(found)
    finally:
        await wire.close()


class SpareChannel:
    """A channel that may be closed on us: the next call opens another.

    What a broker refuses closes the channel; asking questions must not disturb anybody else.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: Channel | None = None

    async def open(self) -> Channel:
        if self._channel is None or self._channel.error is not None:
            self._channel = await self._connection.channel()
        return self._channel

    async def count(self, queue: str) -> tuple[int, int] | None:
        """Ready messages and consumers of a queue, None if there is no such queue. Whoever would
        do harm by it asks for `NOTHING` by `count_surely`."""
        try:
            return await (await self.open()).inspect_queue(queue)
        except NotFound as error:
            if is_down(error):
                raise
            return None

    async def close(self) -> None:
        if self._channel is not None:
            try:
                await self._channel.close()
            except (ChannelClosed, ConnectionLost):
                return  # it is closed, which was all we wanted


async def count_surely(
    connection: Connection, queue: str, management: Management | None = None
) -> tuple[int, int] | None:
    """The same as `SpareChannel.count`, where a message must not be overlooked because nobody
    answered for its queue: that there is nothing is said only if the broker says so at every look,
    and the statistics as well, where there are any. They may be late: what they have is believed
    if that lasts. Raises `ManagementError`."""
    wire = SpareChannel(connection)
    time = asyncio.get_running_loop().time
    try:
        for look in range(_LOOKS):
            if look:
                await asyncio.sleep(_LOOK_AGAIN_AFTER)
            found = await wire.count(queue)
            if found != NOTHING:
                return found
        until = time() + _STATISTICS_WITHIN
        while found == NOTHING and management is not None:
            shown = await management.queue(queue) or {}
            told = (int(shown.get("messages_ready") or 0), int(shown.get("consumers") or 0))
            if told == NOTHING or time() > until:
                return told
            await asyncio.sleep(_LOOK_AGAIN_AFTER)
            found = await wire.count(queue)
        return found
    finally:
        await wire.close()


def can_exist(name: str) -> bool:
    """Whether a queue or an exchange may be called so. Headers can say anything, and a broker
    closes the connection on who asks for such a name."""
    try:
        return 1 <= len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def is_down(error: NotFound) -> bool:
    """Whether a queue exists and cannot be reached: the broker answers 404 to that as well."""
    return "no queue" not in error.text and "no exchange" not in error.text


async def declare(channel: Channel, part: Part) -> None:
    """Declare one part; of what exists with other arguments the broker refuses it (406)."""
    match part:
        case Exchange():
            await channel.declare_exchange(part.name, part.kind)
        case Queue():
            await channel.declare_queue(part.name, arguments=dict(part.arguments))
        case Binding():
            await channel.bind_queue(part.queue, part.exchange, part.routing_key)


def refused(part: Part, error: PreconditionFailed | ResourceLocked) -> Finding:
    """The broker's refusal to redeclare, as a finding. It names the first difference only."""
    said = _INEQUIVALENT.search(error.text)
    if said is not None:
        what, expected, got = said["what"], said["expected"], said["got"]
        difference = Difference(what, _unquoted(expected), _unquoted(got))
        return Finding(part, Standing.DIFFERS, (difference,), "there may be more differences")
    if isinstance(error, ResourceLocked):
        difference = Difference("exclusive", False, True)
        return Finding(part, Standing.DIFFERS, (difference,))
    return Finding(part, Standing.DIFFERS, note=error.text)


# By the management API


async def _snapshot(topology: Topology, management: Management) -> Snapshot:
    await management.version()  # an answer from elsewhere would make everything look missing
    exchanges, queues, bindings = await asyncio.gather(
        _named([exchange.name for exchange in topology.exchanges], management.exchange),
        _named([queue.name for queue in topology.queues], management.queue),
        asyncio.gather(*(management.bindings_of(queue.name) for queue in topology.queues)),
    )
    return Snapshot(
        exchanges={name: live_exchange(found) for name, found in exchanges.items()},
        queues={name: live_queue(found) for name, found in queues.items()},
        bindings=frozenset(
            Binding(found["source"], found["destination"], found["routing_key"])
            for of_queue in bindings
            for found in of_queue
            if not found.get("arguments")
        ),
    )


async def _named(
    names: list[str], find: Callable[[str], Awaitable[dict[str, Any] | None]]
) -> dict[str, dict[str, Any]]:
    answers = await asyncio.gather(*(find(name) for name in names))
    return {name: found for name, found in zip(names, answers, strict=True) if found is not None}


def live_exchange(found: dict[str, Any]) -> LiveExchange:
    """An exchange from the management API's JSON."""
    return LiveExchange(
        kind=found["type"],
        durable=found["durable"],
        auto_delete=found["auto_delete"],
        internal=found["internal"],
        arguments=found.get("arguments") or {},
    )


def live_queue(found: dict[str, Any]) -> LiveQueue:
    """A queue from the management API's JSON, which writes empty objects as empty lists."""
    arguments = found.get("arguments") or {}
    kind = found.get("type") or arguments.get("x-queue-type") or "classic"
    return LiveQueue(
        # 4.3 shows some types by the name of their module: "rabbit_classic_queue"
        kind=kind.removeprefix("rabbit_").removesuffix("_queue"),
        durable=found["durable"],
        exclusive=bool(found.get("exclusive")),
        auto_delete=found["auto_delete"],
        arguments=arguments,
        policy_name=found.get("policy") or found.get("operator_policy") or "",
        policy=found.get("effective_policy_definition") or {},
    )


# On the wire

_INEQUIVALENT: Final = re.compile(
    r"inequivalent arg '(?P<what>[^']+)' for .*: "
    r"received (?P<expected>.+) but current is (?P<got>.+)$"
)


async def _on_the_wire(topology: Topology, wire: SpareChannel) -> Drift:
    findings: list[Finding] = []
    absent: set[tuple[type[Part], str]] = set()
    parts: tuple[Exchange | Queue, ...] = (*topology.exchanges, *topology.queues)
    for part in parts:
        finding = await _probe(part, wire)
        findings.append(finding)
        if finding.standing is Standing.MISSING:
            absent.add((type(part), part.name))
    for binding in topology.bindings:
        if {(Exchange, binding.exchange), (Queue, binding.queue)} & absent:
            findings.append(Finding(binding, Standing.MISSING))
        else:
            findings.append(Finding(binding, Standing.UNKNOWN, note=UNREAD_BINDING))
    return Drift(tuple(findings), exact=False)


async def _probe(part: Exchange | Queue, wire: SpareChannel) -> Finding:
    channel = await wire.open()
    try:
        if isinstance(part, Exchange):
            await channel.inspect_exchange(part.name)
        else:
            await channel.inspect_queue(part.name)
        await declare(channel, part)
    except NotFound as error:
        if is_down(error):
            return Finding(part, Standing.UNKNOWN, note=error.text)
        return Finding(part, Standing.MISSING)
    except AccessRefused:
        note = "it exists; its arguments cannot be read without configure permission"
        return Finding(part, Standing.UNKNOWN, note=note)
    except (PreconditionFailed, ResourceLocked) as error:
        return refused(part, error)
    return Finding(part, Standing.SAME)


def _unquoted(text: str) -> str | None:
    """A value from the broker's text: `none`, `'10000'`, `the value '10000' of type 'long'`."""
    if text.startswith("none"):
        return None
    quoted = re.search(r"'([^']*)'", text)
    return quoted[1] if quoted else text
