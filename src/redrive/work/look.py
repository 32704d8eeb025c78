"""Before and after one looks into a queue: may one, what does it cost, what is to be said of it.

Guarantees: a queue whose messages would be harmed by looking is not looked into, unless told. Who
else consumes the queue is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redrive.broker.looking import SPEND_DELIVERIES, QueueFacts, Version
from redrive.broker.topology import DELIVERY_LIMIT
from redrive.domain.retry_count import CountBy
from redrive.errors import BrokerError, RedriveError
from redrive.work.one_pass import Passed
from redrive.work.transfer import Transfer


class LookingCosts(BrokerError):
    """Looking into the queue would bring its messages nearer to their end."""

    remedy = f"give {SPEND_DELIVERIES} to look all the same, or use RabbitMQ 4.3 or later"


_TELL = (
    "set [broker] management_url, by which they are known, or give"
    f" {SPEND_DELIVERIES} if you know that the queue has no delivery limit"
)


_REMOVES = (
    f"move all of it to another queue with 'redrive move' and {SPEND_DELIVERIES}; 'redrive doctor'"
    " tells how to make the queue anew"
)


@dataclass(frozen=True, slots=True)
class Looks:
    """How one looks on this broker."""

    version: Version
    spend_deliveries: bool = False
    tells_who: bool = False
    """Whether there is a management API, which names consumers."""

    def check(self, facts: QueueFacts, *, gives_back: bool = True) -> None:
        """Raise unless the queue can be looked into; `gives_back` unless all of it is to leave."""
        if facts.kind not in ("classic", "quorum", None):
            raise BrokerError(
                f"{facts.name} is a {facts.kind}, whose messages stay whoever reads them",
                remedy="name a classic or a quorum queue",
            )
        cost = facts.cost(self.version)
        if gives_back and facts.removed_at(self.version) == 0:  # no option is meant for that
            raise LookingCosts(f"{facts.name} was not looked into: {cost}", remedy=_REMOVES)
        if cost and not self.spend_deliveries:
            remedy = _TELL if facts.kind is None else ""
            raise LookingCosts(f"{facts.name} was not looked into: {cost}", remedy=remedy)

    def check_count_by(self, facts: QueueFacts, by: CountBy) -> None:
        """Raise if what tells how often a message was tried would count our looks, unless told."""
        if by is CountBy.DELIVERIES and self._counts(facts) and not self.spend_deliveries:
            raise LookingCosts(
                f"{facts.name} was not looked into: {self._sweeps_count}, so messages would be"
                " moved because they were swept",
                remedy=f"count by header or deaths, or give {SPEND_DELIVERIES} to do it anyway",
            )

    def count_by_notes(self, facts: QueueFacts, by: CountBy) -> list[str]:
        """What is to be said of such a count."""
        counted = by is CountBy.DELIVERIES and self._counts(facts)
        return [self._sweeps_count] if counted else []

    def _counts(self, facts: QueueFacts) -> bool:
        return facts.counts_looks(self.version)

    @property
    def _sweeps_count(self) -> str:
        broker = f"RabbitMQ {self.version[0]}.{self.version[1]}"
        return f"x-delivery-count counts sweeps and looks too on a quorum queue of {broker}"

    def notes(self, facts: QueueFacts, passed: Passed) -> list[str]:
        """What is to be said of a queue that was looked into."""
        found = []
        if passed.consumers:
            who = ", ".join(facts.consumers) or self._nobody_tells
            found.append(f"others consume it too: {who}")
        if passed.taken_by_others:
            found.append(
                f"{passed.taken_by_others:,} of the {passed.present:,} messages that were there"
                " were not looked at: others took them meanwhile, or they expired"
            )
        if passed.went_back and (
            order := facts.order(
                self.version, passed.went_back, passed.untouched, again=passed.again
            )
        ):
            found.append(order)
        stays = passed.went_back or passed.examined > passed.counts.moved
        if stays and (cost := facts.cost(self.version)):
            found.append(f"each message that is left has one delivery less to live: {cost}")
        if passed.spared:
            found.append(
                f"{passed.spared} at their delivery limit would have been removed by being given"
                " back: each was put at the end of the queue as a copy, and its deliveries count"
                " anew"
            )
        if passed.left_to_the_broker and self._wears_out(facts):
            found.append(
                "the broker had to take back by itself what was not settled, and on a quorum queue"
                " it counts that as a delivery of each message"
            )
        return found

    @property
    def _nobody_tells(self) -> str:
        if self.tells_who:
            return "the management API does not name them yet, or they are gone by now"
        return "the management API alone tells who, and did not"

    def _wears_out(self, facts: QueueFacts) -> bool:
        """Whether its messages live for a number of deliveries only, as far as is known."""
        limit = facts.delivery_limit(self.version)
        return facts.kind != "classic" and limit is not None and limit < DELIVERY_LIMIT


def told_of_lost(passed: Passed) -> str:
    """What is wrong where messages could not be kept; empty if nothing is."""
    if not passed.lost:
        return ""
    return (
        f"{passed.lost.total()} at their delivery limit could not be kept, and the broker drops or"
        f" dead-letters them: {'; '.join(passed.lost)}"
    )


def told_of_interruption(passed: Passed) -> str:
    """What an interrupted pass did not come to."""
    if not passed.missed:
        return "interrupted: all messages had been looked at"
    return (
        f"interrupted: {passed.missed:,} of the {passed.present:,} messages that were there were"
        " not looked at"
    )


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one queue's messages."""

    queue: str
    target: str = ""
    present: int = 0
    examined: int = 0
    chosen: int = 0
    """Those that were meant."""
    moved: int = 0
    failed: int = 0
    under_way: int = 0
    """Those that were sent, and of which no more is known."""
    may_be_in_both: int = 0
    """Of those that were moved: the broker may not know, and has them in their queue as well."""
    not_looked_at: int = 0
    """Those that were there, and that an interrupted pass or one that failed did not come to."""
    notes: list[str] = field(default_factory=list)
    error: str = ""
    """What ended it before its end, or kept it from beginning."""
    remedy: str = ""

    @property
    def left(self) -> int:
        """Those that were looked at and not meant."""
        return max(0, self.examined - self.chosen)

    @property
    def would_move(self) -> int:
        """Those that a dry run expects to find a place."""
        return max(0, self.chosen - self.failed)

    @property
    def is_sound(self) -> bool:
        return not (self.failed or self.error)

    def fail(self, error: RedriveError) -> None:
        self.error, self.remedy = str(error), error.remedy

    def tell(self, passed: Passed, transfer: Transfer, *, dry_run: bool) -> None:
        """Note what a pass did, and what is to be said of it."""
        self.present, self.examined = passed.present, passed.examined
        self.moved, self.chosen = passed.moved, transfer.chosen
        if lost := told_of_lost(passed):
            self.error, self.remedy = f"{self.error}; {lost}" if self.error else lost, ""
        self.failed = transfer.failed
        stay = "would not be moved" if dry_run else "not moved"
        self.notes += [f"{count} {stay}: {why}" for why, count in transfer.failures.items()]
        self.notes += [f"{count} may not be moved: {why}" for why, count in transfer.doubts.items()]
        if passed.cut_short and not self.error:
            self.error, self.remedy = passed.shortfall, "run it again for them"
        if passed.interrupted or self.error:
            self.not_looked_at = passed.missed
        if passed.interrupted:
            self.notes.append(told_of_interruption(passed))
        self._tell_of_doubt(passed, dry_run=dry_run)

    def _tell_of_doubt(self, passed: Passed, *, dry_run: bool) -> None:
        self.under_way = 0 if dry_run else max(0, self.chosen - self.moved - self.failed)
        if self.under_way:
            self.notes.append(
                f"{self.under_way:,} were under way: each is still in its queue, in its new one, or"
                " in both"
            )
        self.may_be_in_both = min(passed.unsure, self.moved)
        if self.may_be_in_both:
            self.notes.append(
                f"{self.may_be_in_both:,} of those moved may be in both queues: the broker was lost"
                " before it said that it knows that they are moved; if it crashed, perhaps more"
            )
