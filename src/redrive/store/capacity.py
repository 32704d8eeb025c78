"""How much more the database takes: connections that are free.

Guarantees: on PostgreSQL the tightest of the limits that apply to this user counts (the server's,
the database's, the user's), without what is reserved for superusers. A superuser is taken for one
who leaves the reserve alone. SQLite has no such limit.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from redrive.store.engine import Database

# Who may not see another's session is not told its type, but that it is of a database: so are the
# server's own workers, which are no connections, but those are few and short.
_SPARE: Final = text(
    """
    WITH client AS (
        SELECT datid, usesysid FROM pg_stat_activity
        WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
    ), me AS (
        SELECT oid, rolsuper, rolconnlimit FROM pg_roles WHERE rolname = current_user
    ), here AS (
        SELECT oid, datconnlimit FROM pg_database WHERE datname = current_database()
    )
    SELECT least(
        current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true)::int, 0)
            - (SELECT count(*) FROM client),
        (SELECT CASE WHEN datconnlimit >= 0 AND NOT rolsuper THEN datconnlimit
            - (SELECT count(*) FROM client WHERE datid = here.oid) END FROM here, me),
        (SELECT CASE WHEN rolconnlimit >= 0 AND NOT rolsuper THEN rolconnlimit
            - (SELECT count(*) FROM client WHERE usesysid = me.oid) END FROM me)
    )
    """
)


class Capacity:
    """The limits of a store's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spare_connections(self) -> int | None:
        """How many more connections it takes; None where their number is not limited."""
        if self._database.is_sqlite:
            return None
        async with self._database.reading() as connection:
            return int((await connection.execute(_SPARE)).scalar_one())
