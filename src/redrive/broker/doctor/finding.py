"""What the doctor finds: how bad, of what, why, and the commands that mend it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad a finding is."""

    CRITICAL = "critical"
    """Messages are dropped or stuck, now or when the next one fails."""
    WARNING = "warning"
    """Messages may be lost or stay where nobody sees them."""
    NOTE = "note"
    """Good to know; nothing is wrong yet."""

    @property
    def is_problem(self) -> bool:
        return self is not Severity.NOTE


class Kind(StrEnum):
    """What a finding is about."""

    QUEUE = "queue"
    EXCHANGE = "exchange"
    POLICY = "policy"
    USER = "user"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Subject:
    """The thing on the broker that a finding is about."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """What a policy for one queue is to change; None takes a key away."""

    queue: str
    keys: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A line for a shell. `names` may be joined with those of other findings' same command."""

    text: str
    names: tuple[str, ...] = ()
    options: str = ""
    changes: PolicyChanges | None = None
    """Where it sets a policy for one queue: all such changes of a queue go into one policy."""

    def __str__(self) -> str:
        dashes = ["--"] if any(name.startswith("-") for name in self.names) else []
        before = [self.options] if self.options and dashes else []
        after = [self.options] if self.options and not dashes else []
        return " ".join([self.text, *before, *dashes, *map(shlex.quote, self.names), *after])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or will be."""

    check: str
    """The name of what was checked: `no-dead-letter-exchange`."""
    severity: Severity
    subject: Subject
    reason: str
    """Why it matters, in a sentence or two, without the subject's own name: alike findings are
    shown together."""
    advice: str = ""
    """What the commands alone do not say."""
    commands: tuple[Command, ...] = ()
    """In the order in which to run them."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What could not be looked at, why, and what would help."""

    what: str
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Alike:
    """Findings that differ in their subject only."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    def commands(self, *, most: int, names: int) -> tuple[list[tuple[Command, ...]], int]:
        """What mends them, and how many findings are left to be mended likewise.

        Where the same lines mend several, those once, with their names, so many at most.
        """
        parts: dict[tuple[tuple[str, str], ...], list[Finding]] = {}
        for finding in self.findings:
            if finding.commands:
                parts.setdefault(_stems(finding.commands), []).append(finding)
        shown = [part[:names] for part in list(parts.values())[:most]]
        left = sum(map(len, parts.values())) - sum(map(len, shown))
        return [_joined(part) for part in shown], left


def _joined(findings: Sequence[Finding]) -> tuple[Command, ...]:
    lines = []
    for number, command in enumerate(findings[0].commands):
        names = dict.fromkeys(
            name for finding in findings for name in finding.commands[number].names
        )
        lines.append(Command(command.text, tuple(names), command.options))
    return tuple(lines)


def _stems(commands: Sequence[Command]) -> tuple[tuple[str, str], ...]:
    return tuple((command.text, command.options) for command in commands)


def alike(findings: Iterable[Finding]) -> list[Alike]:
    """Findings put together where all but the subject is the same, the worst first."""
    grouped: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (
            list(Severity).index(finding.severity),
            finding.check,
            finding.subject.kind,
            finding.reason,
            finding.advice,
        )
        grouped.setdefault(key, []).append(finding)
    ordered = sorted(grouped, key=lambda key: key[0])  # type: ignore[arg-type,return-value]
    return [Alike(tuple(grouped[key])) for key in ordered]
