"""The breakers of destinations, shared by all processes.

A destination without a row is one that has not failed lately. Rows are locked in one order by all
writers, and after the letters of a transaction, never before them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import and_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.breaker import (
    USUAL,
    Admission,
    Breaker,
    BreakerLimits,
    Position,
    read_breaker,
    write_breaker,
)
from redrive.domain.strategy import CONDITIONS_AGAIN
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import redrive_breaker

_BREAKER: Final = redrive_breaker.c

Place = tuple[str, str]
"""A vhost and a queue in it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """How many letters may go to a destination now; if none, when it is worth asking again."""

    how_many: Admission
    again_at: datetime

    @property
    def admitted(self) -> bool:
        return self.how_many is not Admission.NONE


@dataclass(frozen=True, slots=True)
class BreakerOf:
    """A breaker and what it is of."""

    vhost: str
    queue: str
    breaker: Breaker
    updated_at: datetime


class Breakers:
    """All breakers, to see and to force."""

    def __init__(
        self, database: Database, clock: DatabaseClock, limits: BreakerLimits = USUAL
    ) -> None:
        self._database = database
        self._clock = clock
        self.limits = limits

    async def all(self) -> list[BreakerOf]:
        """Those that have something to tell, by name."""
        query = select(redrive_breaker).order_by(_BREAKER.vhost, _BREAKER.destination)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [
            BreakerOf(
                row.vhost, row.destination, read_breaker(row.value, self.limits), row.updated_at
            )
            for row in rows
        ]

    async def force(self, vhost: str, queue: str, position: Position | None) -> Breaker:
        """Open or closed whatever happens; None: as it would be by itself."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            place = (vhost, queue)
            await _make(connection, place, now)
            breaker = await _lock(connection, place, self.limits)
            assert breaker is not None
            forced = breaker.release() if position is None else breaker.force(position)
            await _write(connection, place, forced, now)
            return forced


class Gate:
    """The breakers of some destinations, locked until the transaction ends: who may pass."""

    def __init__(
        self, connection: AsyncConnection, now: datetime, breakers: Mapping[Place, Breaker]
    ) -> None:
        self._connection = connection
        self._now = now
        self._breakers = dict(breakers)

    async def admit(self, place: Place) -> Admitted:
        """Ask for leave to send. Where only one letter is admitted, it is this one: whoever asks
        next has to wait for what becomes of it."""
        breaker = self._breakers.get(place)
        if breaker is None:
            return Admitted(Admission.ALL, self._now)
        how_many = breaker.admits(self._now)
        if how_many is Admission.ONE:
            self._breakers[place] = breaker.on_probe(self._now)
            await _write(self._connection, place, self._breakers[place], self._now)
        at = None if breaker.forced is not None else breaker.next_probe_at()
        again = self._now + CONDITIONS_AGAIN  # at the latest: a verdict may close it any moment
        return Admitted(how_many, min(max(at, self._now), again) if at else again)


async def gate_of(
    connection: AsyncConnection,
    places: Collection[Place],
    now: datetime,
    limits: BreakerLimits = USUAL,
) -> Gate:
    """Lock the breakers of all places that a transaction wants to send to, before it asks for the
    first: asked for one by one, two transactions could wait for each other."""
    found: dict[Place, Breaker] = {}
    for place in sorted(set(places)):
        breaker = await _lock(connection, place, limits)
        if breaker is not None:
            found[place] = breaker
    return Gate(connection, now, found)


async def note_failures(
    connection: AsyncConnection, failures: Mapping[Place, int], now: datetime
) -> None:
    """So many letters came back from each destination."""
    for place, number in sorted(failures.items()):
        await _make(connection, place, now)
        breaker = await _lock(connection, place, USUAL)
        assert breaker is not None
        await _write_change(connection, place, breaker, breaker.on_failure(now, number), now)


async def note_successes(
    connection: AsyncConnection, places: Collection[Place], now: datetime
) -> None:
    """Letters were consumed at each destination."""
    for place in sorted(places):
        breaker = await _read(connection, place)
        if breaker is None or breaker.on_success() == breaker:
            continue  # as it mostly is: nothing failed there
        locked = await _lock(connection, place, USUAL)
        if locked is not None:
            await _write_change(connection, place, locked, locked.on_success(), now)


async def _make(connection: AsyncConnection, place: Place, now: datetime) -> None:
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    vhost, queue = place
    await connection.execute(
        dialect.insert(redrive_breaker)
        .values(vhost=vhost, destination=queue, value=write_breaker(Breaker()), updated_at=now)
        .on_conflict_do_nothing()
    )


def _is(place: Place) -> Any:
    return and_(_BREAKER.vhost == place[0], _BREAKER.destination == place[1])


async def _read(connection: AsyncConnection, place: Place) -> Breaker | None:
    query = select(_BREAKER.value).where(_is(place))
    value = (await connection.execute(query)).scalar_one_or_none()
    return None if value is None else read_breaker(value)


async def _lock(connection: AsyncConnection, place: Place, limits: BreakerLimits) -> Breaker | None:
    query = select(_BREAKER.value).where(_is(place)).with_for_update()
    value = (await connection.execute(query)).scalar_one_or_none()
    return None if value is None else replace(read_breaker(value), limits=limits)


async def _write_change(
    connection: AsyncConnection, place: Place, before: Breaker, after: Breaker, now: datetime
) -> None:
    if after != before:
        await _write(connection, place, after, now)


async def _write(
    connection: AsyncConnection, place: Place, breaker: Breaker, now: datetime
) -> None:
    await connection.execute(
        update(redrive_breaker)
        .where(_is(place))
        .values(value=write_breaker(breaker), updated_at=now)
    )
