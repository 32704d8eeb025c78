"""What a message of the storm is, and what a consumer makes of it. Pure.

A message's identity is its `message_id`, which begins with what becomes of it; its body follows
from seed and identity, so that whoever finds a copy can tell whether it is whole.

| kind     | what consumers do with it |
|----------|---------------------------|
| passes   | take it |
| twice    | fail twice, then take it |
| revived  | fail until it comes as a replay |
| mended   | fail until somebody has edited its body |
| hopeless | always fail |
| unwieldy | fail once; then its headers are too large to be published again |
| ghost    | never see it: it is sent for a retry to a queue that there is not |
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

ORDERS, INVOICES, PARCELS, GHOSTS = "orders", "invoices", "parcels", "ghosts"
QUEUES: Final = (ORDERS, INVOICES, PARCELS)
"""Those of consumers: of the SDK, of a plain one, of a plain one with a dead letter queue of its
own that sends messages back after a while."""
EXCHANGE: Final = "work"
KEYS: Final = {
    ORDERS: "order.created",
    INVOICES: "invoice.due",
    PARCELS: "parcel.sent",
    GHOSTS: "invoice.lost",
}
KINDS: Final = {
    ORDERS: ("passes", "passes", "twice", "revived", "mended", "hopeless"),
    INVOICES: ("passes", "twice", "revived", "mended", "hopeless", "unwieldy"),
    PARCELS: ("passes", "twice", "revived", "mended", "hopeless"),
    GHOSTS: ("ghost",),
}
BROKEN, WHOLE = b'"broken": true', b'"broken": false'
PATCH: Final = '[{"op": "replace", "path": "/broken", "value": false}]'
"""How an operator mends a body."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the plan. `at` is in seconds after the beginning."""

    at: float
    identity: str
    queue: str
    size: int

    @property
    def kind(self) -> str:
        return kind_of(self.identity)

    @property
    def key(self) -> str:
        return KEYS[self.queue]

    def body(self, seed: int) -> bytes:
        """Its bytes; JSON if somebody is to mend it, else anything."""
        filling = random.Random(f"{seed}/{self.identity}").randbytes(self.size)
        if self.kind != "mended":
            return filling
        # by hand: an integer that JSON.parse would spoil, and spaces that a dump would lose
        text = json.dumps(filling[: self.size // 4].hex())
        return b'{"amount": 9007199254740993,  %s, "filling": %s}' % (BROKEN, text.encode())


def kind_of(identity: str) -> str:
    return identity.partition("-")[0]


def mended(body: bytes) -> bytes:
    """A body as an operator's edit leaves it."""
    return body.replace(BROKEN, WHOLE)


def digest_of(body: bytes) -> str:
    return sha256(body).hexdigest()


def takes(identity: str, body: bytes, tries: int, *, replayed: bool) -> bool:
    """Whether a consumer takes a message that it was given so many times before."""
    kind = kind_of(identity)
    return (
        kind == "passes"
        or (kind == "twice" and (tries >= 2 or replayed))
        or (kind == "revived" and replayed)
        or (kind == "mended" and WHOLE in body)
    )
