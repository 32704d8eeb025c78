"""Redrive's own headers as raw fields: of which types they are, when they start anew, and the id.

Headers of our names can be anybody's: one of a wrong type counts as not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from redrive.amqp import fields, surgery
from redrive.amqp.delivery import Delivery
from redrive.amqp.fields import octets
from redrive.amqp.republish import Draft
from redrive.domain import headers
from redrive.domain.failure import WORDS

_QUEUE: Final = octets(headers.QUEUE)
_LETTER: Final = octets(headers.LETTER)
_GENERATION: Final = octets(headers.GENERATION)
_PARENT: Final = octets(headers.PARENT)
_ATTEMPT: Final = octets(headers.ATTEMPT)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_BY_EXCHANGE: Final = octets(headers.BY_EXCHANGE)
STARTS_ANEW: Final = tuple(
    octets(name)
    for name in (
        headers.ID,
        headers.ATTEMPT,
        headers.EXCHANGE,
        headers.ROUTING_KEY,
        headers.FIRST_FAILED_AT,
        headers.LETTER,
        headers.GENERATION,
        *WORDS,
        headers.NOT_BEFORE,
        headers.CRASHES,
        headers.REFUSED,
        headers.BY_EXCHANGE,
    )
)
_WORDS: Final = tuple(octets(name) for name in WORDS)
_STRING, _INTEGER = b"S", b"bBsuUIilL"
_TYPES: Final = {
    octets(name): letters
    for letters, names in (
        (
            _STRING,
            (
                headers.ID,
                headers.QUEUE,
                headers.EXCHANGE,
                headers.ROUTING_KEY,
                headers.LETTER,
                headers.PARENT,
                headers.BY_EXCHANGE,
                *WORDS,
            ),
        ),
        (
            _INTEGER,
            (headers.ATTEMPT, headers.GENERATION, headers.NOT_BEFORE, headers.CRASHES),
        ),
        (b"T", (headers.FIRST_FAILED_AT,)),
        (b"A", (headers.DEATHS,)),
        (b"t", (headers.REDELIVERED, headers.REFUSED)),
    )
    for name in names
}
"""The letters of the wire that each header may have. What is set aside keeps the original's."""
_ANY: Final = bytes(range(256))
_MOST: Final = 2**31 - 2
"""A count is written as an int32, one more than it was read. Who forges more gets this."""
_HASH: Final = blake2b(digest_size=16)
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def move_on(
    ours: dict[bytes, bytes], queue: bytes, exchange: bytes | None, routing_key: bytes | None
) -> None:
    """Note that it failed in another queue than the one that was noted. `queue` is that one,
    `exchange` and `routing_key` what it was published with, all raw. What was noted is forgotten.

    But for a copy that came here because the other had it sent back by its exchange: its attempts
    count on, and it is noted for whom it came (see `work/by_exchange.py`).
    """
    kept = {}
    if came_by_exchange(ours, exchange, routing_key):
        kept = {name: ours[name] for name in (_BY_EXCHANGE, _ATTEMPT) if name in ours}
    start_anew(ours)
    ours.update(kept)
    ours[_QUEUE] = queue


def came_by_exchange(
    ours: Mapping[bytes, bytes], exchange: bytes | None, routing_key: bytes | None
) -> bool:
    """Whether the queue that is noted had this copy sent, by that exchange and with that key."""
    made_for = ours.get(_BY_EXCHANGE)
    return (
        made_for is not None
        and made_for == ours.get(_QUEUE)
        and ours.get(_EXCHANGE) == exchange
        and ours.get(_ROUTING_KEY) == routing_key
    )


def start_anew(ours: dict[bytes, bytes]) -> None:
    """Forget what was noted of another failure; but not whose letter it was sent for. That letter
    is this message's own if nobody knew where it would go, and else its parent."""
    before = ours.get(_QUEUE)
    letter, generation = ours.get(_LETTER), ours.get(_GENERATION)
    for name in STARTS_ANEW:
        ours.pop(name, None)
    if letter is not None and before is not None:
        ours[_PARENT] = letter
    elif letter is not None and generation is not None:
        ours[_LETTER], ours[_GENERATION] = letter, generation


def forget_words(ours: dict[bytes, bytes]) -> None:
    """Forget what a consumer said of a failure before the last."""
    for name in _WORDS:
        ours.pop(name, None)


def drop_wrong_types(ours: dict[bytes, bytes]) -> None:
    """Headers of our names can be anybody's: one of a wrong type counts as not there."""
    letters = _TYPES.get
    wrong = [name for name, field in ours.items() if field[0] not in letters(name, _ANY)]
    for name in wrong:
        del ours[name]


@lru_cache(maxsize=1024)
def count_of(field: bytes | None) -> int:
    """How many a raw header tells, such as `redrive-attempt`; 0 where it tells none."""
    count = None if field is None else fields.decode(field)
    return min(count, _MOST) if type(count) is int and count > 0 else 0


def identity(delivery: Delivery, draft: Draft, death_in_words: bytes) -> bytes:
    """The `redrive-id` of a message, as a raw string: a UUID of its content and its death.

    Derived, not drawn: if we are killed after publishing a copy and before the ack, the broker
    delivers the same bytes again, and the second copy gets the same id as the first.

    A broker that is killed while it dead-letters makes copies itself, and stamps their deaths anew.
    So the time of the death counts only where the producer gave no message id: there it is all that
    tells a repeated message, such as a tick, from a copy.
    """
    flags, before, kept, _, after = draft.opened
    before = before[2:]
    # The headers as one part: where a broker adds its counters decides how they are sliced.
    theirs = b"".join(kept)
    death = death_in_words if flags & surgery.MESSAGE_ID else draft.x_death or b""
    exchange, key, body = octets(delivery.exchange), octets(delivery.routing_key), delivery.body
    lengths = b"%d,%d,%d,%d,%d,%d,%d" % (
        len(before),
        len(theirs),
        len(after),
        len(death),
        len(exchange),
        len(key),
        len(body),
    )
    made = _HASH.copy()
    made.update(b"".join((lengths, before, theirs, after, death, exchange, key)))
    made.update(body)
    text = made.hexdigest()
    # Version 8: made by its own rule.
    uuid = f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:]}"
    return b"S\x00\x00\x00\x24" + uuid.encode()
