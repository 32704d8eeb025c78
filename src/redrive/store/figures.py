"""All metrics at one moment, read from the store: whatever process counted them.

Nothing is scanned: letters come from the books, which are a few rows for each group, counts from
their own sums, ages from the ends of an index. What takes longer (the books against the letters,
the group that grows fastest) the janitor finds out now and then, and leaves in its samples.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Final

from sqlalchemy import func, literal_column, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.alerting import Phase
from redrive.domain.breaker import Position, read_breaker
from redrive.domain.lifecycle import OPEN_STATES, State
from redrive.domain.metrics import COUNTED, Kind, Readings, Samples, fold, histogram_of
from redrive.store.clock import DatabaseClock
from redrive.store.counts import read_processes, sum_counts
from redrive.store.engine import Database
from redrive.store.schema import (
    DELETED,
    RECEIVED,
    RETURNED,
    redrive_alert,
    redrive_breaker,
    redrive_group,
    redrive_ledger,
    redrive_letter,
    redrive_sample,
)

_LETTER: Final = redrive_letter.c
_LEDGER: Final = redrive_ledger.c
_OF_BOOKS: Final = {
    RECEIVED: metrics.RECEIVED.name,
    RETURNED: metrics.RETURNED.name,
    DELETED: metrics.DELETED.name,
}
_LEFT_BY_THE_JANITOR: Final = (
    metrics.FASTEST.name,
    metrics.DIFFERENCE.name,
    metrics.CHECKED.name,
)


class Figures:
    """Reads the metrics."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def read(self) -> Readings:
        """Every metric that is known; what only the process itself knows is not among them."""
        found = Readings()
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
            await _read_books(connection, found)
            await _read_counts(connection, found)
            await _read_ages(connection, now, found)
            await _read_breakers(connection, found)
            await _read_processes(connection, now, found)
            await _read_alerts(connection, found)
        return found


async def _read_books(connection: AsyncConnection, found: Readings) -> None:
    group = redrive_group.c
    query = (
        select(group.queue, group.error_type, _LEDGER.account, func.sum(_LEDGER.delta))
        .select_from(redrive_ledger)
        .join(redrive_group, group.fingerprint == _LEDGER.fingerprint)
        .group_by(group.queue, group.error_type, _LEDGER.account)
    )
    states = {state.value: state for state in State}
    totals: Counter[str] = Counter()
    by_queue: dict[State, Counter[str]] = {state: Counter() for state in State}
    by_type: Counter[str] = Counter()
    for queue, error_type, account, number in (await connection.execute(query)).all():
        state = states.get(account)
        if state is None:
            totals[account] += int(number)
            continue
        by_queue[state][metrics.UNKNOWN if queue is None else queue] += int(number)
        if state in OPEN_STATES:
            by_type[error_type] += int(number)
    for account, name in _OF_BOOKS.items():
        found.values[name] = {(): totals[account]}
    open_by_queue: Counter[str] = sum((by_queue[state] for state in OPEN_STATES), Counter())
    named = metrics.most_frequent(+open_by_queue)
    folded = {state: fold(numbers, named) for state, numbers in by_queue.items()}
    found.values[metrics.LETTERS.name] = {
        (state.word, queue): folded[state].get(queue, 0)
        for state in State
        for queue in (*named, metrics.OTHER)
    }
    types = {metrics.OTHER: 0, **fold(+by_type, metrics.most_frequent(+by_type))}
    found.values[metrics.OPEN.name] = {(name,): number for name, number in types.items()}
    groups = await connection.execute(select(func.count()).select_from(redrive_group))
    found.values[metrics.GROUPS.name] = {(): groups.scalar_one()}


async def _read_counts(connection: AsyncConnection, found: Readings) -> None:
    sums = await sum_counts(connection)
    for name, metric in COUNTED.items():
        counts = sums.get(name, {})
        if metric.kind is Kind.HISTOGRAM:
            found.histograms[name] = histogram_of(metric, counts)
        elif metric.labels:
            known = dict.fromkeys(metric.always, 0) | counts
            found.values[name] = {(label,): number for label, number in known.items()}
        else:
            found.values[name] = {(): counts.get("", 0)}


async def _read_ages(connection: AsyncConnection, now: datetime, found: Readings) -> None:
    oldest = [
        select(literal_column(f"'{state.value}'").label("state"), _LETTER.created_at.label("at"))
        .where(
            _LETTER.id
            == select(_LETTER.id)
            .where(_LETTER.status == state.value)
            .order_by(_LETTER.id)
            .limit(1)
            .scalar_subquery()
        )
        .correlate(None)
        for state in State
    ]
    rows = (await connection.execute(union_all(*oldest))).all()
    found.values[metrics.OLDEST.name] = {
        (State(state).word,): max(0.0, (now - at).total_seconds()) for state, at in rows
    }


async def _read_breakers(connection: AsyncConnection, found: Readings) -> None:
    query = select(redrive_breaker.c.destination, redrive_breaker.c.value).order_by(
        redrive_breaker.c.destination
    )
    positions: Counter[str] = Counter({position.value: 0 for position in Position})
    held: list[str] = []
    for queue, value in (await connection.execute(query)).all():
        breaker = read_breaker(value)
        position = breaker.forced or breaker.state
        positions[position.value] += 1
        if position is Position.OPEN:
            held.append(queue)
    found.values[metrics.BREAKERS.name] = {(name,): count for name, count in positions.items()}
    found.values[metrics.BREAKER_OPEN.name] = {(queue,): 1 for queue in held[: metrics.MOST_NAMES]}


async def _read_processes(connection: AsyncConnection, now: datetime, found: Readings) -> None:
    processes = await read_processes(connection, now)
    seen = Counter(role for each in processes for role in each.roles)
    roles = dict.fromkeys(metrics.PROCESSES.always, 0) | seen
    found.values[metrics.PROCESSES.name] = {(role,): count for role, count in roles.items()}
    collecting = sum(each.levels.get(metrics.COLLECTING.name, 0) for each in processes)
    found.values[metrics.COLLECTING.name] = {(): collecting}


async def _read_alerts(connection: AsyncConnection, found: Readings) -> None:
    alert = redrive_alert.c
    query = select(alert.name, alert.severity).where(alert.phase == Phase.FIRING.value)
    firing: Samples = {(row.name, row.severity): 1 for row in await connection.execute(query)}
    found.values[metrics.FIRING.name] = firing
    newest = select(redrive_sample.c.levels).order_by(redrive_sample.c.step.desc()).limit(1)
    levels = json.loads((await connection.execute(newest)).scalar_one_or_none() or "{}")
    for name in _LEFT_BY_THE_JANITOR:
        if name in levels:
            found.values[name] = {(): levels[name]}
