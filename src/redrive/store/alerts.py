"""Alerts in the store: how each stands, what it has to say, and silences.

Of any number of processes one judges each step, and none a step before one that was judged: the
sample, the standing of every alert and its messages are one transaction, and no two of these run at
once. So a message is there if and only if the standing that it tells is. `alert_messages.py` has
what becomes of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.alerting import (
    GroupAtFault,
    Phase,
    Rule,
    Severity,
    Silence,
    Standing,
    Telling,
    Told,
    advance,
)
from redrive.domain.filters import Audit
from redrive.domain.lifecycle import OPEN_STATES
from redrive.domain.measures import Moment
from redrive.store.alert_messages import add_message, sinks_told, sinks_with_messages
from redrive.store.books import Books
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.figures import Figures
from redrive.store.samples import (
    add_sample,
    fastest_group,
    newest_sample,
    read_past,
    step_of,
    with_level,
)
from redrive.store.schema import (
    redrive_alert,
    redrive_group,
    redrive_ledger,
    redrive_silence,
)

_ALERT: Final = redrive_alert.c
_SILENCE: Final = redrive_silence.c
_CHECK_EVERY: Final = timedelta(minutes=10)
_ABANDONED: Final = timedelta(minutes=10)
"""An alert that no rule has moved for so long is of a rule that is gone."""
_AT_FAULT: Final = 3
_GONE: Final = "No rule has this name any more."
# Any number will do, as long as every Redrive takes the same: "judge" in ASCII.
_JUDGING: Final = int.from_bytes(b"judge")


@dataclass(frozen=True, slots=True)
class AlertOf:
    """An alert as the store has it."""

    name: str
    severity: Severity
    standing: Standing
    value: float | None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What alerts are judged by, and how what they have to say is written down."""

    rules: Sequence[Rule]
    sinks: Collection[str]
    refreshed: Collection[str]
    """Sinks that have to be told again every minute that an alert still fires."""
    new_id: Callable[[datetime], str]
    document: Callable[[Told], dict[str, Any]]


class Alerts:
    """The alerts of the store."""

    def __init__(
        self, database: Database, clock: DatabaseClock, figures: Figures, books: Books
    ) -> None:
        self._database = database
        self._clock = clock
        self._figures = figures
        self._books = books

    # Judging

    async def judge(self, judging: Judging) -> list[Told]:
        """Judge all alerts, unless it was done in this step; what is to be told by that."""
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
            step, levels = await newest_sample(connection)
            if step >= step_of(now):
                return []
        moment, levels = await self._look(judging.rules, levels)
        async with self._database.writing() as connection:
            if not self._database.is_sqlite:  # where a writer is alone anyway
                await connection.execute(select(func.pg_advisory_xact_lock(_JUDGING)))
            if not await add_sample(connection, moment, levels):
                return []
            return await _Round(connection, moment, judging).judge()

    async def _look(
        self, rules: Sequence[Rule], levels: Mapping[str, float]
    ) -> tuple[Moment, dict[str, float]]:
        """All that alerts are judged by, and what is to be remembered of it."""
        windows = {window for rule in rules for window in rule.condition.windows()}
        readings = await self._figures.read()
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
            past = await read_past(connection, now, windows) if windows else ()
            fastest = await fastest_group(connection, now)
        found = {metrics.FASTEST.name: fastest, **await self._ledger_check(levels, now)}
        moment = Moment(now, readings, past)
        for name, value in found.items():
            with_level(moment, name, value)
        return moment, found

    async def _ledger_check(self, levels: Mapping[str, float], now: datetime) -> dict[str, float]:
        """How far the books are off, found out every ten minutes: it counts every letter."""
        checked = levels.get(metrics.CHECKED.name)
        if checked is not None and now.timestamp() - checked < _CHECK_EVERY.total_seconds():
            difference = levels.get(metrics.DIFFERENCE.name, 0.0)
        else:
            checked, difference = now.timestamp(), _difference(await self._books.audit())
        return {metrics.DIFFERENCE.name: difference, metrics.CHECKED.name: checked}

    async def forget_silences(self) -> None:
        """Remove silences that are over."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            await connection.execute(delete(redrive_silence).where(_SILENCE.until <= now))

    # To see and to silence

    async def all(self) -> list[AlertOf]:
        """Every alert that was ever judged and still is, by name."""
        async with self._database.reading() as connection:
            return await _read_alerts(connection)

    async def silences(self) -> dict[str, Silence]:
        """The silences that last."""
        async with self._database.reading() as connection:
            return await _silences(connection, await self._clock.now(connection))

    async def silence(self, alert: str, lasts: timedelta, reason: str, by: str) -> Silence:
        """Tell nobody of an alert for a while, from now on."""
        dialect: Any = sqlite if self._database.is_sqlite else postgresql
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            row = {"until": now + lasts, "reason": reason, "created_at": now, "created_by": by}
            await connection.execute(
                dialect.insert(redrive_silence)
                .values(alert=alert, **row)
                .on_conflict_do_update(index_elements=["alert"], set_=row)
            )
        return Silence(alert=alert, until=now + lasts, reason=reason, created_at=now, created_by=by)

    async def end_silence(self, alert: str) -> bool:
        """Whether there was one."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            gone = await connection.execute(
                delete(redrive_silence).where(_SILENCE.alert == alert).returning(_SILENCE.until)
            )
            until = gone.scalar_one_or_none()
        return until is not None and until > now

    async def at_fault(self) -> tuple[datetime, tuple[GroupAtFault, ...]]:
        """The time, and the three largest groups."""
        async with self._database.reading() as connection:
            return await self._clock.now(connection), await _at_fault(connection)


class _Round:
    """All alerts, judged once, in one transaction."""

    def __init__(self, connection: AsyncConnection, moment: Moment, judging: Judging) -> None:
        self._connection = connection
        self._moment = moment
        self._judging = judging
        self._told: list[tuple[Rule, Telling, Standing]] = []
        self._refreshed: list[tuple[Rule, Standing]] = []
        self._gone: list[AlertOf] = []

    async def judge(self) -> list[Told]:
        now = self._moment.now
        before = {each.name: each for each in await _read_alerts(self._connection)}
        silenced = await _silences(self._connection, now)
        rows: list[dict[str, Any]] = []
        for rule in self._judging.rules:
            known = before.pop(rule.name, None)
            standing = known.standing if known else Standing(since=now)
            after, telling = advance(
                standing,
                rule,
                holds=rule.condition.holds(self._moment),
                silenced=rule.name in silenced,
                now=now,
            )
            rows.append(self._row(rule, after))
            if telling is not None:
                # A resolved alert is told with the time that it fired from.
                shown = standing if telling is Telling.RESOLVED else after
                self._told.append((rule, telling, shown))
            elif after.told_at is not None:
                # During a silence too: who is not told again takes it for resolved.
                self._refreshed.append((rule, after))
        await self._write(sorted(rows, key=lambda row: str(row["name"])))
        for gone in before.values():
            if now - gone.updated_at > _ABANDONED:
                await self._forget(gone)
        return await self._tell()

    async def _forget(self, gone: AlertOf) -> None:
        """An alert whose rule is gone. Who was told that it fires is told that it is resolved."""
        await self._connection.execute(delete(redrive_alert).where(_ALERT.name == gone.name))
        if gone.standing.told_at is not None:
            self._gone.append(gone)

    def _row(self, rule: Rule, after: Standing) -> dict[str, Any]:
        return {
            "name": rule.name,
            "severity": rule.severity.value,
            "phase": after.phase.value,
            "since": after.since,
            "told_at": after.told_at,
            "value": rule.condition.value(self._moment),
            "updated_at": self._moment.now,
        }

    async def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        if not rows:
            return
        dialect: Any = sqlite if self._connection.dialect.name == "sqlite" else postgresql
        insert = dialect.insert(redrive_alert).values(rows)
        changed = {name: insert.excluded[name] for name in rows[0] if name != "name"}
        await self._connection.execute(
            insert.on_conflict_do_update(index_elements=["name"], set_=changed)
        )

    async def _tell(self) -> list[Told]:
        refresh = self._refreshed if step_of(self._moment.now) % 4 == 0 else []
        if not self._told and not self._gone and not (refresh and self._judging.refreshed):
            return []
        groups = await _at_fault(self._connection)
        told = []
        for rule, telling, standing in self._told:
            one = self._message(rule, telling, standing, groups)
            told.append(one)
            await self._add(one, [sink for sink in self._judging.sinks if rule.tells(sink)])
        for rule, standing in refresh:
            one = self._message(rule, Telling.STILL_FIRING, standing, groups)
            sinks = [sink for sink in self._judging.refreshed if rule.tells(sink)]
            await self._add(one, sinks)
        for gone in self._gone:
            one = self._farewell(gone)
            told.append(one)
            knowing = await sinks_told(self._connection, gone.name)
            sinks = [sink for sink in self._judging.sinks if sink in knowing]
            await self._add(one, sinks or self._judging.sinks)
        return told

    def _farewell(self, gone: AlertOf) -> Told:
        return Told(
            alert=gone.name,
            telling=Telling.RESOLVED,
            severity=gone.severity,
            summary=_GONE,
            condition="",
            value=gone.value,
            since=gone.standing.since,
            at=self._moment.now,
        )

    def _message(
        self,
        rule: Rule,
        telling: Telling,
        standing: Standing,
        groups: tuple[GroupAtFault, ...],
    ) -> Told:
        return Told(
            alert=rule.name,
            telling=telling,
            severity=rule.severity,
            summary=rule.summary,
            condition=rule.condition.text,
            value=rule.condition.value(self._moment),
            since=standing.since,
            at=self._moment.now,
            groups=groups,
        )

    async def _add(self, told: Told, sinks: Collection[str]) -> None:
        """A message to each sink; none that says again what one that still waits says."""
        if told.telling is Telling.STILL_FIRING:
            busy = await sinks_with_messages(self._connection, told.alert)
            sinks = [sink for sink in sinks if sink not in busy]
        for sink in sinks:
            document = {"id": self._judging.new_id(told.at), **self._judging.document(told)}
            await add_message(self._connection, told, sink, document)


def _difference(audit: Audit) -> float:
    ledger = audit.ledger
    unplaced = abs(ledger.received - sum(ledger.states.values()) - ledger.deleted)
    return float(
        unplaced
        + sum(abs(ledger.states.get(state, 0) - number) for state, number in audit.rows.items())
    )


async def _read_alerts(connection: AsyncConnection) -> list[AlertOf]:
    rows = (await connection.execute(select(redrive_alert).order_by(_ALERT.name))).all()
    return [
        AlertOf(
            row.name,
            Severity(row.severity),
            Standing(phase=Phase(row.phase), since=row.since, told_at=row.told_at),
            row.value,
            row.updated_at,
        )
        for row in rows
    ]


async def _silences(connection: AsyncConnection, now: datetime) -> dict[str, Silence]:
    query = select(redrive_silence).where(_SILENCE.until > now)
    return {
        row.alert: Silence(
            alert=row.alert,
            until=row.until,
            reason=row.reason,
            created_at=row.created_at,
            created_by=row.created_by,
        )
        for row in (await connection.execute(query)).all()
    }


async def _at_fault(connection: AsyncConnection) -> tuple[GroupAtFault, ...]:
    """The three groups with the most open letters, from the books."""
    ledger, group = redrive_ledger.c, redrive_group.c
    letters = func.sum(ledger.delta)
    largest = (
        select(ledger.fingerprint, letters.label("letters"))
        .where(ledger.account.in_([state.value for state in OPEN_STATES]))
        .group_by(ledger.fingerprint)
        .having(letters > 0)
        .order_by(letters.desc(), ledger.fingerprint)
        .limit(_AT_FAULT)
        .subquery()
    )
    query = (
        select(redrive_group, largest.c.letters)
        .join(largest, largest.c.fingerprint == group.fingerprint)
        .order_by(largest.c.letters.desc(), group.fingerprint)
    )
    return tuple(
        GroupAtFault(
            fingerprint=row.fingerprint,
            error_type=row.error_type,
            reason=row.reason,
            queue=row.queue,
            letters=int(row.letters),
        )
        for row in (await connection.execute(query)).all()
    )
