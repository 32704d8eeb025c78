"""Requests that may be sent twice: the answer of the first is the answer of the second.

Guarantees: of two requests with one key of one caller, in whatever processes, one is carried out.
A request that died without an answer stays under way until it is forgotten: nobody can tell what it
did.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import redrive_request

_REQUEST: Final = redrive_request.c
KEPT: Final = timedelta(hours=24)
"""How long an answer can be had again."""


@dataclass(frozen=True, slots=True)
class Known:
    """A request with this key that came before."""

    same: bool
    """Whether it asked for the same."""
    status: int | None
    """What it was answered with; None: nothing yet."""
    body: bytes


class Requests:
    """The requests of a store that were sent with a key."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, actor: str, key: str, digest: bytes) -> Known | None:
        """Begin a request; the one with this key that came before, if there is one."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            mine = (_REQUEST.actor == actor, _REQUEST.key == key)
            await connection.execute(
                delete(redrive_request).where(*mine, _REQUEST.at <= now - KEPT)
            )
            dialect: Any = sqlite if self._database.is_sqlite else postgresql
            made = await connection.execute(
                dialect.insert(redrive_request)
                .values(actor=actor, key=key, digest=digest, at=now)
                .on_conflict_do_nothing()
                .returning(_REQUEST.key)
            )
            if made.first() is not None:
                return None
            row = (await connection.execute(select(redrive_request).where(*mine))).one()
            return Known(row.digest == digest, row.status, row.body or b"")

    async def end(self, actor: str, key: str, status: int, body: bytes) -> None:
        """Keep the answer."""
        async with self._database.writing() as connection:
            await connection.execute(
                update(redrive_request)
                .where(_REQUEST.actor == actor, _REQUEST.key == key)
                .values(status=status, body=body)
            )

    async def drop(self, actor: str, key: str) -> None:
        """A request that changed nothing: it may be sent again."""
        async with self._database.writing() as connection:
            await connection.execute(
                delete(redrive_request).where(_REQUEST.actor == actor, _REQUEST.key == key)
            )

    async def forget(self) -> int:
        """Remove the answers that nobody can have any more; how many."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            gone = await connection.execute(
                delete(redrive_request).where(_REQUEST.at <= now - KEPT)
            )
            return gone.rowcount
