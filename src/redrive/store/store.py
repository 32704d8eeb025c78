"""The store, whole: what is kept of letters, groups and books, behind one door."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from redrive.domain.masking import mask_url
from redrive.errors import StoreUnreachable
from redrive.store.books import Books
from redrive.store.engine import Database
from redrive.store.groups import Groups
from redrive.store.letters import Letters
from redrive.store.upgrade import open_store


@dataclass(frozen=True, slots=True)
class Store:
    """Letters, their groups, and the books. Made by `open_letter_store`."""

    database: Database
    letters: Letters
    groups: Groups
    books: Books

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        await self.database.close()


async def open_letter_store(url: str, *, make: bool = True) -> Store:
    """Open the store, ready to be used; StoreError if it is not usable.

    `make`: where there is none, a new one is made (SQLite).
    """
    if not make and _is_missing(url):
        raise StoreUnreachable(
            f"{mask_url(url)}: there is no store",
            remedy="'redrive run' makes it when it first starts; check [store] url",
        )
    database = await open_store(url)
    return Store(database, Letters(database), Groups(database), Books(database))


def _is_missing(url: str) -> bool:
    """Whether there is no file where a SQLite store should be."""
    return url.startswith("sqlite") and not Path(make_url(url).database or "").exists()
