"""How a letter is revived: which rule chooses its strategy, and when it is tried next.

Guarantees: every letter has exactly one strategy, and a sentence that says why. The first of these
that applies decides:

1. what only a person can judge: a letter whose origin nothing tells, or that may be a second copy;
2. users' rules, in their order;
3. the built-in rules (`builtin_rules`), for letters whose consumer said what failed;
4. the default.

The same letter and rules give the same choice, whoever asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from redrive.domain.failure import GENERAL_TYPES
from redrive.domain.globs import matching
from redrive.domain.letter import Letter


class Strategy(StrEnum):
    """How a letter is revived."""

    IMMEDIATE = "immediate"
    """Soon, and later each time."""
    SCHEDULED = "scheduled"
    """At the hours of a schedule."""
    CONDITIONAL = "conditional"
    """As soon as conditions hold."""
    MANUAL = "manual"
    """By a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The strategy of one letter."""

    strategy: Strategy
    rule: str
    """The name of the rule that decided."""
    why: str
    """A sentence for people, without a full stop."""
    quotes_reason: bool = False
    """Whether that sentence holds words of the letter's reason."""


class Choosing(Protocol):
    """A rule: what it chooses for a letter, or None if it does not apply."""

    def choose(self, letter: Letter) -> Chosen | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A user's rule. Patterns are globs (`*` is any text, `?` one character); all that are given
    must match. Upper and lower case differ."""

    name: str
    strategy: Strategy
    error_type: str | None = None
    error_reason: str | None = None
    queue: str | None = None
    routing_key: str | None = None

    def choose(self, letter: Letter) -> Chosen | None:
        """This rule's strategy, if all its patterns match."""
        held = []
        for what, pattern, text, quoted in (
            ("error type", self.error_type, letter.error_type, True),
            # Not quoted: it may be long, and hold what not everybody may see.
            ("the reason", self.error_reason, letter.error_reason, False),
            ("queue", self.queue, letter.queue, True),
            ("routing key", self.routing_key, letter.routing_key, True),
        ):
            if pattern is None:
                continue
            if text is None or not matching(pattern, [text]):
                return None
            held.append(f"{what}{f' {text!r}' if quoted else ''} matches {pattern!r}")
        return Chosen(strategy=self.strategy, rule=self.name, why=" and ".join(held))


NO_ORIGIN: Final = "built-in: no origin"
POSSIBLE_DUPLICATES: Final = "built-in: possible duplicates"
DEFAULT: Final = "[worker] default_strategy"


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules, in the order in which they are asked."""

    users: Sequence[Choosing]
    builtin: Sequence[Choosing]
    default: Strategy

    def choose(self, letter: Letter) -> Chosen:
        """The strategy of a letter, and why."""
        if reserved := _for_a_person(letter):
            return reserved
        for rule in self.users:
            if chosen := rule.choose(letter):
                return chosen
        if letter.error_type in GENERAL_TYPES:
            why = f"no rule matches, and {letter.error_type} tells nothing of what went wrong"
            return Chosen(strategy=self.default, rule=DEFAULT, why=why)
        for rule in self.builtin:
            if chosen := rule.choose(letter):
                return chosen
        return Chosen(strategy=self.default, rule=DEFAULT, why="no rule matches")


def _for_a_person(letter: Letter) -> Chosen | None:
    if letter.queue is None:
        why = "nothing tells in which queue it failed"
        return Chosen(strategy=Strategy.MANUAL, rule=NO_ORIGIN, why=why)
    if letter.possible_duplicate:
        why = "it may be a second copy" + (
            f" of letter {letter.duplicate_of}" if letter.duplicate_of else ""
        )
        return Chosen(strategy=Strategy.MANUAL, rule=POSSIBLE_DUPLICATES, why=why)
    return None


# When


IMMEDIATE_DELAYS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 30, 60))
"""Before the first revival, the second, …; before all others the last."""
CONDITIONS_AGAIN: Final = timedelta(minutes=1)
"""When conditions that do not hold are looked at again."""


class Schedule(Protocol):
    """The moments of `scheduled`."""

    def after(self, moment: datetime) -> datetime:
        """The first one that is later."""
        ...


@dataclass(frozen=True, slots=True)
class Timetable:
    """When a letter is tried next."""

    schedule: Schedule
    delays: tuple[timedelta, ...] = IMMEDIATE_DELAYS

    def next_try(self, strategy: Strategy, revivals: int, now: datetime) -> datetime | None:
        """When, after so many revivals; None for never by itself: a person decides.

        A conditional letter is due at once: its conditions are looked at when it is due, and if
        they do not hold, again after `CONDITIONS_AGAIN`.
        """
        match strategy:
            case Strategy.IMMEDIATE:
                return now + self.delays[min(revivals, len(self.delays) - 1)]
            case Strategy.SCHEDULED:
                return self.schedule.after(now)
            case Strategy.CONDITIONAL:
                return now
            case Strategy.MANUAL:
                return None
