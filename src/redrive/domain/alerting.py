"""Alerts: rules, what phase each is in, and what is to be told.

    quiet ──condition holds──► pending ──for so long──► firing ──holds no more──► quiet, resolved
                                  └──holds no more──► quiet

Guarantees: the phase of an alert depends on its condition and the time only; a silence hides
messages and changes no phase. Every alert that was told to fire is told to be resolved, also during
a silence, so that nothing stays open elsewhere; one that begins to fire during a silence is told
when that ends, if it still fires. While it fires it is told again every `repeat`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from redrive.domain.condition import Condition
from redrive.domain.condition_reader import parse


class Phase(StrEnum):
    """Where an alert is."""

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"


class Severity(StrEnum):
    """How much it matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Telling(StrEnum):
    """What a message says of an alert."""

    FIRING = "firing"
    STILL_FIRING = "still firing"
    RESOLVED = "resolved"
    TEST = "test"


class SinkKind(StrEnum):
    """How somebody is told."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"
    ALERTMANAGER = "alertmanager"


LOG_SINK: Final = "log"
"""The name of the sink that is always there."""
NAME_PATTERN: Final = r"[A-Za-z_][A-Za-z0-9_]{0,99}"
LONGEST_SILENCE: Final = timedelta(days=365)
REPEAT: Final = timedelta(hours=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When an alert fires."""

    name: str
    condition: Condition
    hold: timedelta = timedelta()
    """How long the condition has to hold first: the setting `for`."""
    severity: Severity = Severity.WARNING
    summary: str = ""
    """What is the matter, in one sentence."""
    repeat: timedelta = REPEAT
    sinks: tuple[str, ...] | None = None
    """Which sinks are told; all of them if none are named."""

    def tells(self, sink: str) -> bool:
        return self.sinks is None or sink in self.sinks


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAtFault:
    """One of the largest groups, as a message names it."""

    fingerprint: str
    error_type: str
    reason: str
    queue: str | None
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a message says."""

    alert: str
    telling: Telling
    severity: Severity
    summary: str
    condition: str
    value: float | None
    since: datetime
    """Since when the condition held."""
    at: datetime
    groups: tuple[GroupAtFault, ...] = ()
    """The three largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Nobody is told of an alert for a while."""

    alert: str
    until: datetime
    reason: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How an alert stands."""

    phase: Phase = Phase.QUIET
    since: datetime
    """When the phase began; while it fires, when its condition began to hold."""
    told_at: datetime | None = None
    """When it was last told that it fires; None if this was not told yet."""


def advance(
    standing: Standing, rule: Rule, *, holds: bool, silenced: bool, now: datetime
) -> tuple[Standing, Telling | None]:
    """How an alert stands now, and what is to be told."""
    if not holds:
        if standing.phase is Phase.QUIET:
            return standing, None
        told = Telling.RESOLVED if standing.told_at is not None else None
        return Standing(phase=Phase.QUIET, since=now), told
    if standing.phase is Phase.QUIET:
        standing = Standing(phase=Phase.PENDING, since=now)
    if standing.phase is Phase.PENDING:
        if now - standing.since < rule.hold:
            return standing, None
        standing = replace(standing, phase=Phase.FIRING)
    told = None if silenced else _due(standing, rule, now)
    return (standing, None) if told is None else (replace(standing, told_at=now), told)


def _due(standing: Standing, rule: Rule, now: datetime) -> Telling | None:
    """What is to be told of an alert that fires."""
    if standing.told_at is None:
        return Telling.FIRING
    return Telling.STILL_FIRING if now - standing.told_at >= rule.repeat else None


def _rule(name: str, condition: str, hold: str, severity: Severity, summary: str) -> Rule:
    minutes = timedelta(minutes=int(hold.removesuffix("m")))
    return Rule(
        name=name, condition=parse(condition), hold=minutes, severity=severity, summary=summary
    )


_W, _C, _I = Severity.WARNING, Severity.CRITICAL, Severity.INFO

DEFAULT_RULES: Final[tuple[Rule, ...]] = (
    # Seed 003's three
    _rule(
        "HighDLQIngestionRate",
        "dlq_ingestion_rate > 100/min",
        "0m",
        _W,
        "Messages die faster than 100 a minute.",
    ),
    _rule(
        "DLQBacklogGrowing",
        "dlq_backlog > 10000",
        "0m",
        _C,
        "More than 10,000 letters wait.",
    ),
    _rule(
        "LowResolutionRate",
        "dlq_resolution_rate < 0.5",
        "15m",
        _W,
        "Fewer than half as many letters are resolved as come in.",
    ),
    # What else operators want to know
    _rule(
        "LetterNeedsPerson",
        "dlq_manual_entered > 0",
        "0m",
        _W,
        "Letters were left to a person.",
    ),
    _rule(
        "NewFailureGroup",
        "dlq_new_groups > 0",
        "0m",
        _I,
        "Messages fail in a way that was never seen before.",
    ),
    _rule(
        "FailureGroupGrowsFast",
        "dlq_fastest_group_rate > 50/min",
        "0m",
        _W,
        "One failure group grows by more than 50 letters a minute.",
    ),
    _rule(
        "OldestPendingTooOld",
        "dlq_oldest_pending > 24h",
        "0m",
        _W,
        "A letter has been pending for more than a day.",
    ),
    _rule(
        "LedgerBroken",
        "ledger_difference > 0",
        "0m",
        _C,
        "The books differ from the letters in the store; see 'redrive stats --ledger'.",
    ),
    _rule(
        "CollectorStopped",
        "collecting_queues < 1",
        "2m",
        _C,
        "No process collects dead letters: they pile up in the broker.",
    ),
    _rule(
        "BreakerOpen",
        "open_breakers > 0",
        "0m",
        _W,
        "Everything that is sent to a destination fails, so nothing is sent there for now.",
    ),
)
