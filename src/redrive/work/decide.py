"""People's decisions on letters: discard, archive, restore, resolve; by id, or by filters.

Guarantees: each letter is changed whole or not at all. One that may not change is left as it is and
counted with the reason. By filters, letters are listed first: what comes to match after that is not
touched, nor is what changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from redrive.store.decisions import Decided, Decisions
from redrive.store.listed import Listed

Verb = Literal["discard", "archive", "restore", "resolve"]
DONE: dict[Verb, str] = {
    "discard": "discarded",
    "archive": "archived",
    "restore": "restored",
    "resolve": "resolved",
}
"""What is said of letters on which it was decided so."""

Which = Sequence[str] | Listed
"""Letters that are named by their ids, or that were listed."""


@dataclass(slots=True)
class Tally:
    """What became of a decision on many letters."""

    changed: int = 0
    unchanged: Counter[str] = field(default_factory=Counter)
    """By reason."""
    examples: dict[str, str] = field(default_factory=dict)
    """Of each reason, the id of one letter."""

    def add(self, decided: Decided) -> None:
        self.changed += len(decided.changed)
        for letter_id, reason in decided.unchanged:
            self.unchanged[reason] += 1
            self.examples.setdefault(reason, letter_id)


async def decide(
    decisions: Decisions,
    verb: Verb,
    which: Which,
    *,
    actor: str,
    reason: str,
) -> Tally:
    """Carry out a decision."""
    act: Callable[..., Awaitable[Decided]] = getattr(decisions, verb)
    tally = Tally()
    if not isinstance(which, Listed):
        tally.add(await act(which, actor, reason))
        return tally
    for some in which.chunks():
        tally.add(await act(list(some.states), actor, reason, still=some))
    return tally


def tally_document(tally: Tally, verb: Verb) -> dict[str, Any]:
    """As programs see it."""
    left = [
        {"reason": reason, "letters": count, "example": tally.examples[reason]}
        for reason, count in tally.unchanged.most_common()
    ]
    return {DONE[verb]: tally.changed, "unchanged": left}
