"""Where a message failed, from the raw `x-death`: the hot path of the retrier.

It says what `domain/deaths.py` says of the same header, without decoding what nobody asks for, and
keeps the fields raw so that they can be written on as they are. A property test holds the two
together. Headers of any shape are borne: what is no death is passed over.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from redrive.amqp import fields, surgery
from redrive.errors import MalformedData

_TABLE: Final = ord("F")
_STRING: Final = ord("S")


class Origin(NamedTuple):
    """The newest death outside Redrive's own queues: its table, as raw fields by name."""

    queue: str
    death: dict[bytes, bytes]

    @property
    def reason(self) -> str:
        return text_of(self.death.get(b"reason")) or "unknown"

    @property
    def times(self) -> int:
        """How often it died so, by the broker's count."""
        count = fields.decode(self.death.get(b"count", b"V"))
        return count if type(count) is int and count > 0 else 1

    @property
    def exchange(self) -> bytes | None:
        """The exchange that it was published to, as a raw string."""
        return _string(self.death.get(b"exchange"))

    @property
    def routing_key(self) -> bytes | None:
        """The key that it was published with, as a raw string; further keys are of CC and BCC."""
        keys = self.death.get(b"routing-keys")
        if keys is None or keys[:1] != b"A":
            return _string(keys)
        return next((item for item in array_items(keys) if item[0] == _STRING), None)

    @property
    def at(self) -> bytes | None:
        """When, as a raw timestamp."""
        time = self.death.get(b"time")
        return time if time is not None and time[:1] == b"T" else None


def origin_of(x_death: bytes | None, own_queues: Collection[str]) -> Origin | None:
    """The origin that a raw `x-death` tells; None if it tells none."""
    for item in array_items(x_death):
        if item[0] != _TABLE:
            continue
        try:
            death = surgery.table_fields(item, 5, len(item))
        except MalformedData:
            continue
        queue = text_of(death.get(b"queue"))
        if queue is not None and queue not in own_queues:
            return Origin(queue, death)
    return None


def array_items(field: bytes | None) -> list[bytes]:
    """The raw fields of an array; none if it is not one."""
    if field is None or field[:1] != b"A":
        return []
    items = []
    position, end = 5, len(field)
    try:
        while position < end:
            stop = fields.field_end(field, position, end)
            items.append(field[position:stop])
            position = stop
    except MalformedData:
        return []
    return items


def text_of(field: bytes | None) -> str | None:
    """A header that should be a string; None if it is none, or not one."""
    return fields.text(field[5:]) if field is not None and field[:1] == b"S" else None


def _string(field: bytes | None) -> bytes | None:
    return field if field is not None and field[:1] == b"S" else None
