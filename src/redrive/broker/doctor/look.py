"""Looks at a broker and gives a view: a few listings of the management API, and questions on the
wire that change nothing.

What cannot be looked at, for want of the API or of a permission, is part of the view. Only a broker
that cannot be reached at all is an error.

Permissions are asked by requests that the broker refuses in any case, before they do anything: to
consume with a priority that is no number, to publish with an expiration that is no number. Who may
not is refused with 403, who may with 406 (tried on 3.10 and 4.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from redrive.amqp import Publish
from redrive.broker.doctor.finding import Unseen
from redrive.broker.doctor.view import (
    COLUMNS,
    GROWTH_OVER,
    Need,
    Permissions,
    SeenQueue,
    View,
    Waiting,
    drift_snapshot,
    read_exchanges,
)
from redrive.broker.drift import Drift, Finding, LiveQueue, Snapshot, Standing, compare
from redrive.broker.enrollment import Policy
from redrive.broker.ladder import describe_ladder
from redrive.broker.live import SpareChannel
from redrive.broker.looking import QueueFacts, Version, read_version
from redrive.broker.management import Management
from redrive.broker.policies import Policies
from redrive.broker.site import Site
from redrive.broker.topology import Exchange, Queue, Topology, retry_queue_of, with_tiers_beyond
from redrive.domain import globs
from redrive.errors import (
    AccessRefused,
    BrokerError,
    ChannelClosed,
    ManagementError,
    PreconditionFailed,
)

LookInto = Callable[[str, str], Awaitable[Waiting]]
"""Looks at the TTLs of the first messages of a queue of some type."""

_NO_NUMBER: Final = "redrive-doctor"
# The flag of the property `expiration`, and its value as a short string.
_BAD_EXPIRATION: Final = b"\x01\x00" + bytes([len(_NO_NUMBER)]) + _NO_NUMBER.encode()
_ANSWERS_WITHIN: Final = 4.0
_SHOWN_WITHIN: Final = 6.5
"""Seconds after which a queue shows which policy is in force: with its next statistics."""
_LOOK_AGAIN_EVERY: Final = 0.5
_LOOKED_INTO: Final = 20
_NAMED: Final = 3
_FLAGS_MATTER_UNTIL: Final[Version] = (3, 12)
_T = TypeVar("_T")


class Look:
    """One look at one broker."""

    def __init__(self, site: Site, look_into: LookInto, target: Version | None = None) -> None:
        self._site = site
        self._into = look_into
        self._target = target
        self._unseen: list[Unseen] = []
        self._version = read_version(site.connection.server_properties.get("version"))

    async def view(self) -> View:
        """What there is to see."""
        site, silent = await self._site.without_silent_management()
        if site.management is not None:
            try:
                return await self._by_management(site.management)
            except ManagementError as error:
                silent = error
        why = "no [broker] management_url is set" if silent is None else str(silent)
        remedy = "set it, for a user with the tag 'management'" if silent is None else silent.remedy
        self._unseen.append(
            Unseen("your own queues, exchanges, bindings and policies", why, remedy)
        )
        return await self._on_the_wire()

    # By the management API

    async def _by_management(self, management: Management) -> View:
        topology = self._site.topology
        overview, policies, queues, exchanges, bindings = await asyncio.gather(
            management.overview(),
            management.policies(),
            self._queues(management),
            management.exchanges(),
            management.bindings(),
        )
        known = tuple(Policy.read(each) for each in policies)
        seen = {each.name: each for each in (SeenQueue.read(found, known) for found in queues)}
        live = read_exchanges(exchanges)
        lacking = await self._permissions(set(live), set(seen))
        return View(
            **self._common(topology),
            drift=self._drift(topology, drift_snapshot(seen, live, bindings), seen),
            management_url=management.url,
            queues=seen,
            exchanges=live,
            bindings=bindings,
            policies=known,
            exchange_types=frozenset(each["name"] for each in overview.get("exchange_types", ())),
            flags=await self._flags(management),
            lacking=lacking,
            permissions=await self._known_permissions(management) if lacking else None,
            waiting=await self._look_into(seen),
            global_qos=await self._global_qos(management),
            unseen=tuple(self._unseen),
        )

    async def _queues(self, management: Management) -> list[dict[str, Any]]:
        """The queues, each with the policy that is in force now. One that was just set is not shown
        yet, and a cure that went by what is shown would take it out of force; so what differs from
        the policies themselves is looked at again, until it has had its time."""
        policies = await Policies.read(management)
        growth = int(GROWTH_OVER.total_seconds())
        clock = asyncio.get_running_loop().time
        deadline = clock() + _SHOWN_WITHIN
        while True:
            found = await management.queues(*COLUMNS, lengths_age=growth, lengths_incr=60)
            settled = all(len(policies.as_it_may_be(each)) == 1 for each in found)
            if settled or clock() > deadline:
                return found
            await asyncio.sleep(_LOOK_AGAIN_EVERY)

    def _common(self, topology: Topology) -> dict[str, Any]:
        settings = self._site.settings
        return {
            "version": self._version,
            "full_version": str(self._site.connection.server_properties.get("version", "?")),
            "vhost": self._site.connection.address.vhost,
            "user": self._site.connection.user,
            "topology": topology,
            "names": settings.topology.names,
            "own": self._own(topology),
            "collected": settings.collector.queues,
        }

    def _own(self, topology: Topology) -> frozenset[str]:
        settings = self._site.settings.topology
        return (
            with_tiers_beyond(topology, settings).queue_names()
            | {rung.name for rung in describe_ladder(settings)}
            | {settings.names.receipts_queue}
        )

    def _drift(self, topology: Topology, snapshot: Snapshot, seen: dict[str, SeenQueue]) -> Drift:
        beyond = with_tiers_beyond(topology, self._site.settings.topology)
        known = {queue.name for queue in topology.queues}
        left_over = [
            Finding(
                queue,
                Standing.LEFT_OVER,
                note=f"{seen[queue.name].messages} messages wait in it",
            )
            for queue in beyond.queues
            if queue.name in seen and queue.name not in known
        ]
        drift = compare(topology, snapshot)
        return Drift((*drift.findings, *left_over), drift.exact)

    async def _flags(self, management: Management) -> dict[str, str] | None:
        if self._version >= _FLAGS_MATTER_UNTIL and self._target is None:
            return {}
        found = await self._tried("feature flags", management.feature_flags())
        return None if found is None else {str(each["name"]): str(each["state"]) for each in found}

    async def _global_qos(self, management: Management) -> tuple[str, ...]:
        if self._target is None:
            return ()
        found = await self._tried("channels", management.channels()) or []
        return tuple(
            dict.fromkeys(
                str((each.get("connection_details") or {}).get("name") or each.get("name"))
                for each in found
                if each.get("global_prefetch_count")
            )
        )

    async def _known_permissions(self, management: Management) -> Permissions | None:
        try:
            found = await management.permissions(self._site.connection.user)
        except ManagementError:
            return None  # only administrators may know
        if found is None:
            return None
        return Permissions(found["configure"], found["write"], found["read"])

    async def _tried(self, what: str, asking: Awaitable[_T]) -> _T | None:
        try:
            return await asking
        except ManagementError as error:
            self._unseen.append(Unseen(what, str(error), error.remedy))
            return None

    # Into queues

    async def _look_into(self, seen: dict[str, SeenQueue]) -> dict[str, Waiting]:
        """The messages of delay queues, where a look costs them nothing."""
        own = self._own(self._site.topology)
        delays = [
            queue
            for queue in sorted(seen.values(), key=lambda queue: -queue.messages)
            if queue.messages > 1 and queue.name not in own and _only_waits(queue)
        ]
        costly = [queue for queue in delays if not self._is_free(queue)]
        free = [queue for queue in delays if queue not in costly]
        self._not_into(costly, "on this version a look harms messages of quorum queues")
        self._not_into(free[_LOOKED_INTO:], f"only the {_LOOKED_INTO} fullest are looked into")
        found = {}
        for queue in free[:_LOOKED_INTO]:
            try:
                waiting = await self._into(queue.name, queue.kind)
            except BrokerError as error:
                self._not_into([queue], str(error))
                continue
            ttl = queue.limit("message-ttl")
            found[queue.name] = waiting.within(None if ttl is None else timedelta(milliseconds=ttl))
        return found

    def _not_into(self, queues: Sequence[SeenQueue], why: str) -> None:
        if queues:
            shown = ", ".join(queue.name for queue in queues[:_NAMED])
            more = f" and {len(queues) - _NAMED} more" if len(queues) > _NAMED else ""
            self._unseen.append(Unseen(f"TTLs of messages in {shown}{more}", why))

    def _is_free(self, queue: SeenQueue) -> bool:
        facts = queue.facts
        return not facts.cost(self._version) and not facts.order(self._version, queue.messages)

    # On the wire

    async def _on_the_wire(self) -> View:
        topology = self._site.topology
        drift = await self._site_without_management().drift()
        missing = {
            finding.part.name
            for finding in drift.of(Standing.MISSING)
            if isinstance(finding.part, Queue)
        }
        unknown = drift.of(Standing.UNKNOWN)
        if unknown:
            what = f"{len(unknown)} parts of Redrive's own topology"
            self._unseen.append(Unseen(what, unknown[0].note))
        present = {queue.name for queue in topology.queues} - missing
        exchanges = {
            finding.part.name
            for finding in drift.findings
            if isinstance(finding.part, Exchange) and finding.standing is not Standing.MISSING
        }
        lacking = await self._permissions(exchanges, present)
        return View(
            **self._common(topology),
            drift=drift,
            complete=False,
            queues=await self._counted(topology, present),
            lacking=lacking,
            unseen=tuple(self._unseen),
        )

    def _site_without_management(self) -> Site:
        return Site(self._site.settings, self._site.connection, None)

    async def _counted(self, topology: Topology, present: set[str]) -> dict[str, SeenQueue]:
        """Redrive's own queues, with what is in them."""
        spare = SpareChannel(self._site.connection)
        seen = {}
        for queue in topology.queues:
            if queue.name not in present or queue.users:
                continue
            try:
                counts = await spare.count(queue.name)
            except ChannelClosed:
                continue  # down, or not ours to see
            if counts is not None:
                live = LiveQueue(kind=queue.kind, arguments=queue.arguments)
                facts = QueueFacts(name=queue.name, kind=queue.kind)
                messages, consumers = counts
                seen[queue.name] = SeenQueue(
                    name=queue.name, live=live, facts=facts, messages=messages, consumers=consumers
                )
        await spare.close()
        return seen

    async def _permissions(self, exchanges: set[str], queues: set[str]) -> tuple[Need, ...]:
        """What is lacking of what Redrive's roles need. Of what is not there, nothing."""
        there = [
            need
            for need in _needs(self._site, queues)
            if need.name in (exchanges if need.kind == "exchange" else queues)
        ]
        spare = SpareChannel(self._site.connection)
        lacking: list[Need] = []
        try:
            for need in there:
                async with asyncio.timeout(_ANSWERS_WITHIN):
                    if not await _may(spare, need):
                        lacking.append(need)
        except TimeoutError:
            self._unseen.append(
                Unseen(
                    "permissions",
                    "the broker does not answer publishers: a memory or disk alarm?",
                    "see 'rabbitmq-diagnostics alarms'",
                )
            )
        finally:
            await spare.close()
        return tuple(lacking)


def _needs(site: Site, queues: set[str]) -> list[Need]:
    """What `redrive run` does, of all roles (docs/how-to/least-privilege.md)."""
    settings, names = site.settings, site.settings.topology.names
    tiers = range(1, len(settings.topology.tiers) + 1)
    delayed = [names.delayed_queue.replace("{n}", str(tier)) for tier in tiers]
    failed = [names.retry_queue, *(retry_queue_of(queue.name) for queue in settings.queue)]
    collected = [
        name for pattern in settings.collector.queues for name in globs.matching(pattern, queues)
    ]
    read = {
        **dict.fromkeys(failed, "to take what failed"),
        **dict.fromkeys(delayed, "to take what has waited"),
        **dict.fromkeys([names.dlq_queue, *sorted(collected)], "to collect what is dead"),
        names.receipts_queue: "to learn what was handled",
    }
    write = {
        names.route_delay: "to let messages wait",
        names.return_exchange: "to give messages back",
        names.dlq_exchange: "to give up on messages",
    }
    return [
        *(Need("write", "exchange", name, purpose) for name, purpose in write.items()),
        *(Need("read", "queue", name, purpose) for name, purpose in read.items()),
    ]


async def _may(spare: SpareChannel, need: Need) -> bool:
    """Whether the broker would let us. Nothing is consumed or published."""
    channel = await spare.open()
    try:
        if need.permission == "read":
            await channel.consume(need.name, prefetch=1, arguments={"x-priority": _NO_NUMBER})
        else:
            publisher = await channel.publisher()
            await publisher.send(Publish(need.name, _NO_NUMBER, _BAD_EXPIRATION, b""))
    except AccessRefused:
        return False
    except PreconditionFailed:
        return True
    except ChannelClosed:
        return True  # gone meanwhile, or exclusive: another check tells
    await spare.close()
    return True


def _only_waits(queue: SeenQueue) -> bool:
    """Whether messages only wait in a queue. Others are not looked into: a look marks messages as
    redelivered, which consumers may take for a crash."""
    return (
        queue.dead_letter_exchange is not None
        and not queue.consumers
        and (queue.limit("message-ttl") is not None or queue.never_taken)
    )
