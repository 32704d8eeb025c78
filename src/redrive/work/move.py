"""Moving the messages of a queue that are meant: to another queue, or back where each failed.

Guarantees: as for the sweep. What is not meant stays, in its order where the queue can keep it;
what its new place does not take, or would push out others for, stays too, and is counted as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from typing import Final

from redrive.amqp import Connection
from redrive.broker.live import SpareChannel
from redrive.broker.looking import QueueFacts
from redrive.errors import AccessRefused, BrokerError, NotFound, OrderRefused, PreconditionFailed
from redrive.work.failed_message import MessageReader
from redrive.work.look import Looks, Outcome
from redrive.work.matching import Matching, MessageFilters
from redrive.work.may_publish import assure_that_we_may_publish
from redrive.work.mover import Limits
from redrive.work.noting import Notes
from redrive.work.one_pass import OnePass
from redrive.work.pace import Rate
from redrive.work.queue_site import CHECK_THE_NAME, QueueSite, check_name
from redrive.work.return_path import ReturnPath
from redrive.work.to_origin import ToOrigin
from redrive.work.transfer import ToQueue, Transfer, Way

_MOVED_WITHIN: Final = 300.0
"""Seconds: at a pace, no more is taken at once than is moved in them. What is not moved within half
an hour the broker would take back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOrder:
    """What to move where."""

    source: str
    target: str | None
    """A queue; None: each to its origin."""
    filters: MessageFilters = field(default_factory=MessageFilters)
    most: int | None = None
    rate: float | None = None
    """Messages a second."""
    spend_deliveries: bool = False
    drop_oldest: bool = False
    """Whether a full queue may push out its oldest messages."""
    dry_run: bool = False

    @property
    def takes_all(self) -> bool:
        """Whether nothing is to stay, as far as it goes by the order."""
        whole = self.most is None and self.filters == MessageFilters()
        return whole and self.target is not None and not self.dry_run

    def check(self) -> None:
        """Raise if it cannot be meant."""
        if self.source == self.target:
            raise OrderRefused(
                f"{self.source!r} cannot be moved onto itself", remedy="name another queue"
            )
        if self.target is not None:
            check_name(self.target)


class QueueMove:
    """Carries out one order on one broker."""

    def __init__(
        self, order: MoveOrder, site: QueueSite, return_exchange: str, limits: Limits | None = None
    ) -> None:
        order.check()
        self._order = order
        self._site = site
        self._return_exchange = return_exchange
        self._limits = limits or Limits()
        self._looks = Looks(site.version, order.spend_deliveries, site.management is not None)
        self.under_way: OnePass | None = None

    async def run(self, stopping: asyncio.Event | None = None) -> Outcome:
        """Move. Trouble on the way is in the outcome; what keeps it from beginning is raised."""
        order, site = self._order, self._site
        facts = await site.existing(order.source)
        self._looks.check(facts, gives_back=not order.takes_all)
        await self._check_target()
        reader = MessageReader(site.own_queues, order.source)
        path = ReturnPath(self._return_exchange, site.connect)
        way = await self._way(reader, path)
        transfer = Transfer(
            Matching(order.filters, reader),
            way,
            dry_run=order.dry_run,
            most=order.most,
        )
        try:
            return await self._look(facts, transfer, way, stopping)
        finally:
            path.abort()

    async def _look(
        self, facts: QueueFacts, transfer: Transfer, way: Way, stopping: asyncio.Event | None
    ) -> Outcome:
        order = self._order
        limits = self._limits
        if order.rate is not None:
            most = max(1, int(order.rate * _MOVED_WITHIN))
            limits = replace(
                limits, prefetch=min(limits.prefetch, most), widest=min(limits.widest, most)
            )
        pace = Rate(order.rate) if order.rate is not None else None
        look = self._site.pass_over(facts, transfer, limits=limits, pace=pace)
        transfer.end = look.end
        if isinstance(way, ToOrigin):
            look.prepare = lambda batch: way.prepare(transfer.foreseen(batch))
        self.under_way = look
        outcome = Outcome(queue=order.source, target=order.target or "(origin)")
        try:
            await look.run(stopping)
            if order.dry_run and isinstance(way, ToOrigin):
                async for why, count in way.unreachable():
                    transfer.failures[why] += count
        except BrokerError as error:
            outcome.fail(error)
        outcome.tell(look.passed, transfer, dry_run=order.dry_run)
        if look.passed.consumers:
            facts = await self._site.with_consumers(facts)
        outcome.notes += self._looks.notes(facts, look.passed)
        if not order.drop_oldest:
            outcome.notes += self._site.told_of_room(outcome.chosen - outcome.failed)
        return outcome

    async def _way(self, reader: MessageReader, path: ReturnPath) -> Way:
        notes = Notes(self._site.own_queues, self._order.source)
        asks, dry_run = not self._order.drop_oldest, self._order.dry_run
        if self._order.target is None:
            rooms = await self._site.rooms(foresee=dry_run) if asks else None
            return ToOrigin(self._return_exchange, reader, notes, path, rooms)
        way = ToQueue(self._order.target, notes)
        if asks:
            way.room = await self._site.room(self._order.target, foresee=dry_run)
        return way

    async def _check_target(self) -> None:
        target, dry_run = self._order.target, self._order.dry_run
        if target is not None and await self._site.is_missing(target):
            raise BrokerError(
                f"there is no queue {target!r} to move to", remedy=f"make it, or {CHECK_THE_NAME}"
            )
        exchange = "" if target is not None else self._return_exchange
        if dry_run:
            with contextlib.suppress(NotFound):  # it would be made
                await assure_that_we_may_publish(self._site.connect, exchange)
        elif exchange:
            await assure_return_exchange(self._site.connection, exchange)


async def assure_return_exchange(connection: Connection, exchange: str) -> None:
    """Make the exchange of the return path where it is missing, or raise what to do about it."""
    spare = SpareChannel(connection)
    try:
        try:
            await (await spare.open()).inspect_exchange(exchange)
            return
        except NotFound:
            pass
        await (await spare.open()).declare_exchange(exchange, "topic")
    except (AccessRefused, PreconditionFailed) as error:
        raise BrokerError(
            f"the way back needs the exchange {exchange!r}: {error.text}",
            remedy="let an administrator run 'redrive topology apply'",
        ) from error
    finally:
        await spare.close()
