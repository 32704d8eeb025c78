"""Deaths from raw headers, for the collector: storable, and remembered.

It says what `domain/deaths.py` says of the same header. Messages that fail in one queue have deaths
that differ only in their time, so everything else is read once, of a whole header where it can be;
and a broker's times are of whole seconds, so those of a busy second have one death in common.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

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
_REMEMBERED_HEADERS: Final = 1024
_LONGEST_HEADER: Final = 4096
"""The same of whole headers."""
_NAME: Final = 255
_MAX_KEYS: Final = 20
_MAX_COUNT: Final = 2**31 - 1

_Cut = Callable[[bytes], tuple[Any, ...]]
"""Cuts a header to pieces: bytes and a time by turns, bytes at either end."""


class _Kind:
    """Deaths that differ in nothing but their time."""

    __slots__ = ("_last", "_second")

    def __init__(self, death: Death, second: int) -> None:
        self._last = death
        self._second = second

    def at(self, second: int) -> Death:
        """The one of a second; the last one, if it was of the same."""
        if second != self._second:
            self._second = second
            last = self._last
            self._last = Death(
                queue=last.queue,
                reason=last.reason,
                count=last.count,
                exchange=last.exchange,
                routing_keys=last.routing_keys,
                at=datetime.fromtimestamp(second, UTC) if second <= _LAST_SECOND else None,
            )
        return self._last


class DeathReader:
    """Reads the deaths of an array."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], _Kind] = {}  # by the bytes around its time
        self._headers: dict[tuple[bytes, ...], list[_Kind]] = {}  # by those around all times
        self._cuts: dict[tuple[int, int], _Cut] = {}  # by size, and where the first time is

    def read(self, field: bytes | None) -> list[Death]:
        """The deaths of a raw header, in its order; none if it is not an array."""
        if field is None:
            return []
        cut = self._cuts.get((len(field), field.find(_TIME)))
        if cut is not None:
            pieces = cut(field)
            kinds = self._headers.get(pieces[::2])
            if kinds is not None:
                # As many times as kinds: `strict` would only cost.
                return [kind.at(at) for kind, at in zip(kinds, pieces[1::2])]  # noqa: B905
        return self._look_closer(field)

    def _look_closer(self, field: bytes) -> list[Death]:
        items = array_items(field)
        found = [self._death(item) for item in items]
        if len(field) <= _LONGEST_HEADER and found and all(kind for _, kind in found):
            self._remember(field, items, [kind for _, kind in found if kind is not None])
        return [death for death, _ in found if death is not None]

    def _death(self, item: bytes) -> tuple[Death | None, _Kind | None]:
        """What is in an array: a death, if it is one, and of which kind, if its time is known."""
        if item[0] != _TABLE:
            return None, None
        time = item.find(_TIME) + len(_TIME)
        around = (item[:time], item[time + _TIME_SIZE :])
        kind = self._known.get(around)
        if kind is not None:
            return kind.at(int.from_bytes(item[time : time + _TIME_SIZE])), kind
        deaths = read_deaths([fields.decode(item)])
        if not deaths:
            return None, None
        death = _storable(deaths[0])
        if len(item) <= _LONGEST and _is_time(item, time - 1):
            kind = _Kind(death, int.from_bytes(item[time : time + _TIME_SIZE]))
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[around] = kind
        return death, kind

    def _remember(self, field: bytes, items: list[bytes], kinds: list[_Kind]) -> None:
        """Note a header of which every item is a death with a time of its own."""
        if len(self._headers) >= _REMEMBERED_HEADERS:
            self._headers.clear()
            self._cuts.clear()
        form, told, start = ">", 0, len(field) - sum(map(len, items))
        for item in items:
            time = start + item.find(_TIME) + len(_TIME)
            form += f"{time - told}sQ"
            told = time + _TIME_SIZE
            start += len(item)
        cut = struct.Struct(f"{form}{len(field) - told}s").unpack
        self._cuts[len(field), field.find(_TIME)] = cut
        self._headers[cut(field)[::2]] = kinds


def _is_time(item: bytes, at: int) -> bool:
    """Whether the death's own time stands there, and not something that looks like it."""
    try:
        entries = list(fields.table_entries(item, 5, len(item)))
    except MalformedData:
        return False
    return [start for name, start, _ in entries if name == b"time"] == [at]


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
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    beyond = at.microsecond % 1000
    return at.replace(microsecond=at.microsecond - beyond) if beyond else at
