"""Who may log in: users, tokens and sessions.

Guarantees: nothing here can be used to log in by who reads the database: passwords are hashed by
who hands them over, tokens and sessions are looked up by a digest. Who is deleted or revoked is out
with the next request, in every process. Times are the database's.

The last admin among the users stays an admin, also when two are deleted at once; and the last user
or token stays, if there is no other of either: without anybody to log in, a server on loopback asks
nobody to.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from sqlalchemy import delete, exists, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.access import Role, Session, Token, User
from redrive.errors import LastOneRefused
from redrive.store.clock import DatabaseClock
from redrive.store.engine import Database
from redrive.store.schema import redrive_session, redrive_token, redrive_user

_USER: Final = redrive_user.c
_TOKEN: Final = redrive_token.c
_SESSION: Final = redrive_session.c


class Access:
    """The users, tokens and sessions of a store."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def anybody(self) -> bool:
        """Whether there is a user, or a token that may still be used."""
        query = select(
            or_(
                exists(select(_USER.name)),
                exists(select(_TOKEN.id).where(_TOKEN.revoked_at.is_(None))),
            )
        )
        async with self._database.reading() as connection:
            return bool((await connection.execute(query)).scalar_one())

    # Users

    async def set_user(self, name: str, role: Role, password: str | None) -> bool:
        """Add a user, or change one; whether it is new. `password` is a hash; None: as it was.
        Who is changed has to log in again. `LastOneRefused` if no user would be admin any more."""
        async with self._database.writing() as connection:
            await _require_another(connection, name, role)
            values: dict[str, Any] = {"role": role.value}
            if password is not None:
                values["password"] = password
            changed = await connection.execute(
                update(redrive_user).where(_USER.name == name).values(values)
            )
            if changed.rowcount:
                await connection.execute(delete(redrive_session).where(_SESSION.user_name == name))
                return False
            if password is None:
                raise LookupError(name)
            now = await self._clock.now(connection)
            await connection.execute(
                insert(redrive_user).values(name=name, created_at=now, **values)
            )
            return True

    async def user(self, name: str) -> User | None:
        async with self._database.reading() as connection:
            query = select(redrive_user).where(_USER.name == name)
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else _read_user(row)

    async def users(self) -> list[User]:
        """All of them, by name."""
        async with self._database.reading() as connection:
            rows = await connection.execute(select(redrive_user).order_by(_USER.name))
            return [_read_user(row) for row in rows.mappings()]

    async def delete_user(self, name: str) -> bool:
        """Whether there was one. Who is deleted is logged out. `LastOneRefused` as above."""
        async with self._database.writing() as connection:
            await _require_another(connection, name, None)
            await connection.execute(delete(redrive_session).where(_SESSION.user_name == name))
            gone = await connection.execute(delete(redrive_user).where(_USER.name == name))
            return bool(gone.rowcount)

    # Tokens

    async def add_token(
        self,
        token_id: str,
        digest: bytes,
        *,
        name: str,
        role: Role,
        by: str,
        lasts: timedelta | None,
    ) -> Token:
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            token = Token(
                id=token_id,
                name=name,
                role=role,
                created_at=now,
                created_by=by,
                expires_at=None if lasts is None else now + lasts,
            )
            await connection.execute(
                insert(redrive_token).values(
                    id=token.id,
                    name=token.name,
                    role=token.role.value,
                    digest=digest,
                    created_at=now,
                    created_by=by,
                    expires_at=token.expires_at,
                )
            )
        return token

    async def token(self, digest: bytes) -> Token | None:
        """A token that may be used now."""
        async with self._database.reading() as connection:
            query = select(redrive_token).where(_TOKEN.digest == digest)
            row = (await connection.execute(query)).mappings().one_or_none()
            if row is None:
                return None
            token = _read_token(row)
            return token if token.is_valid(await self._clock.now(connection)) else None

    async def tokens(self) -> list[Token]:
        """All of them, newest first, revoked ones too."""
        async with self._database.reading() as connection:
            rows = await connection.execute(select(redrive_token).order_by(_TOKEN.id.desc()))
            return [_read_token(row) for row in rows.mappings()]

    async def revoke(self, token_id: str) -> Token | None:
        """The token, which cannot be used any more; None if there is none of that id.
        `LastOneRefused` if nobody could log in any more."""
        async with self._database.writing() as connection:
            await _require_somebody_else(connection, token_id)
            now = await self._clock.now(connection)
            await connection.execute(
                update(redrive_token)
                .where(_TOKEN.id == token_id, _TOKEN.revoked_at.is_(None))
                .values(revoked_at=now)
            )
            query = select(redrive_token).where(_TOKEN.id == token_id)
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else _read_token(row)

    # Sessions

    async def begin(self, digest: bytes, user: str, csrf: str, lasts: timedelta) -> None:
        """Somebody has logged in."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            await connection.execute(
                insert(redrive_session).values(
                    digest=digest, user_name=user, csrf=csrf, expires_at=now + lasts
                )
            )

    async def session(self, digest: bytes) -> Session | None:
        """A session that goes on, with the role that its user has now."""
        query = (
            select(_SESSION.user_name, _USER.role, _SESSION.csrf, _SESSION.expires_at)
            .join(redrive_user, _USER.name == _SESSION.user_name)
            .where(_SESSION.digest == digest)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
            if row is None or row.expires_at <= await self._clock.now(connection):
                return None
        return Session(
            user=row.user_name, role=Role(row.role), csrf=row.csrf, expires_at=row.expires_at
        )

    async def end(self, digest: bytes) -> None:
        """Log out. Nothing happens if there is no such session."""
        async with self._database.writing() as connection:
            await connection.execute(delete(redrive_session).where(_SESSION.digest == digest))

    async def forget(self) -> int:
        """Remove the sessions that have ended by themselves; how many."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            gone = await connection.execute(
                delete(redrive_session).where(_SESSION.expires_at <= now)
            )
            return gone.rowcount


async def _require_another(connection: AsyncConnection, name: str, role: Role | None) -> None:
    """`LastOneRefused` if a user cannot do without that one; `role` is what they get, None: they
    go."""
    roles = await _locked_roles(connection)
    had = roles.pop(name, None)
    if had is Role.ADMIN and role is not Role.ADMIN and Role.ADMIN not in roles.values():
        raise LastOneRefused(f"{name!r} is the last user who is admin")
    if had is not None and role is None and not roles and not await _locked_tokens(connection):
        raise LastOneRefused(f"{name!r} is the last who can log in")


async def _require_somebody_else(connection: AsyncConnection, token_id: str) -> None:
    """`LastOneRefused` if nobody could log in without that token."""
    users, tokens = await _locked_roles(connection), await _locked_tokens(connection)
    if not users and tokens.keys() == {token_id}:
        raise LastOneRefused(
            f"token {tokens[token_id]!r} is the last that is not revoked, and there is no user",
            remedy="make a user or another token first, with 'redrive user set NAME --role admin', "
            "'redrive token create NAME --role ROLE' or the API",
        )


# The rows are locked, so that two who go at once come one after the other, and the second finds out
# that it is the last. Always users before tokens: in one order nobody waits in a circle.


async def _locked_roles(connection: AsyncConnection) -> dict[str, Role]:
    """Every user's role, by name."""
    locked = select(_USER.name, _USER.role).order_by(_USER.name).with_for_update()
    return {row.name: Role(row.role) for row in await connection.execute(locked)}


async def _locked_tokens(connection: AsyncConnection) -> dict[str, str]:
    """The names of the tokens that are not revoked, by id."""
    usable = select(_TOKEN.id, _TOKEN.name).where(_TOKEN.revoked_at.is_(None))
    locked = usable.order_by(_TOKEN.id).with_for_update()
    return {row.id: row.name for row in await connection.execute(locked)}


def _read_user(row: Any) -> User:
    return User(
        name=row["name"],
        role=Role(row["role"]),
        password=row["password"],
        created_at=row["created_at"],
    )


def _read_token(row: Any) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        created_at=row["created_at"],
        created_by=row["created_by"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )
