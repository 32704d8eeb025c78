"""A storm from beginning to end: the plan is carried out, everything settles, accounts are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.storm.accounts import Accounts, settle_accounts
from tests.faults.storm.journal import Journal, Published
from tests.faults.storm.liveliness import idle
from tests.faults.storm.messages import digest_of, mended
from tests.faults.storm.operators import Operator
from tests.faults.storm.plan import SHORT, Plan
from tests.faults.storm.producers import Producer
from tests.faults.storm.report import report
from tests.faults.storm.settling import Settling
from tests.faults.storm.strikes import Strikes
from tests.faults.storm.world import PRODUCERS, World, a_world


@dataclass(frozen=True)
class Ended:
    """How a storm ended."""

    plan: Plan
    journal: Journal
    accounts: Accounts

    @property
    def problems(self) -> list[str]:
        idleness = idle(self.accounts.found, self.journal.done)
        return [*self.journal.problems, *self.accounts.problems, *idleness]

    def __str__(self) -> str:
        return report(self.plan, self.journal, self.accounts, self.problems)


async def run(plan: Plan, root: Path | None = None) -> Ended:
    """Carry a plan out in a world of its own; `root` has the RabbitMQ (see chroots.py)."""
    async with a_world(plan.nodes, root) as world:
        journal = Journal()
        await _storm(plan, world, journal)
        within = 90.0 if plan.seconds <= SHORT and plan.nodes == 1 else 600.0
        found = await Settling(world, journal, within).settle()
    return Ended(plan, journal, settle_accounts(found, _digests_by(plan.seed)))


async def _storm(plan: Plan, world: World, journal: Journal) -> None:
    """Everybody at work at once, until all that was planned is done."""
    strikes = Strikes(world, journal)
    async with asyncio.TaskGroup() as everybody:
        for half in (plan.messages[::2], plan.messages[1::2]):
            producer = Producer(world.links_url(PRODUCERS), plan.seed, journal)
            everybody.create_task(producer.publish(half))
        everybody.create_task(Operator(world, journal).work(plan.acts))
        for lane in plan.lanes:
            everybody.create_task(strikes.strike_all(lane))


def _digests_by(seed: int) -> Callable[[Published], set[str]]:
    """What a copy may be: as it was published, or as an operator has mended it."""

    def digests(published: Published) -> set[str]:
        body = published.message.body(seed)
        return {digest_of(body), digest_of(mended(body))}

    return digests
