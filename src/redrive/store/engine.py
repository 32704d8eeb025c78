"""Databases: opened from the URLs that people write, SQLite and PostgreSQL behind one face.

Guarantees:

- A `postgresql://` URL goes to libpq as it is: several hosts, sockets, `sslmode` and the rest work.
- On SQLite a writing transaction begins with `BEGIN IMMEDIATE`: one that reads first and writes
  then would fail at once under contention, whatever the busy timeout. The writers of a process take
  turns, in their order; SQLite itself lets those who wait try in no order, and some for too long.
  What is committed survives a power cut (WAL with `synchronous=FULL`).
- Nothing is committed to a SQLite file that is not at its path any more.
- A SQLite store is private: its file is made with mode 0600, its folder with 0700. WAL files take
  the mode of the database. A database that is not ours is neither made nor switched to WAL.
- A store on a file system that is mounted read-only can be read.
- A query of PostgreSQL (14 and later) ends within seconds when its client is gone.
- No exception of SQLAlchemy or a driver leaves `reading` and `writing` as itself.

A connection that the server has dropped is found out when it is taken from the pool, and replaced.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from weakref import WeakKeyDictionary, WeakValueDictionary

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import BytesBinaryDumper
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from redrive.domain.masking import mask_url
from redrive.errors import StoreUnreachable
from redrive.store.failures import translated

_BUSY_SECONDS: Final = 10.0
"""How long a writer of SQLite waits for another."""
_CHECKPOINT_PAGES: Final = 4_000
"""Of 4 KiB: how much a WAL grows before it is written into the database. An index's page that is
changed by a thousand letters is then written once, not four times."""
_CACHE_KIB: Final = 16_000
"""Of a connection; indexes over random keys are written all over."""
_LIBPQ_DEFAULTS: Final = {
    "connect_timeout": "5",
    "application_name": "redrive",
    # A peer that is gone without a word is noticed in 15 s instead of 15 minutes.
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "15000",
}
_LOOKS_FOR_ITS_CLIENT: Final = "5s"
"""How often PostgreSQL looks amid a query whether anybody waits for it. A request to cancel that
overtakes its query is ignored, and the query would run to its end for nobody, with its locks."""
_LOOKS_FOR_ITS_CLIENT_SINCE: Final = 14_00_00
_WRITES: Final = "redrive_writes"
_Turns: TypeAlias = WeakValueDictionary[str, asyncio.Lock]
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()
"""By loop and file: several stores of a process may be open on one file."""


class Database:
    """One database; `reading()` and `writing()` are its transactions."""

    def __init__(self, url: str, engine: AsyncEngine, path: Path | None, *, ours: bool) -> None:
        self.shown = mask_url(url)
        self._setting = _setting(ours)
        self.path = path
        """The file of a SQLite database; None for PostgreSQL."""
        self._engine = engine
        self._file = None if path is None else _file_at(path)

    @property
    def is_sqlite(self) -> bool:
        return self.path is not None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads; on SQLite, one state of the database throughout."""
        with translated(self.shown, setting=self._setting):
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes; committed when the block ends, undone when it raises."""
        with translated(self.shown, writing=True, setting=self._setting):
            async with self._turn():
                await self._forget_another_file()
                async with self._engine.connect() as connection:
                    await connection.execution_options(**{_WRITES: True})
                    async with connection.begin():
                        yield connection
                        self._require_its_file()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """The writers of a SQLite file that run in this loop, one after the other."""
        if self.path is None:
            yield
            return
        turns = _TURNS.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        turn = turns.setdefault(str(self.path.absolute()), asyncio.Lock())
        try:
            async with asyncio.timeout(_BUSY_SECONDS):
                await turn.acquire()
        except TimeoutError:
            raise StoreUnreachable(
                f"{self.shown}: another change of this process takes long", remedy="try again"
            ) from None
        try:
            yield
        finally:
            turn.release()

    def _require_its_file(self) -> None:
        """What is committed to a file that was deleted or replaced meanwhile is nowhere."""
        if self.path is not None and _file_at(self.path) != self._file:
            raise StoreUnreachable(
                f"{self.shown}: the file was deleted or replaced meanwhile",
                remedy=f"check {self._setting}, and try again",
            )

    async def _forget_another_file(self) -> None:
        """Let go of a file that is not at its path any more, and take the one that is."""
        if self.path is not None and (found := _file_at(self.path)) != self._file:
            await self._engine.dispose()
            self._file = found

    async def close(self) -> None:
        """Close every connection of the pool. Safe to call twice."""
        await self._engine.dispose()


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file is at a path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_database(url: str, *, ours: bool) -> Database:
    """A database by its URL; nothing is connected yet. `ours`: a missing SQLite file is made."""
    if not url.startswith("sqlite"):
        return Database(url, _postgres_engine(url, _setting(ours)), None, ours=ours)
    parts = make_url(url)
    path = Path(parts.database or "")
    if ours:
        _make_private(path, mask_url(url))
    mode = "ro" if parts.query.get("mode") == "ro" else "rw"
    return Database(url, _sqlite_engine(path, mode, ours=ours), path, ours=ours)


def _setting(ours: bool) -> str:
    """Which one to check when a database cannot be reached."""
    return "[store] url" if ours else "[policy_table] url"


# PostgreSQL


def _postgres_engine(url: str, setting: str) -> AsyncEngine:
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        # Its text quotes what it could not read, which may be the password.
        raise StoreUnreachable(
            f"{mask_url(url)}: {_why_unreadable(url)}", remedy=f"check {setting}"
        ) from None
    parameters: dict[str, Any] = {**_LIBPQ_DEFAULTS, **given}

    async def connect() -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(**parameters)
        # Else a COPY takes bytes by way of the dumper of the DB API's `Binary`, which is Python's.
        connection.adapters.register_dumper(bytes, BytesBinaryDumper)
        try:
            await _let_it_look_for_its_client(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    return create_async_engine(
        "postgresql+psycopg://",
        async_creator=connect,
        pool_pre_ping=True,
        hide_parameters=True,
    )


def _why_unreadable(url: str) -> str:
    """What libpq says of a URL that it does not take, as far as that is no part of a password."""
    try:
        conninfo_to_dict(mask_url(url))
    except psycopg.Error as error:
        return " ".join(str(error).split())
    return "its password cannot be read; write special characters of it percent-encoded, % as %25"


async def _let_it_look_for_its_client(connection: psycopg.AsyncConnection[Any]) -> None:
    if connection.info.server_version < _LOOKS_FOR_ITS_CLIENT_SINCE:
        return
    try:
        await connection.execute(
            f"SET client_connection_check_interval = '{_LOOKS_FOR_ITS_CLIENT}'"
        )
    except psycopg.errors.InvalidParameterValue:
        # Not on every system that PostgreSQL runs on can it look.
        await connection.rollback()
    else:
        await connection.commit()


# SQLite


def _sqlite_engine(path: Path, mode: str, *, ours: bool) -> AsyncEngine:
    read_only = ours and is_read_only(path)
    engine = create_async_engine(
        URL.create(
            "sqlite+aiosqlite",
            database=sqlite_uri(path, mode, read_only=read_only),
            query={"uri": "true"},
        ),
        # Without isolation_level the driver begins no transaction of its own; `_begin` does.
        connect_args={"isolation_level": None, "timeout": _BUSY_SECONDS},
        poolclass=AsyncAdaptedQueuePool,
        hide_parameters=True,
    )

    def set_up(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        if ours:
            cursor.execute("PRAGMA synchronous = FULL")
            # A statement of many rows keeps a journal, which would go to a temporary folder: there
            # may be none that can be written.
            cursor.execute("PRAGMA temp_store = MEMORY")
            cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            cursor.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
            cursor.execute("PRAGMA journal_mode")
            # Switching needs the database to itself: only the first connection ever does it.
            if cursor.fetchone()[0] != "wal" and not read_only:
                cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()

    event.listen(engine.sync_engine, "connect", set_up)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def sqlite_uri(path: Path, mode: str, *, read_only: bool) -> str:
    """A file as SQLite is told of it. `read_only`: its file system is.

    There SQLite reads a database in WAL mode only if the files of its WAL are there, or if told
    that nobody changes it. It is not told so beside a WAL or a journal, which belong to the data.
    """
    file = path.resolve()  # SQLite, too, looks beside what a link leads to
    beside = (file.with_name(file.name + end) for end in ("-wal", "-journal"))
    whole = read_only and not any(each.exists() for each in beside)
    return f"file:{quote(str(path.absolute()))}?mode={mode}" + ("&immutable=1" if whole else "")


def is_read_only(path: Path) -> bool:
    """Whether a file is on a file system that is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _make_private(path: Path, shown: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Never opened when it exists: closing it would drop the locks that SQLite holds on it.
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreUnreachable(f"{shown}: cannot be made: {error.strerror}") from error


@contextmanager
def sqlite_lock(path: Path) -> Iterator[None]:
    """One process at a time sets up or upgrades a file; the lock ends with its holder. Blocks."""
    lock = path.with_name(path.name + ".lock")
    try:
        file = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnreachable(
            f"{lock}: cannot be made: {error.strerror}",
            remedy="copy the store to a folder that can be written, and set [store] url to it",
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
