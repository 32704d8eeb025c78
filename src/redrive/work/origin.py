"""Where a message failed, from the raw `x-death`: the hot path of the retrier.

It says what `domain/deaths.py` says of the same header, without decoding what nobody asks for, and
keeps the fields raw so that they can be written on as they are. A property test holds the two
together. Headers of any shape are borne: what is no death is passed over.

Messages that fail in one queue have deaths that differ only in their time, so what was read is
remembered for all that is equal but the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from redrive.amqp import fields
from redrive.amqp.fields import array_items, item_ends, text_of
from redrive.errors import MalformedData

_TABLE: Final = ord("F")
_STRING: Final = ord("S")
_TIME: Final = b"\x04timeT"
_TIME_SIZE: Final = 8
_REMEMBERED: Final = 4096
"""How many deaths are kept in mind. Beyond it all are forgotten: what repeats comes back."""
_LONGEST: Final = 1024
"""Bytes of a header beyond which it is read each time: what is kept in mind is bounded."""


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The newest death outside Redrive's own queues."""

    queue: str
    queue_field: bytes
    """The same as a raw string."""
    reason: str = "unknown"
    times: int = 1
    """How often it died so, by the broker's count."""
    exchange: bytes | None = None
    """The exchange that it was published to, as a raw string."""
    routing_key: bytes | None = None
    """The key that it was published with, as a raw string; further keys are of CC and BCC."""
    routing_key_text: str | None = None
    time_from: int | None = None
    """Where in `x-death` its time stands, as a raw timestamp."""
    in_words: bytes = b""
    """The death without its time: what tells it from others of the same message."""

    def at(self, x_death: bytes | None) -> bytes | None:
        """When, as a raw timestamp, by the header that it was read from or one that is equal but
        for the time."""
        if self.time_from is None or x_death is None:
            return None
        return x_death[self.time_from : self.time_from + 1 + _TIME_SIZE]


class Origins:
    """Reads the origin that a raw `x-death` tells, and remembers it."""

    __slots__ = ("_known", "_not_origins")

    def __init__(self, not_origins: Container[str]) -> None:
        self._not_origins = not_origins
        self._known: dict[tuple[bytes, bytes], Origin] = {}

    def of(self, x_death: bytes | None) -> Origin | None:
        """The origin; None if the header tells none."""
        if x_death is None:
            return None
        time = x_death.find(_TIME) + len(_TIME)
        around = (x_death[:time], x_death[time + _TIME_SIZE :])
        return self._known.get(around) or self._read(x_death, around, time)

    def _read(self, x_death: bytes, around: tuple[bytes, bytes], time: int) -> Origin | None:
        origin = origin_of(x_death, self._not_origins)
        # What stands around a time says everything else only if it is a time, and not a name that
        # looks like one. A reader passes over the eight bytes of a time, whatever they are.
        if origin is not None and origin.time_from == time - 1 and len(x_death) <= _LONGEST:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[around] = origin
        return origin


def origin_of(x_death: bytes | None, not_origins: Container[str]) -> Origin | None:
    """The origin that a raw `x-death` tells; None if it tells none."""
    if x_death is None:
        return None
    for start, end in itertools.pairwise((5, *item_ends(x_death))):
        if x_death[start] != _TABLE:
            continue
        try:
            death = _table(x_death, start + 5, end)
        except MalformedData:
            continue
        queue_field = death.get(b"queue", (0, b""))[1]
        queue = text_of(queue_field)
        if queue is not None and queue not in not_origins:
            return _origin(queue, queue_field, death)
    return None


def _origin(queue: str, queue_field: bytes, death: Mapping[bytes, tuple[int, bytes]]) -> Origin:
    def field(name: bytes) -> bytes | None:
        return death[name][1] if name in death else None

    reason = text_of(field(b"reason")) or "unknown"
    count = fields.decode(field(b"count") or b"V")
    times = count if type(count) is int and count > 0 else 1
    routing_key = _routing_key(field(b"routing-keys"))
    time_from, time = death.get(b"time", (0, b""))
    return Origin(
        queue=queue,
        queue_field=queue_field,
        reason=reason,
        times=times,
        exchange=_string(field(b"exchange")),
        routing_key=routing_key,
        routing_key_text=text_of(routing_key),
        time_from=time_from if time[:1] == b"T" else None,
        in_words=_in_words(reason, times, queue),
    )


def _in_words(reason: str, times: int, queue: str) -> bytes:
    return fields.octets(f"{reason} {times} {queue}")


def rejected_in(queue: str, queue_field: bytes) -> Origin:
    """The origin of a message without a death, whose consumer names the queue itself."""
    reason = "rejected"
    return Origin(queue, queue_field, reason, in_words=_in_words(reason, 1, queue))


def _routing_key(keys: bytes | None) -> bytes | None:
    if keys is None or keys[:1] != b"A":
        return _string(keys)
    return next((item for item in array_items(keys) if item[0] == _STRING), None)


def _table(raw: bytes, start: int, end: int) -> dict[bytes, tuple[int, bytes]]:
    """A table's inside by name, of repeated names the first: where its raw field is, and that."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for name, field, stop in fields.table_entries(raw, start, end):
        found.setdefault(name, (field, raw[field:stop]))
    return found


def _string(field: bytes | None) -> bytes | None:
    return field if field is not None and field[:1] == b"S" else None
