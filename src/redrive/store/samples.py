"""What the metrics were: every 15 s of the last day, so that alerts know rates.

Of several processes one writes each sample: whoever does also judges the alerts, in the same
transaction. A gap, while nobody took samples, stays a gap.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, select, union_all
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.ids import first_id
from redrive.domain.measures import COUNTERS, LONGEST_WINDOW, Moment, Past
from redrive.store.schema import redrive_letter, redrive_sample

STEP: Final = timedelta(seconds=15)
_SAMPLE: Final = redrive_sample.c
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_KEPT: Final = LONGEST_WINDOW + timedelta(minutes=10)
_NEWEST: Final = 5000
_FASTEST_OVER: Final = timedelta(minutes=5)


def step_of(moment: datetime) -> int:
    """The number of the step that a moment is in."""
    return (moment - _EPOCH) // STEP


async def newest_sample(connection: AsyncConnection) -> tuple[int, dict[str, float]]:
    """The step and the levels of the newest sample; -1 if there is none."""
    query = select(_SAMPLE.step, _SAMPLE.levels).order_by(_SAMPLE.step.desc()).limit(1)
    row = (await connection.execute(query)).one_or_none()
    return (-1, {}) if row is None else (row.step, json.loads(row.levels))


async def read_past(
    connection: AsyncConnection, now: datetime, windows: Iterable[timedelta]
) -> tuple[Past, ...]:
    """The samples on both sides of where each window begins, oldest first."""
    around = []
    for window in sorted(windows):
        at = step_of(now - window)
        before = select(func.max(_SAMPLE.step)).where(_SAMPLE.step <= at)
        after = select(func.min(_SAMPLE.step)).where(_SAMPLE.step > at)
        around += [before, after]
    steps = {step for step in (await connection.execute(union_all(*around))).scalars() if step}
    query = select(_SAMPLE.at, _SAMPLE.counters).where(_SAMPLE.step.in_(steps))
    rows = (await connection.execute(query.order_by(_SAMPLE.step))).all()
    return tuple(Past(row.at, json.loads(row.counters)) for row in rows)


async def add_sample(connection: AsyncConnection, moment: Moment, levels: dict[str, float]) -> bool:
    """Write the sample of this moment; False if another process has written the one of its step,
    or of a later one."""
    step = step_of(moment.now)
    if (await newest_sample(connection))[0] >= step:
        return False
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    counters = {name: counter.value(moment.readings) for name, counter in COUNTERS.items()}
    done = await connection.execute(
        dialect.insert(redrive_sample)
        .values(
            step=step,
            at=moment.now,
            counters=json.dumps(counters),
            levels=json.dumps(levels),
        )
        .on_conflict_do_nothing()
    )
    if not done.rowcount:
        return False
    await connection.execute(
        delete(redrive_sample).where(_SAMPLE.step < step_of(moment.now - _KEPT))
    )
    return True


async def fastest_group(connection: AsyncConnection, now: datetime) -> float:
    """Letters a second of the group that grows fastest: over five minutes, or over the time that
    the newest 5,000 letters took, if they are all younger."""
    letter = redrive_letter.c
    newest = (
        select(letter.fingerprint, letter.created_at)
        .where(letter.id >= first_id(now - _FASTEST_OVER))
        .order_by(letter.id.desc())
        .limit(_NEWEST)
        .subquery()
    )
    query = select(func.count(), func.min(newest.c.created_at)).group_by(newest.c.fingerprint)
    found = (await connection.execute(query)).all()
    if not found:
        return 0.0
    seconds = _FASTEST_OVER.total_seconds()
    if sum(number for number, _ in found) == _NEWEST:
        oldest = min(at for _, at in found)
        seconds = min(seconds, max(STEP, now - oldest).total_seconds())
    return float(max(number for number, _ in found) / seconds)


def with_level(moment: Moment, name: str, value: float) -> None:
    """Add a level, found out now or before, to the metrics of a moment."""
    moment.readings.values[name] = {(): value}
