"""Whether letters fit into the queues that they go to: asked in the transaction that claims them,
because what finds no place must not be claimed.

No letter is locked while somebody waits for a broker: what is not known of a queue is found out
after the transaction, and nothing is claimed for that queue before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.store.changing import chunks
from redrive.store.id_lists import is_one_of
from redrive.store.schema import redrive_edit, redrive_envelope

_ADDED: Final = 2048
"""Bytes of headers that are reckoned for what a sender adds: four names, an id and some numbers."""


class Room(Protocol):
    """What there is room for in queues that push out others, as far as it is known."""

    def unknown(self, queues: Collection[str]) -> set[str]:
        """Those of the queues that have to be looked at before anything goes there."""
        ...

    def weighs(self, queue: str) -> bool:
        """Whether it matters how large a message is."""
        ...

    def take(self, queue: str, body: int, properties: int) -> bool:
        """Whether a message of these sizes fits in; if so, its place is taken."""
        ...

    def why_full(self, queue: str) -> str | None:
        """What is said of a queue that had no place for a letter; None if it may have some by now,
        and has to be looked at again."""
        ...


class _Boundless:
    """Nothing is known of any limit, or it does not matter."""

    def unknown(self, queues: Collection[str]) -> set[str]:
        return set()

    def weighs(self, queue: str) -> bool:
        return False

    def take(self, queue: str, body: int, properties: int) -> bool:
        return True

    def why_full(self, queue: str) -> str | None:
        return None


BOUNDLESS: Final[Room] = _Boundless()


class Fitting:
    """Letters of one transaction, and whether they find a place where they go."""

    def __init__(self, room: Room, going: Mapping[str, str]) -> None:
        """`going`: the queue of each letter that goes to one, by its id."""
        self._room = room
        self._going = going
        self._unknown = room.unknown(set(going.values()))
        self._sizes: dict[str, tuple[int, int]] = {}
        self.look_at = set(self._unknown)
        """Queues that have to be looked at before more goes there."""
        self.full: dict[str, str] = {}
        """Queues that had no place when they were looked at, and what is said of each."""

    async def weigh(self, connection: AsyncConnection) -> None:
        """Find out how large letters are, where that matters."""
        weighed = [
            id_
            for id_, queue in self._going.items()
            if queue not in self._unknown and self._room.weighs(queue)
        ]
        self._sizes = await _sizes(connection, weighed)

    def take(self, letter_id: str) -> bool:
        """Whether a letter fits into its queue; if so, its place is taken."""
        queue = self._going[letter_id]
        if queue in self._unknown:
            return False
        body, properties = self._sizes.get(letter_id, (0, 0))
        if self._room.take(queue, body, properties + _ADDED):
            return True
        why = self._room.why_full(queue)
        if why is None:
            self.look_at.add(queue)
        else:
            self.full[queue] = why
        return False


async def _sizes(connection: AsyncConnection, ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """How many bytes body and properties have of what is to be sent: as received, or as edited."""
    envelope, edit = redrive_envelope.c, redrive_edit.c
    found: dict[str, tuple[int, int]] = {}
    for some in chunks(list(ids)):
        as_received = select(
            envelope.letter_id, func.length(envelope.body), func.length(envelope.properties)
        ).where(is_one_of(connection, envelope.letter_id, some))
        as_edited = (
            select(edit.letter_id, func.length(edit.body), func.length(edit.properties))
            .where(is_one_of(connection, edit.letter_id, some), edit.undone.is_(False))
            .order_by(edit.number)
        )
        for query in (as_received, as_edited):
            for id_, body, properties in (await connection.execute(query)).all():
                found[id_] = (body, properties)
    return found
