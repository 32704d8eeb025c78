"""The store, whole: what is kept of letters, groups and books, behind one door."""

from __future__ import annotations

from dataclasses import dataclass

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


async def open_letter_store(url: str) -> Store:
    """Open the store, ready to be used; StoreError if it is not usable."""
    database = await open_store(url)
    return Store(database, Letters(database), Groups(database), Books(database))
