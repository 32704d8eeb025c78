"""How many letters are where, and the largest groups: for `redrive stats` and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from redrive.domain import metrics
from redrive.domain.filters import Audit, Group, Ledger
from redrive.domain.lifecycle import OPEN_STATES
from redrive.store.store import Store
from redrive.work.redact import Redaction
from redrive.work.show import audit_document, group_document, ledger_document

TOP: Final = 10
LOOKED_AT: Final = 500


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers of one moment."""

    ledger: Ledger
    top: tuple[Group, ...]
    """The groups with the most open letters."""
    all_groups: bool
    """Whether every group was looked at, or only those that were hit last."""
    audit: Audit | None
    possible_duplicates: int
    """How many letters were ever marked as such when they were collected."""


async def read_stats(store: Store, redaction: Redaction, *, ledger: bool) -> Stats:
    """The numbers now. `ledger`: compared with the letters themselves, which takes longer."""
    audit = await store.books.audit() if ledger else None
    page = await store.groups.page(limit=LOOKED_AT)
    ranked = sorted(page.items, key=open_letters, reverse=True)
    return Stats(
        audit.ledger if audit else await store.books.ledger(),
        tuple(redaction.group(group) for group in ranked[:TOP] if open_letters(group)),
        page.next is None,
        audit,
        await store.counts.total(metrics.POSSIBLE_DUPLICATES.name),
    )


def open_letters(group: Group) -> int:
    """How many letters of a group somebody may still have to do something about."""
    return sum(group.counts.get(state, 0) for state in OPEN_STATES)


def stats_document(found: Stats) -> dict[str, Any]:
    """As programs see it."""
    document = audit_document(found.audit) if found.audit else ledger_document(found.ledger)
    return {
        **document,
        "possibleDuplicates": found.possible_duplicates,
        "groups": [group_document(group) for group in found.top],
    }
