"""What SQLAlchemy and the drivers raise, turned into our own errors.

Guarantees: inside `translated` nothing of theirs escapes. The message is one line that begins with
the database's URL, its password masked. Who is cancelled stays cancelled: a library that fails as
it tidies up after a cancellation would hide it, and what should end would try again instead.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from redrive.domain.masking import mask_text
from redrive.errors import (
    SchemaMissing,
    StoreError,
    StoreReadOnly,
    StoreRefused,
    StoreUnreachable,
)

# Classes of SQLSTATE: connection lost, not let in, no such database, no room, being shut down.
_UNREACHABLE = ("08", "28", "3D", "53", "57P")
_NO_RIGHT = {"42501", "25006"}
# Not this value: too long, not allowed, more than an index takes, more than a row can have.
_REFUSED = ("22", "23", "54")
_NOT_THERE = {"42P01", "42703", "3F000"}
_CHECK = "check {setting}, and that the database runs"
_SQLITE_UNREACHABLE = ("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_IOERR")
_SQLITE_NO_RIGHT = ("SQLITE_READONLY", "SQLITE_PERM")
_SQLITE_REFUSED = ("SQLITE_CONSTRAINT", "SQLITE_TOOBIG", "SQLITE_MISMATCH")
_SQLITE_REMEDIES = {
    "SQLITE_CANTOPEN": "check {setting}, and that the file and its folder can be read and written;"
    " if they cannot, copy the file, and the -wal file if there is one, to a folder that can",
    "SQLITE_READONLY": "grant this user the right to write the file and its folder; if their file"
    " system is read-only, copy the file to a folder that can be written, and set {setting} to it",
    "SQLITE_CORRUPT": "restore a backup of the file, without the -wal and -shm files of this one",
    "SQLITE_NOTADB": "check {setting}; if that is the right file, restore a backup of it",
    "SQLITE_BUSY": "another process holds the database: try again, or use PostgreSQL for several",
    "SQLITE_IOERR": "look whether the disk is full, or broken",
    "SQLITE_FULL": "make room on the disk; nothing was changed",
}


@contextmanager
def translated(
    database: str, *, writing: bool = False, setting: str = "[store] url"
) -> Iterator[None]:
    """Turn what the libraries raise inside into a StoreError that names `database`.

    `setting` is the one that led to it.
    """
    before = _cancellations()
    try:
        yield
    except (SQLAlchemyError, psycopg.Error, sqlite3.Error) as error:
        if _cancellations() > before:
            raise asyncio.CancelledError from error
        if isinstance(error, SQLAlchemyError) and not isinstance(error, DBAPIError):
            raise StoreError(f"{database}: {_line(error)}") from error
        cause = error.orig if isinstance(error, DBAPIError) else None
        raise _translate(database, cause or error, writing, setting) from error


def _cancellations() -> int:
    """How often who runs this was asked to end; a thread is never."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return 0 if task is None else task.cancelling()


def _translate(database: str, error: BaseException, writing: bool, setting: str) -> StoreError:
    message = f"{database}: {_line(error)}"
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(message, error, setting)
    state = (getattr(error, "sqlstate", None) or "") if isinstance(error, psycopg.Error) else ""
    if state.startswith(_UNREACHABLE) or (
        not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    ):
        return StoreUnreachable(message, remedy=_CHECK.format(setting=setting))
    if state in _NO_RIGHT and writing:
        return StoreReadOnly(message)
    if state.startswith(_REFUSED) or isinstance(error, psycopg.DataError):
        return StoreRefused(message)
    if state in _NOT_THERE:
        return SchemaMissing(message)
    remedy = "grant this user the right to read it" if state in _NO_RIGHT else ""
    return StoreError(message, remedy=remedy)


def _of_sqlite(message: str, error: sqlite3.Error, setting: str) -> StoreError:
    name: str = getattr(error, "sqlite_errorname", "") or ""
    remedies = (each for prefix, each in _SQLITE_REMEDIES.items() if name.startswith(prefix))
    remedy = next(remedies, "").format(setting=setting)
    if name.startswith(_SQLITE_UNREACHABLE):
        return StoreUnreachable(message, remedy=remedy or _CHECK.format(setting=setting))
    if name.startswith(_SQLITE_NO_RIGHT):
        return StoreReadOnly(message, remedy=remedy)
    if name.startswith(_SQLITE_REFUSED) or isinstance(error, sqlite3.DataError):
        return StoreRefused(message)
    if name == "SQLITE_ERROR" and "no such" in message:
        return SchemaMissing(message)
    return StoreError(message, remedy=remedy)


def _line(error: BaseException) -> str:
    return mask_text(" ".join(str(error).split())) or type(error).__name__
