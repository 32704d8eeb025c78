"""Messages about alerts: written with the standing that they tell, then sent by one process.

A message is claimed with a lease, by one process at a time, in the order in which the messages of
an alert to a sink were made. It stays until the sink has taken it, or for three days; one more if
no process has such a sink. Killed between the sending and the note of it, it is sent again, with
the same id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.alerting import Told
from redrive.store.clock import DatabaseClock
from redrive.store.counts import add_counts
from redrive.store.engine import Database
from redrive.store.schema import redrive_alert_message

_MESSAGE: Final = redrive_alert_message.c
_KEPT: Final = timedelta(days=1)
_GIVEN_UP: Final = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A message that this process is to send."""

    id: str
    alert: str
    sink: str
    document: dict[str, Any]
    tries: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages that a sink has not taken yet."""

    sink: str
    messages: int
    error: str


async def add_message(
    connection: AsyncConnection, told: Told, sink: str, document: dict[str, Any]
) -> None:
    """A message to a sink, in the transaction of what it tells."""
    await connection.execute(
        redrive_alert_message.insert().values(
            id=document["id"],
            alert=told.alert,
            sink=sink,
            document=json.dumps(document),
            created_at=told.at,
            due_at=told.at,
            tries=0,
            error="",
        )
    )


async def sinks_with_messages(connection: AsyncConnection, alert: str) -> set[str]:
    """The sinks that have not taken every message of an alert yet."""
    query = select(_MESSAGE.sink).where(_MESSAGE.alert == alert, _MESSAGE.due_at.is_not(None))
    return set((await connection.execute(query)).scalars())


async def sinks_told(connection: AsyncConnection, alert: str) -> set[str]:
    """The sinks that have had a message of an alert lately, or are to have one."""
    query = select(_MESSAGE.sink).where(_MESSAGE.alert == alert).distinct()
    return set((await connection.execute(query)).scalars())


class AlertMessages:
    """The messages of the store."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def waiting(self) -> list[Waiting]:
        """The sinks that have not taken all messages, with why the oldest that failed did."""
        query = (
            select(_MESSAGE.sink, _MESSAGE.error)
            .where(_MESSAGE.due_at.is_not(None))
            .order_by(_MESSAGE.sink, _MESSAGE.id)
        )
        errors: dict[str, list[str]] = {}
        async with self._database.reading() as connection:
            for sink, error in (await connection.execute(query)).all():
                errors.setdefault(sink, []).append(error)
        return [
            Waiting(sink, len(found), next(filter(None, found), ""))
            for sink, found in errors.items()
        ]

    async def claim(self, worker: str, sink: str, lease: timedelta) -> Claimed | None:
        """A message to a sink that is due, for this process: the oldest of its alert."""
        earlier = redrive_alert_message.alias("earlier")
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
            due = select(_MESSAGE.id).where(_due(now, sink, lease)).limit(1)
            if (await connection.execute(due)).scalar_one_or_none() is None:
                return None
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            query = (
                select(redrive_alert_message)
                .where(
                    _due(now, sink, lease),
                    ~exists().where(
                        earlier.c.alert == _MESSAGE.alert,
                        earlier.c.sink == _MESSAGE.sink,
                        earlier.c.due_at.is_not(None),
                        earlier.c.id < _MESSAGE.id,
                    ),
                )
                .order_by(_MESSAGE.id)
                .limit(1)
                .with_for_update(skip_locked=True, of=redrive_alert_message)
            )
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return None
            await connection.execute(
                update(redrive_alert_message)
                .where(_MESSAGE.id == row.id)
                .values(locked_by=worker, locked_at=now)
            )
        return Claimed(
            row.id, row.alert, row.sink, json.loads(row.document), row.tries, row.created_at
        )

    async def sent(self, message: Claimed, worker: str) -> None:
        """A sink has taken a message."""
        await self._settle(message, worker, "sent", error="")

    async def failed(self, message: Claimed, worker: str, error: str, again_in: timedelta) -> bool:
        """A sink has not; it is tried again, unless it was for days. Whether it is given up by
        this process, which another may have taken it from."""
        async with self._database.reading() as connection:
            now = await self._clock.now(connection)
        give_up = now - message.created_at > _GIVEN_UP
        settled = await self._settle(
            message, worker, "failed", error=error, again_in=None if give_up else again_in
        )
        return give_up and settled

    async def _settle(
        self,
        message: Claimed,
        worker: str,
        outcome: str,
        *,
        error: str,
        again_in: timedelta | None = None,
    ) -> bool:
        """Note and count it; False if the lease was lost, and another process does."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            done = await connection.execute(
                update(redrive_alert_message)
                .where(_MESSAGE.id == message.id, _MESSAGE.locked_by == worker)
                .values(
                    sent_at=now if again_in is None else None,
                    due_at=None if again_in is None else now + again_in,
                    tries=message.tries + 1,
                    error=error[:1000],
                    locked_by=None,
                    locked_at=None,
                )
            )
            if done.rowcount:
                await add_counts(connection, {(metrics.ALERT_MESSAGES.name, outcome): 1})
        return bool(done.rowcount)

    async def forget(self) -> None:
        """Remove messages that were sent some time ago, and those to sinks that nobody has."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            await connection.execute(
                delete(redrive_alert_message).where(
                    or_(
                        _MESSAGE.sent_at < now - _KEPT,
                        _MESSAGE.created_at < now - _GIVEN_UP - _KEPT,
                    )
                )
            )


def _due(now: datetime, sink: str, lease: timedelta) -> ColumnElement[bool]:
    free = or_(_MESSAGE.locked_by.is_(None), _MESSAGE.locked_at <= now - lease)
    return and_(_MESSAGE.due_at.is_not(None), _MESSAGE.due_at <= now, _MESSAGE.sink == sink, free)
