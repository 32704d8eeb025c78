"""The store, whole: letters, groups, books, sendings, verdicts, replays, behind one door."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.domain.breaker import USUAL, BreakerLimits
from redrive.store.access import Access
from redrive.store.alert_messages import AlertMessages
from redrive.store.alerts import Alerts
from redrive.store.audit_log import AuditLog
from redrive.store.books import Books
from redrive.store.breakers import Breakers
from redrive.store.changed_since import ChangedSince
from redrive.store.clock import DatabaseClock
from redrive.store.counts import Counts
from redrive.store.decisions import Decisions
from redrive.store.edits import Edits
from redrive.store.engine import Database
from redrive.store.figures import Figures
from redrive.store.group_notes import GroupNotes
from redrive.store.groups import Groups
from redrive.store.letters import MAX_REVIVALS, Letters
from redrive.store.replays import Replays
from redrive.store.requests import Requests
from redrive.store.retention import Expiry
from redrive.store.sendings import Sendings
from redrive.store.series import Series
from redrive.store.upgrade import open_store
from redrive.store.verdicts import Verdicts


@dataclass(frozen=True, slots=True)
class Store:
    """Letters, and all that is done with them. Made by `open_letter_store`."""

    database: Database
    letters: Letters
    groups: Groups
    books: Books
    clock: DatabaseClock
    sendings: Sendings
    verdicts: Verdicts
    replays: Replays
    breakers: Breakers
    expiry: Expiry
    edits: Edits
    decisions: Decisions
    series: Series
    changed_since: ChangedSince
    notes: GroupNotes
    access: Access
    audit_log: AuditLog
    requests: Requests
    counts: Counts
    figures: Figures
    alerts: Alerts
    alert_messages: AlertMessages

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        await self.database.close()


async def open_letter_store(
    url: str,
    *,
    make: bool = True,
    max_revivals: int = MAX_REVIVALS,
    breaker_limits: BreakerLimits = USUAL,
) -> Store:
    """Open the store, ready to be used; StoreError if it is not usable.

    `make`: where there is none, a new one is made (SQLite).
    """
    database = await open_store(url, make=make)
    clock = DatabaseClock()
    books, figures = Books(database), Figures(database, clock)
    return Store(
        database=database,
        letters=Letters(database, clock, max_revivals=max_revivals),
        groups=Groups(database),
        books=books,
        clock=clock,
        sendings=Sendings(database, clock, breaker_limits),
        verdicts=Verdicts(database, clock),
        replays=Replays(database, clock, breaker_limits),
        breakers=Breakers(database, clock, breaker_limits),
        expiry=Expiry(database, clock),
        edits=Edits(database, clock),
        decisions=Decisions(database, clock),
        series=Series(database, clock),
        changed_since=ChangedSince(database),
        notes=GroupNotes(database, clock),
        access=Access(database, clock),
        audit_log=AuditLog(database, clock),
        requests=Requests(database, clock),
        counts=Counts(database, clock),
        figures=figures,
        alerts=Alerts(database, clock, figures, books),
        alert_messages=AlertMessages(database, clock),
    )
