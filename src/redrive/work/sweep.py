"""The sweep: what was tried too often leaves its dead letter queue for good (seed 002).

Guarantees: nothing is touched before all queues and targets are known to make sense. Each message
that is there when a queue's pass begins is looked at once. What is within its limit stays, in its
order where the queue can keep it; what is over it goes to the target, acked only after the
broker confirmed the copy. What the target does not take stays, and so does what it would push out
others for, unless told. One queue's trouble does not keep the others from being swept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from redrive.broker.looking import QueueFacts
from redrive.broker.room import Room
from redrive.domain.globs import is_glob, matching, translated, wildcards
from redrive.domain.retry_count import CountBy
from redrive.errors import (
    BrokerError,
    ChannelClosed,
    OrderRefused,
    ResourceLocked,
    Unpublishable,
)
from redrive.work.failed_message import MessageReader
from redrive.work.look import Looks, Outcome
from redrive.work.may_publish import assure_that_we_may_publish
from redrive.work.mover import Limits
from redrive.work.noting import Notes
from redrive.work.one_pass import OnePass
from redrive.work.queue_site import QueueSite, check_name
from redrive.work.transfer import Choose, ToQueue, Transfer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrder:
    """What to sweep, and how."""

    queues: Sequence[str]
    """Names and patterns."""
    target: str
    max_retries: int
    max_retries_of: Sequence[tuple[str, int]] = ()
    """Limits of queues by name or pattern; the first that means a queue counts."""
    count_by: CountBy = CountBy.LARGEST
    create: bool = True
    """Whether a target that is missing is made."""
    queue_type: str = "quorum"
    """Of what type, where the source's is not known."""
    spend_deliveries: bool = False
    drop_oldest: bool = False
    """Whether a full target may push out its oldest messages."""
    dry_run: bool = False
    most: int | None = None
    """How many messages are moved at most, of each queue."""

    def max_retries_in(self, queue: str) -> int:
        return next(
            (most for pattern, most in self.max_retries_of if matching(pattern, [queue])),
            self.max_retries,
        )

    def check(self) -> None:
        """Raise if it cannot be meant, whatever the broker has."""
        if not is_glob(self.target):
            check_name(self.target)
        if self.create and self.target.startswith("amq."):
            raise OrderRefused(
                f"the target {self.target!r} cannot be made: names that begin with 'amq.' are the"
                " broker's own",
                remedy="choose another name, or give --no-create if it is there",
            )
        for pattern in self.queues:
            if is_glob(self.target) and wildcards(pattern) != wildcards(self.target):
                raise OrderRefused(
                    f"the target {self.target!r} does not fit {pattern!r}",
                    remedy="give both the same wildcards, such as dlq.* and dead.*, or it none",
                )
            if not is_glob(self.target) and matching(pattern, [self.target]):
                same = "is the queue itself" if pattern == self.target else f"is one of {pattern!r}"
                raise OrderRefused(
                    f"the target {self.target!r} {same}: what is moved would be swept again",
                    remedy="choose a target that no pattern means",
                )


@dataclass(frozen=True, slots=True)
class Leg:
    """One queue to sweep, and where what is over its limit goes."""

    facts: QueueFacts
    target: str

    @property
    def queue(self) -> str:
        return self.facts.name


@dataclass(frozen=True, slots=True)
class Itinerary:
    """What an order means on a broker now."""

    legs: tuple[Leg, ...]
    unmatched: tuple[str, ...]
    """Names and patterns that mean no queue."""
    skipped: tuple[str, ...] = ()
    """Queues that a pattern means and nobody but their owner can read, and streams."""
    refused: tuple[Outcome, ...] = ()
    """Queues that were named, and that the broker says nothing of: exclusive, down, forbidden."""


class Sweeper:
    """Carries out one order on one broker."""

    def __init__(self, order: SweepOrder, site: QueueSite, limits: Limits | None = None) -> None:
        order.check()
        self._order = order
        self._site = site
        self._limits = limits
        self._looks = Looks(site.version, order.spend_deliveries, site.management is not None)
        self._foreseen: dict[str, Room | None] = {}
        """Of a dry run: the room of each target, which all queues share."""
        self.under_way: OnePass | None = None
        """The queue that is being looked into."""

    async def itinerary(self) -> Itinerary:
        """Which queues are meant, and their targets. Changes nothing."""
        legs: dict[str, Leg] = {}
        unmatched, refused = [], []
        listed = await self._site.listed() if any(map(is_glob, self._order.queues)) else []
        for pattern in self._order.queues:
            try:
                found = await self._meant(pattern, listed)
            except ChannelClosed as error:
                refused.append(_refused(pattern, error))
                continue
            if not found:
                unmatched.append(pattern)
            for facts in found:
                target = translated(pattern, facts.name, self._order.target)
                legs.setdefault(facts.name, Leg(facts, target))
        for leg in legs.values():
            self._check_target(leg)
        return Itinerary(
            tuple(legs.values()), tuple(unmatched), tuple(self._skipped(listed)), tuple(refused)
        )

    def _skipped(self, listed: Collection[QueueFacts]) -> list[str]:
        return [
            facts.name
            for facts in listed
            if not _can_be_swept(facts)
            and any(matching(each, [facts.name]) for each in self._order.queues if is_glob(each))
        ]

    async def _meant(self, pattern: str, listed: Collection[QueueFacts]) -> list[QueueFacts]:
        if is_glob(pattern):
            waiting = self._site.waiting_queues
            others = [facts.name for facts in listed if facts.name not in waiting]
            names = set(matching(pattern, others))
            return [facts for facts in listed if facts.name in names and _can_be_swept(facts)]
        facts = await self._site.named(pattern)
        return [] if facts is None else [facts]

    def _check_target(self, leg: Leg) -> None:
        swept = [pattern for pattern in self._order.queues if matching(pattern, [leg.target])]
        if swept:
            raise OrderRefused(
                f"the target {leg.target!r} of {leg.queue!r} is one of {swept[0]!r}: what is moved"
                " would be swept again",
                remedy="choose a target that no pattern means",
            )

    async def sweep(self, leg: Leg, stopping: asyncio.Event | None = None) -> Outcome:
        """Sweep one queue. What goes wrong is in the outcome."""
        outcome = Outcome(queue=leg.queue, target=leg.target)
        reader = MessageReader(self._site.own_queues, leg.queue)
        way = ToQueue(leg.target, Notes(self._site.own_queues, leg.queue))
        transfer = Transfer(
            self._is_over(leg, reader),
            way,
            dry_run=self._order.dry_run,
            most=self._order.most,
        )
        look = self._site.pass_over(leg.facts, transfer, limits=self._limits)
        transfer.end = look.end
        try:
            self._looks.check_count_by(leg.facts, self._order.count_by)
            self._looks.check(leg.facts)
            await self._assure_target(leg, outcome)
            way.room = await self._room(leg)
            self.under_way = look
            await look.run(stopping)
        except (BrokerError, Unpublishable) as error:  # a translated target may be too long a name
            outcome.fail(error)
        finally:
            self.under_way = None
        outcome.tell(look.passed, transfer, dry_run=self._order.dry_run)
        facts = leg.facts
        if look.passed.consumers:
            facts = await self._site.with_consumers(facts)
        outcome.notes += self._looks.notes(facts, look.passed)
        if not self._order.drop_oldest:
            outcome.notes += self._site.told_of_room(outcome.chosen - outcome.failed)
        if look.passed.examined:
            outcome.notes += self._looks.count_by_notes(facts, self._order.count_by)
        return outcome

    def _is_over(self, leg: Leg, reader: MessageReader) -> Choose:
        most = self._order.max_retries_in(leg.queue)
        by = self._order.count_by
        tell = not leg.facts.counts_looks(self._site.version)
        return lambda delivery: reader.evidence(delivery).count(by, deliveries_tell=tell) > most

    async def _assure_target(self, leg: Leg, outcome: Outcome) -> None:
        try:
            missing = await self._site.is_missing(leg.target)
        except ResourceLocked as error:
            raise BrokerError(
                f"the target {leg.target!r} is exclusive to another connection, and goes with it",
                remedy="choose a queue that stays",
            ) from error
        if not (await self._site.count(leg.queue) or (0, 0))[0]:
            return  # nothing to move, so nothing to make
        if self._order.dry_run:
            await assure_that_we_may_publish(self._site.connect, "")
        if not missing:
            return
        if not self._order.create:
            raise BrokerError(
                f"the target {leg.target!r} does not exist",
                remedy="make it, or leave --no-create out",
            )
        kind = self._kind(leg)
        if self._order.dry_run:
            outcome.notes.append(f"the {kind} queue {leg.target} would be made, if we may")
            return
        await self._site.make(leg.target, kind)
        outcome.notes.append(f"made the {kind} queue {leg.target}")

    def _kind(self, leg: Leg) -> str:
        return leg.facts.kind or self._order.queue_type

    async def _room(self, leg: Leg) -> Room | None:
        if self._order.drop_oldest:
            return None
        if leg.target not in self._foreseen:
            dry_run = self._order.dry_run
            room = await self._site.room(leg.target, self._kind(leg), foresee=dry_run)
            if not dry_run:
                return room
            self._foreseen[leg.target] = room
        return self._foreseen[leg.target]


def _refused(queue: str, error: ChannelClosed) -> Outcome:
    outcome = Outcome(queue=queue)
    outcome.fail(error)
    return outcome


def _can_be_swept(facts: QueueFacts) -> bool:
    return not facts.exclusive and facts.kind != "stream"
