"""Which strategy a letter has, by the settings in force, and when it would be sent next.

Guarantees: what `Classified` says is what a worker would do now, as far as the settings and the
letter decide it; conditions and circuit breakers are looked at only when a letter is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redrive.domain.builtin_rules import BUILTIN_RULES
from redrive.domain.letter import Letter
from redrive.domain.lifecycle import State
from redrive.domain.strategy import Chosen, Rule, Rules, Strategy, Timetable
from redrive.work.redact import Redaction
from redrive.work.times import rfc3339_or_none
from redrive.work.timetable import timetable_by

if TYPE_CHECKING:
    from redrive.settings import Settings


def rules_by(settings: Settings) -> Rules:
    """The rules that the settings have, and the built-in ones behind them."""
    users = [
        Rule(
            name=f"[[classify]] {number}",
            strategy=rule.strategy,
            error_type=rule.error_type,
            error_reason=rule.error_reason,
            queue=rule.queue,
            routing_key=rule.routing_key,
        )
        for number, rule in enumerate(settings.classify, start=1)
    ]
    return Rules(users, BUILTIN_RULES, settings.worker.default_strategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """A letter and how it would be revived."""

    letter: Letter
    chosen: Chosen
    next_at: datetime | None
    """When it would be sent; None if not by itself."""
    waits_for: str | None
    """Why it would not be sent by itself; None if it would."""


class Classification:
    """Says of letters how they would be revived."""

    def __init__(self, rules: Rules, timetable: Timetable, max_revivals: int) -> None:
        self._rules = rules
        self._timetable = timetable
        self._max_revivals = max_revivals

    @classmethod
    def by(cls, settings: Settings) -> Classification:
        """By the settings in force."""
        worker = settings.worker
        return cls(rules_by(settings), timetable_by(worker), worker.max_revivals)

    def of(self, letter: Letter, now: datetime) -> Classified:
        """What would become of a letter."""
        chosen = self._rules.choose(letter)
        waits_for = self._waits_for(letter, chosen)
        return Classified(
            letter=letter,
            chosen=chosen,
            next_at=None if waits_for else self._next_at(letter, chosen, now),
            waits_for=waits_for,
        )

    def _waits_for(self, letter: Letter, chosen: Chosen) -> str | None:
        if letter.status is not State.PENDING:
            return f"it is {letter.status.word}"
        if letter.dlq_retry_count >= self._max_revivals:
            return f"{letter.dlq_retry_count} revivals failed"
        if chosen.strategy is Strategy.MANUAL:
            return "a person"
        return None

    def _next_at(self, letter: Letter, chosen: Chosen, now: datetime) -> datetime | None:
        # What a worker has set stands, unless its strategy would be another today.
        if letter.next_retry_at is not None and letter.strategy == chosen.strategy:
            return max(letter.next_retry_at, now)
        return self._timetable.next_try(chosen.strategy, letter.dlq_retry_count, now)


def shown_why(each: Classified, redaction: Redaction) -> str:
    """Why a strategy was chosen, without words of a reason that is hidden."""
    hidden = redaction.letter(each.letter).error_reason != each.letter.error_reason
    if hidden and each.chosen.quotes_reason:
        return "the reason, which [redaction] hides, says so"
    return each.chosen.why


def classified_document(each: Classified, why: str) -> dict[str, Any]:
    """As programs see it. `why` may be less than was chosen by, where rules hide the reason."""
    return {
        "id": each.letter.id,
        "status": each.letter.status.value,
        "strategy": each.chosen.strategy.value,
        "rule": each.chosen.rule,
        "why": why,
        "revivals": each.letter.dlq_retry_count,
        "nextRetryAt": rfc3339_or_none(each.next_at),
        "waitsFor": each.waits_for,
    }
