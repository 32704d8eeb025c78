"""Letters as rows and rows as letters.

The bulk path hands rows to the driver as they are, so this module knows what each engine keeps: an
id is its 16 bytes on both; a moment is milliseconds since 1970 on SQLite, and on PostgreSQL, whose
binary COPY takes values as they are on its wire, microseconds since 2000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final

import orjson
from sqlalchemy import Column, RowMapping, Table

from redrive.domain.deaths import Death
from redrive.domain.letter import Attempt, Change, Edit, Envelope, Head, Letter, Resolution, Result
from redrive.domain.lifecycle import TRANSITIONS, State
from redrive.store.schema import redrive_letter
from redrive.store.types import LetterId, Moment, to_milliseconds, to_octets

Row = tuple[Any, ...]

_IN_TEXT: Final = ("deaths", "tags")
_VALUES: Final = tuple(field.name for field in fields(Letter) if field.name not in _IN_TEXT)
_OF_MOMENTS: Final = tuple(
    name for name in _VALUES if isinstance(redrive_letter.c[name].type, Moment)
)
_OF_IDS: Final = tuple(
    name for name in _VALUES if isinstance(redrive_letter.c[name].type, LetterId)
)
_OTHERS: Final = tuple(name for name in _VALUES if name not in (*_OF_MOMENTS, *_OF_IDS))

LETTER_COLUMNS: Final = (*_OTHERS, *_OF_MOMENTS, *_OF_IDS, *_IN_TEXT, "digest")

_others: Final = attrgetter(*_OTHERS)
_moments: Final = attrgetter(*_OF_MOMENTS)
_ids: Final = attrgetter(*_OF_IDS)

ENVELOPE_COLUMNS: Final = (
    "letter_id",
    "exchange",
    "routing_key",
    "redelivered",
    "properties",
    "body",
)
_POSTGRES_BEGAN: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class _Moments(dict[datetime | None, int | None]):
    """Moments as a driver takes them. The letters of a batch have most of theirs in common."""

    def __init__(self, counted: Callable[[datetime], int]) -> None:
        super().__init__({None: None})
        self._counted = counted

    def __missing__(self, moment: datetime) -> int:
        number = self[moment] = self._counted(moment)
        return number


def letter_rows(letters: Iterable[tuple[Letter, bytes]], *, sqlite: bool) -> list[Row]:
    """Letters with their digests as the driver takes them, in the order of `LETTER_COLUMNS`."""
    moment = _Moments(to_milliseconds if sqlite else _to_microseconds).__getitem__
    return [
        (
            *_others(letter),
            *map(moment, _moments(letter)),
            *[None if each is None else to_octets(each) for each in _ids(letter)],
            deaths_text(letter.deaths),
            orjson.dumps(letter.tags).decode() if letter.tags else "[]",
            digest,
        )
        for letter, digest in letters
    ]


def read_letter(row: Mapping[str, Any] | RowMapping) -> Letter:
    """The letter of a row of `redrive_letter`."""
    values = {name: row[name] for name in _VALUES}
    values["status"] = State(values["status"])
    if values["resolution"] is not None:
        values["resolution"] = Resolution(values["resolution"])
    return Letter(
        deaths=read_deaths_text(row["deaths"]),
        tags=tuple(orjson.loads(row["tags"])),
        **values,
    )


HEAD: Final = tuple(field.name for field in fields(Head))
"""The columns of `redrive_letter` that make a head."""


def read_head(row: Row) -> Head:
    """The head of a row that has those columns, in that order."""
    values = dict(zip(HEAD, row, strict=True))
    values["status"] = State(values["status"])
    values["possible_duplicate"] = bool(values["possible_duplicate"])
    if values["resolution"] is not None:
        values["resolution"] = Resolution(values["resolution"])
    return Head(**values)


def deaths_text(deaths: Sequence[Death]) -> str:
    """Deaths as they are kept."""
    if not deaths:
        return "[]"
    return orjson.dumps(
        [
            (
                death.queue,
                death.reason,
                death.count,
                death.exchange,
                death.routing_keys,
                None if death.at is None else to_milliseconds(death.at),
            )
            for death in deaths
        ]
    ).decode()


def read_deaths_text(text: str) -> tuple[Death, ...]:
    """The inverse of `deaths_text`."""
    return tuple(
        Death(
            queue=queue,
            reason=reason,
            count=count,
            exchange=exchange,
            routing_keys=tuple(keys),
            at=None if at is None else datetime.fromtimestamp(at / 1000, UTC),
        )
        for queue, reason, count, exchange, keys, at in orjson.loads(text)
    )


def envelope_rows(envelopes: Iterable[tuple[str, Envelope]]) -> list[Row]:
    """Envelopes with their letters' ids, in the order of `ENVELOPE_COLUMNS`. The vhost and the
    queue are the letter's."""
    return [
        (
            to_octets(letter_id),
            envelope.exchange.encode("utf-8", "surrogateescape"),
            envelope.routing_key.encode("utf-8", "surrogateescape"),
            envelope.redelivered,
            envelope.properties,
            envelope.body,
        )
        for letter_id, envelope in envelopes
    ]


def read_envelope(row: Row, letter: Letter | Head) -> Envelope:
    """The envelope of a row of `ENVELOPE_COLUMNS`, with what its letter knows of it."""
    _, exchange, routing_key, redelivered, properties, body = row
    return Envelope(
        vhost=letter.vhost,
        queue=letter.collected_from,
        exchange=exchange.decode("utf-8", "surrogateescape"),
        routing_key=routing_key.decode("utf-8", "surrogateescape"),
        redelivered=bool(redelivered),
        properties=properties,
        body=body,
    )


def read_change(row: RowMapping) -> Change:
    """One entry of the history."""
    return Change(
        at=row["at"],
        actor=row["actor"],
        before=None if row["before"] is None else State(row["before"]),
        after=State(row["after"]),
        reason=row["reason"],
    )


def read_attempt(row: Mapping[str, Any] | RowMapping) -> Attempt:
    """One sending."""
    return Attempt(
        at=row["at"],
        worker_id=row["worker_id"],
        strategy=row["strategy"],
        generation=row["generation"],
        result=Result(row["result"]),
        queue=row["queue"],
        body_digest=bytes(row["body_digest"]),
        before=State(row["before"]),
        reason=row["reason"],
        replay_id=row["replay_id"],
    )


def read_edit(row: RowMapping) -> Edit:
    """One edit."""
    return Edit(
        number=row["number"],
        at=row["at"],
        actor=row["actor"],
        reason=row["reason"],
        properties=bytes(row["properties"]),
        body=bytes(row["body"]),
        undone=bool(row["undone"]),
    )


def claim_of(attempt: Attempt) -> Change:
    """The entry of the history that a sending makes, which needs no row of its own either."""
    return Change(
        at=attempt.at,
        actor=attempt.worker_id,
        before=attempt.before,
        after=State.PROCESSING,
        reason=f"{TRANSITIONS[attempt.before][State.PROCESSING]}, {attempt.strategy}",
    )


def arrival_of(letter: Letter) -> Change:
    """The first entry of every history, which needs no row of its own."""
    return Change(
        at=letter.created_at,
        actor="collector",
        before=None,
        after=State.PENDING,
        reason=f"taken from {letter.collected_from}",
    )


def driver_rows(
    table: Table, columns: Sequence[str], values: Sequence[dict[str, Any]], *, sqlite: bool
) -> list[Row]:
    """Rows as the driver takes them, for the bulk path that goes around SQLAlchemy."""
    makers = [_maker(table.c[name], sqlite=sqlite) for name in columns]
    plan = [(name, maker) for name, maker in zip(columns, makers, strict=True)]
    return [
        tuple([row[name] if maker is None else maker(row[name]) for name, maker in plan])
        for row in values
    ]


def _maker(column: Column[Any], *, sqlite: bool) -> Callable[[Any], Any] | None:
    if isinstance(column.type, LetterId):
        return _octets_or_none
    if isinstance(column.type, Moment):
        return _milliseconds_or_none if sqlite else _microseconds_or_none
    return None


def _octets_or_none(value: str | None) -> bytes | None:
    return None if value is None else to_octets(value)


def _milliseconds_or_none(value: datetime | None) -> int | None:
    return None if value is None else to_milliseconds(value)


def _microseconds_or_none(value: datetime | None) -> int | None:
    return None if value is None else _to_microseconds(value)


def _to_microseconds(moment: datetime) -> int:
    """A moment as it is on PostgreSQL's wire."""
    return (moment - _POSTGRES_BEGAN) // _MICROSECOND
