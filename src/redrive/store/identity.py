"""Which letter was the first with a redrive-id: how second copies are recognised.

The key is unique in the database, so of two collectors that store two copies at the same time the
second waits for the first, and sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.letter import Letter
from redrive.store.bulk import insert_new
from redrive.store.schema import redrive_identity
from redrive.store.types import to_octets

_AT_ONCE: Final = 500
_COLUMNS: Final = ("key", "letter_id")


def identity_key(redrive_id: str, letter: Letter) -> bytes:
    """The key of a redrive-id in the queue where it failed: elsewhere it is another failure."""
    parts = f"{redrive_id}\0{letter.queue or ''}\0{letter.vhost}"
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16).digest()


async def claim_identities(
    connection: AsyncConnection, wanted: Iterable[tuple[bytes, str]]
) -> dict[bytes, str]:
    """Give each key to the letter that wants it, unless it has one; the letter of each key.

    In one order for all writers: two that want the same keys wait, and never for each other.
    """
    first: dict[bytes, str] = {}
    for key, letter_id in wanted:
        first.setdefault(key, letter_id)
    keys = sorted(first)
    rows = [(key, to_octets(first[key])) for key in keys]
    if await insert_new(connection, redrive_identity, _COLUMNS, rows) == len(rows):
        return first  # as it is without a crash: none was taken
    return await identities(connection, keys)


async def identities(connection: AsyncConnection, wanted: Iterable[bytes]) -> dict[bytes, str]:
    """The letters of the keys that are taken."""
    keys = list(wanted)
    owners: dict[bytes, str] = {}
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        query = select(redrive_identity).where(redrive_identity.c.key.in_(some))
        for row in (await connection.execute(query)).all():
            owners[bytes(row.key)] = row.letter_id
    return owners
