"""A circuit breaker: stops the sending to a destination that fails everything, and tries it again.

    closed ──5 failures in a row──► open ──after a wait──► half-open: one letter as a probe
       ▲                             ▲                        │  │
       └───────── it succeeded ──────┼────────────────────────┘  │
                                     └── it failed: twice the wait, 15 minutes at most

Guarantees: a value; every change makes a new one, and the same changes in the same order make the
same. While it is open nothing is admitted, however many verdicts of earlier sendings come in. There
is always a way out: after every wait one letter is admitted, and a probe whose verdict does not
come is given up after a while, so that another is admitted.

An operator may force it open or closed; beneath that it goes on counting, and `release` gives it
back to what it would be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self


class Position(StrEnum):
    """Whether letters pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Admission(StrEnum):
    """How many letters may be sent now."""

    ALL = "all"
    ONE = "one"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """When it opens, and for how long."""

    failures: int = 5
    """So many in a row open it."""
    wait: timedelta = timedelta(seconds=60)
    """How long it is open before the first probe."""
    longest_wait: timedelta = timedelta(minutes=15)
    """How long at most, after probes that failed."""
    probe_patience: timedelta = timedelta(minutes=20)
    """After so long without a verdict another probe is admitted: twice `verdict_after`."""

    @classmethod
    def with_verdicts_after(cls, verdict_after: timedelta) -> Self:
        """The usual limits, for verdicts that may take so long."""
        return cls(probe_patience=2 * verdict_after)


USUAL: Final = BreakerLimits()
_MOST_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The breaker of one destination."""

    state: Position = Position.CLOSED
    failures: int = 0
    """In a row, since the last success."""
    openings: int = 0
    """In a row, since it was closed: each doubles the wait."""
    opened_at: datetime | None = None
    """When it opened last; None while it is closed."""
    probed_at: datetime | None = None
    """When the probe was sent; None unless it is half-open."""
    forced: Position | None = None
    """Closed or open, by an operator."""
    limits: BreakerLimits = USUAL

    # What happened

    def on_failure(self, now: datetime, n: int = 1) -> Self:
        """So many letters failed, one after the other."""
        if n < 1 or self.state is Position.OPEN:
            return self
        failures = self.failures + n
        if self.state is Position.CLOSED and failures < self.limits.failures:
            return replace(self, failures=failures)
        return replace(
            self,
            state=Position.OPEN,
            failures=failures,
            openings=self.openings + 1,
            opened_at=now,
            probed_at=None,
        )

    def on_success(self) -> Self:
        """A letter was consumed. While it is open, that was one of before, and tells nothing."""
        if self.state is Position.OPEN:
            return self
        return replace(
            self, state=Position.CLOSED, failures=0, openings=0, opened_at=None, probed_at=None
        )

    def on_probe(self, now: datetime) -> Self:
        """The one letter that was admitted is being sent."""
        if self._own_admission(now) is not Admission.ONE:
            return self
        return replace(self, state=Position.HALF_OPEN, probed_at=now)

    # What may be done

    def admits(self, now: datetime) -> Admission:
        """How many letters may be sent now."""
        if self.forced is not None:
            return Admission.ALL if self.forced is Position.CLOSED else Admission.NONE
        return self._own_admission(now)

    def next_probe_at(self) -> datetime | None:
        """When the next letter is admitted, unless something happens before; None while all are.
        Forced positions apart."""
        if self.state is Position.OPEN and self.opened_at is not None:
            return self.opened_at + self.wait
        if self.state is Position.HALF_OPEN and self.probed_at is not None:
            return self.probed_at + self.limits.probe_patience
        return None

    @property
    def wait(self) -> timedelta:
        """How long it is open this time."""
        doublings = min(max(self.openings - 1, 0), _MOST_DOUBLINGS)
        return min(self.limits.wait * (1 << doublings), self.limits.longest_wait)

    def _own_admission(self, now: datetime) -> Admission:
        due = self.next_probe_at()
        if self.state is Position.CLOSED:
            return Admission.ALL
        return Admission.ONE if due is None or now >= due else Admission.NONE

    # What an operator says

    def force(self, position: Position) -> Self:
        """Open or closed, whatever happens, until `release`."""
        if position is Position.HALF_OPEN:
            raise ValueError("a breaker can be forced open or closed")
        return replace(self, forced=position)

    def release(self) -> Self:
        """As it would be without the operator."""
        return replace(self, forced=None)


def held_by(queue: str) -> str:
    """What is said while the breaker of a queue holds letters back; people are helped by it."""
    return f"the breaker of {queue} is open"


# As text, for a store


def write_breaker(breaker: Breaker) -> str:
    """A breaker as JSON, without its limits, which are settings."""
    document = {
        "state": breaker.state.value,
        "failures": breaker.failures,
        "openings": breaker.openings,
        "openedAt": breaker.opened_at.isoformat() if breaker.opened_at else None,
        "probedAt": breaker.probed_at.isoformat() if breaker.probed_at else None,
        "forced": breaker.forced.value if breaker.forced else None,
    }
    return json.dumps(document)


def read_breaker(text: str, limits: BreakerLimits = USUAL) -> Breaker:
    """What `write_breaker` wrote, under these limits."""
    document: dict[str, Any] = json.loads(text)

    def moment(name: str) -> datetime | None:
        return datetime.fromisoformat(document[name]) if document[name] else None

    return Breaker(
        state=Position(document["state"]),
        failures=document["failures"],
        openings=document["openings"],
        opened_at=moment("openedAt"),
        probed_at=moment("probedAt"),
        forced=Position(document["forced"]) if document["forced"] else None,
        limits=limits,
    )
