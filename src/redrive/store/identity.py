"""Which letter was the first with a redrive-id: how second copies are recognised.

The id is derived from the message (ADR 0005), so copies have the same. Two messages of one id that
have a message id are copies: their producer named them so. Without one they may as well be two
messages of one content, such as a tick that failed today and tomorrow. Of those, a second copy is

- one that failed first at the same time as another: a copy of its copy, which nothing but a crash
  makes; two that failed within one second are told apart by nothing,
- one that is marked, because it was made of a redelivery: a copy of the newest of that id,
- one that had failed by the time a marked one did: it may be the copy that was made before.

So each letter without a message id has two keys, one with the time at which it first failed and one
that passes on to the newest; a marked one has a third, which does too. All are unique in the
database: of two collectors that store two copies at the same time the second waits for the first,
and sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain.ids import first_id
from redrive.domain.letter import Arrival, Letter
from redrive.store.bulk import insert_new
from redrive.store.schema import redrive_identity, redrive_letter
from redrive.store.types import to_octets

_AT_ONCE: Final = 500
_COLUMNS: Final = ("key", "letter_id")
_IDENTITY: Final = redrive_identity.c
_LETTER: Final = redrive_letter.c


class Identity(NamedTuple):
    """The keys of a letter with a redrive-id, in the queue where it failed: elsewhere it is another
    failure."""

    by_id: bytes
    """Of the first letter with that redrive-id; without a message id, of the newest."""
    by_time: bytes | None = None
    """Only without a message id: of the first that failed first at that time."""
    by_mark: bytes | None = None
    """Only without a message id: of the newest marked one."""

    def wanted(self, letter_id: str, *, marked: bool) -> list[tuple[bytes, str]]:
        """What the letter claims."""
        keys = (self.by_id, self.by_time, self.by_mark if marked else None)
        return [(key, letter_id) for key in keys if key is not None]


def identity_of(redrive_id: str, letter: Letter, *, named: bool) -> Identity:
    """The identity of a letter; `named` if its producer gave it a message id."""
    parts = f"{redrive_id}\0{letter.queue or ''}\0{letter.vhost}"
    if named:
        return Identity(_key(parts))
    failed = letter.first_failed_at.isoformat(timespec="milliseconds")
    return Identity(_key(parts), _key(f"{parts}\0failed {failed}"), _key(f"{parts}\0marked"))


def _key(parts: str) -> bytes:
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16).digest()


async def note_identities(
    connection: AsyncConnection, arrivals: Sequence[Arrival]
) -> dict[str, str]:
    """Claim the identities of arrivals; of each that is a possible second copy, whose."""
    known = [
        (arrival, identity_of(arrival.redrive_id, arrival.letter, named=arrival.named))
        for arrival in arrivals
        if arrival.redrive_id is not None
    ]
    owners = await claim_identities(
        connection,
        [
            want
            for arrival, keys in known
            for want in keys.wanted(arrival.letter.id, marked=arrival.marked)
        ],
    )
    copies: dict[str, str] = {}
    for arrival, keys in known:
        owner = owners[keys.by_time or keys.by_id]
        if owner != arrival.letter.id:
            copies[arrival.letter.id] = owner
    unnamed = [(arrival, keys) for arrival, keys in known if not arrival.named]
    if unnamed:
        copies |= await _pass_on(connection, unnamed, owners, copies)
    return copies


class _Marked(NamedTuple):
    letter_id: str
    first_failed_at: datetime | None
    """None if the letter was deleted since."""

    def may_follow(self, letter: Letter) -> bool:
        """Whether it may be the second copy of a letter that comes now: that had failed by then."""
        if self.first_failed_at is None:
            return first_id(letter.first_failed_at) <= self.letter_id
        return letter.first_failed_at <= self.first_failed_at


async def _pass_on(
    connection: AsyncConnection,
    arrivals: Sequence[tuple[Arrival, Identity]],
    owners: Mapping[bytes, str],
    known: Collection[str],
) -> dict[str, str]:
    """Of arrivals without a message id, beside those known as copies: whose copies they may be.
    Their keys pass on to the newest.

    Whoever looks at the newest of an id waits for all others that do, or two copies that are stored
    at once would both be held against one before them.
    """
    ours = {arrival.letter.id for arrival, _ in arrivals}
    others = sorted({keys.by_id for _, keys in arrivals if owners[keys.by_id] not in ours})
    newest = await identities(connection, others, lock=True)
    marks = {
        keys.by_mark: keys.by_id for _, keys in arrivals if keys.by_id in newest and keys.by_mark
    }
    marked = await _marked(connection, marks, ours)
    copies: dict[str, str] = {}
    passed: dict[bytes, str] = {}
    for arrival, keys in arrivals:
        letter, mark = arrival.letter, marked.get(keys.by_id)
        if letter.id in known:
            pass
        elif arrival.marked and keys.by_id in newest:
            copies[letter.id] = newest[keys.by_id]
        elif mark is not None and mark.may_follow(letter):
            copies[letter.id] = mark.letter_id
        newest[keys.by_id] = passed[keys.by_id] = letter.id
        if arrival.marked and keys.by_mark is not None:
            marked[keys.by_id] = _Marked(letter.id, letter.first_failed_at)
            passed[keys.by_mark] = letter.id
    changed = [(key, id_) for key, id_ in sorted(passed.items()) if owners[key] != id_]
    if changed:
        await connection.execute(
            update(redrive_identity)
            .where(_IDENTITY.key == bindparam("of"))
            .values(letter_id=bindparam("newest")),
            [{"of": key, "newest": id_} for key, id_ in changed],
        )
    return copies


async def _marked(
    connection: AsyncConnection, marks: Mapping[bytes, bytes], ours: Collection[str]
) -> dict[bytes, _Marked]:
    """By their keys by id, the marked letters of `marks` that were there before ours."""
    found = {
        marks[key]: letter_id
        for key, letter_id in (await identities(connection, sorted(marks))).items()
        if letter_id not in ours
    }
    if not found:
        return {}
    times: dict[str, datetime] = {}
    ids = sorted(set(found.values()))
    for start in range(0, len(ids), _AT_ONCE):
        query = select(_LETTER.id, _LETTER.first_failed_at).where(
            _LETTER.id.in_(ids[start : start + _AT_ONCE])
        )
        times |= {row.id: row.first_failed_at for row in await connection.execute(query)}
    return {key: _Marked(letter_id, times.get(letter_id)) for key, letter_id in found.items()}


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


async def identities(
    connection: AsyncConnection, wanted: Iterable[bytes], *, lock: bool = False
) -> dict[bytes, str]:
    """The letters of the keys that are taken. To lock them, give them in the order of all."""
    keys = list(wanted)
    owners: dict[bytes, str] = {}
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        query = select(redrive_identity).where(_IDENTITY.key.in_(some))
        if lock:  # says nothing on SQLite, where a writer is alone
            query = query.order_by(_IDENTITY.key).with_for_update()
        for row in (await connection.execute(query)).all():
            owners[bytes(row.key)] = row.letter_id
    return owners
