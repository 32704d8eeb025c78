"""Letters change their state: the row, its history and the books, always all three together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import Select, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.letter import Head, Letter
from redrive.domain.lifecycle import State, require
from redrive.store.books import Deltas, book
from redrive.store.bulk import insert_many, read_by_id
from redrive.store.counts import add_counts
from redrive.store.id_lists import is_one_of
from redrive.store.rows import HEAD, read_head, read_letter
from redrive.store.schema import redrive_history, redrive_letter
from redrive.tally import Counts, observe

_Item = TypeVar("_Item")
_LETTER: Final = redrive_letter.c
_IN_ONE_QUERY: Final = 500  # SQLite takes 32,766 parameters; plans get slow long before

UNLOCKED: Final[dict[str, Any]] = {"locked_by": None, "locked_at": None}


class Changes:
    """The changes of one transaction, written by `flush`. The letters must be locked."""

    def __init__(self, connection: AsyncConnection, now: datetime, actor: str) -> None:
        self._connection = connection
        self._now = now
        self._actor = actor
        self._rows: dict[tuple[tuple[str, Any], ...], list[str]] = {}
        self._history: list[dict[str, Any]] = []
        self._deltas: Deltas = Counter()
        self._counts: Counts = Counter()

    def become(
        self, letter: Letter, after: State, reason: str, *, anew: bool = True, **values: Any
    ) -> None:
        """A letter goes to another state, and its columns to other values. `anew`: the metrics
        count it there once more."""
        require(letter.status, after)
        self.set(letter, status=after, **values)
        self._history.append(
            {
                "letter_id": letter.id,
                "at": self._now,
                "actor": self._actor,
                "before": letter.status.value,
                "after": after.value,
                "reason": reason,
            }
        )
        self._deltas[letter.fingerprint, letter.status.value] -= 1
        self._deltas[letter.fingerprint, after.value] += 1
        if anew:
            count_entry(self._counts, letter, after, self._now)

    def set(self, letter: Letter, **values: Any) -> None:
        """Columns of a letter that stays in its state; one that is not pending waits for no
        worker."""
        state = values.get("status", letter.status)
        if state is not State.PENDING:
            values["next_retry_at"] = None
        self._rows.setdefault(tuple(sorted(values.items())), []).append(letter.id)

    async def flush(self) -> None:
        for values, ids in self._rows.items():
            for some in chunks(ids):
                await self._connection.execute(
                    update(redrive_letter)
                    .where(is_one_of(self._connection, _LETTER.id, some))
                    .values(**dict(values), updated_at=self._now)
                )
        await insert_many(self._connection, redrive_history, self._history)
        await book(self._connection, self._deltas)
        await add_counts(self._connection, self._counts)


def count_entry(counts: Counts, letter: Letter, after: State, now: datetime) -> None:
    """For the metrics: a letter goes into another state."""
    if after is letter.status:
        return
    counts[metrics.ENTERED.name, after.word] += 1
    if after is State.RESOLVED:
        waited = (now - letter.created_at).total_seconds()
        # The clock of a collector may be ahead of the database's.
        observe(counts, metrics.TIME_IN_DLQ, max(0.0, waited))


async def lock_letters(connection: AsyncConnection, ids: Iterable[str]) -> dict[str, Letter]:
    """The letters of these ids, by id, locked until the transaction ends; in one order for all
    writers, so that two never wait for each other."""
    found: dict[str, Letter] = {}
    for some in chunks(sorted(set(ids))):
        query = _locking(connection, select(redrive_letter), some)
        for row in (await connection.execute(query)).mappings():
            letter = read_letter(row)
            found[letter.id] = letter
    return found


async def lock_heads(connection: AsyncConnection, ids: Iterable[str]) -> dict[str, Head]:
    """The same, with no more of each than a sender has to know."""
    found: dict[str, Head] = {}
    for some in chunks(sorted(set(ids))):
        for row in await read_by_id(connection, redrive_letter, HEAD, some, lock=True):
            found[row[0]] = read_head(row)
    return found


def _locking(connection: AsyncConnection, query: Select[Any], ids: Sequence[str]) -> Select[Any]:
    chosen = query.where(is_one_of(connection, _LETTER.id, ids)).order_by(_LETTER.id)
    return chosen.with_for_update()  # says nothing on SQLite, where a writer is alone


async def hold_letters(connection: AsyncConnection, ids: Iterable[str]) -> None:
    """Lock letters as `lock_letters` does, without reading them: before an update of many, which
    would lock them in whatever order it finds them."""
    if connection.dialect.name == "sqlite":
        return
    for some in chunks(sorted(set(ids))):
        await connection.execute(_locking(connection, select(_LETTER.id), some))


def by_generation(keys: Iterable[tuple[str, int]]) -> Iterator[tuple[int, Sequence[str]]]:
    """Sendings, by letter and generation, so many of one generation as one query takes. SQLite
    reads a whole table for a list of pairs, and mostly all are of one generation anyway."""
    found: dict[int, list[str]] = {}
    for letter_id, generation in keys:
        found.setdefault(generation, []).append(letter_id)
    for generation, ids in found.items():
        for some in chunks(ids):
            yield generation, some


def chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """As many at a time as one query takes."""
    for start in range(0, len(items), _IN_ONE_QUERY):
        yield items[start : start + _IN_ONE_QUERY]
