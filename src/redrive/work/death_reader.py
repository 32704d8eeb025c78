"""Deaths from raw headers, for the collector: storable, and remembered.

It says what `domain/deaths.py` says of the same header. Messages that fail in one queue have deaths
that differ only in their time, so everything else is read once; and a broker's times are of whole
seconds, so those of a busy second have one death in common.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from redrive.amqp import fields
from redrive.amqp.fields import array_items
from redrive.domain.deaths import Death, read_deaths
from redrive.domain.texts import storable
from redrive.errors import MalformedData

_TABLE: Final = ord("F")
_TIME: Final = b"\x04timeT"
_TIME_SIZE: Final = 8
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""A day from either end of what a datetime holds: times beyond exist only in some time zones."""
_LAST_SECOND: Final = int(_LAST.timestamp())
_REMEMBERED: Final = 4096
"""How many deaths are kept in mind. Beyond it all are forgotten: what repeats comes back."""
_LONGEST: Final = 1024
"""Bytes of a death beyond which it is read each time: what is kept in mind is bounded."""
_NAME: Final = 255
_MAX_KEYS: Final = 20
_MAX_COUNT: Final = 2**31 - 1


class DeathReader:
    """Reads the deaths of an array."""

    def __init__(self) -> None:
        self._recent: dict[bytes, Death] = {}  # by all of its bytes
        self._known: dict[tuple[bytes, bytes], Death] = {}  # by those around its time

    def read(self, field: bytes | None) -> list[Death]:
        """The deaths of a raw header, in its order; none if it is not an array."""
        if field is None:
            return []
        recent = self._recent.get
        return [
            death
            for item in array_items(field)
            if (death := recent(item) or self._look_closer(item)) is not None
        ]

    def _look_closer(self, item: bytes) -> Death | None:
        if item[0] != _TABLE:
            return None
        time = item.find(_TIME) + len(_TIME)
        around = (item[:time], item[time + _TIME_SIZE :])
        known = self._known.get(around)
        death = (
            self._read(item, around, time)
            if known is None
            else _at(known, int.from_bytes(item[time : time + _TIME_SIZE]))
        )
        if death is not None and len(item) <= _LONGEST:
            if len(self._recent) >= _REMEMBERED:
                self._recent.clear()
            self._recent[item] = death
        return death

    def _read(self, item: bytes, around: tuple[bytes, bytes], time: int) -> Death | None:
        deaths = read_deaths([fields.decode(item)])
        if not deaths:
            return None
        death = _storable(deaths[0])
        if len(item) <= _LONGEST and _is_time(item, time - 1):
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[around] = death
        return death


def _is_time(item: bytes, at: int) -> bool:
    """Whether the death's own time stands there, and not something that looks like it."""
    try:
        entries = list(fields.table_entries(item, 5, len(item)))
    except MalformedData:
        return False
    return [start for name, start, _ in entries if name == b"time"] == [at]


def _at(death: Death, second: int) -> Death:
    return Death(
        queue=death.queue,
        reason=death.reason,
        count=death.count,
        exchange=death.exchange,
        routing_keys=death.routing_keys,
        at=datetime.fromtimestamp(second, UTC) if second <= _LAST_SECOND else None,
    )


def _storable(death: Death) -> Death:
    return Death(
        queue=storable(death.queue, _NAME),
        reason=storable(death.reason, _NAME),
        count=min(death.count, _MAX_COUNT),
        exchange=storable(death.exchange, _NAME),
        routing_keys=tuple([storable(key, _NAME) for key in death.routing_keys[:_MAX_KEYS]]),
        at=None if death.at is None else storable_time(death.at),
    )


def storable_time(at: datetime) -> datetime | None:
    """The time in UTC, to the millisecond; None if it cannot be stored and read everywhere."""
    if not _FIRST <= at <= _LAST:
        return None
    at = at.astimezone(UTC)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
