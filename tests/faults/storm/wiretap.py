"""Who had a message in hand, and when: read from what passes over the links.

A second copy of a message comes from one of two things: whoever held a delivery lost it before the
ack was safe, and the broker delivers it again; or the broker was killed while it dead-lettered it.
So that a duplicate can be held against the one fault that made it, every delivery is noted from
the moment that it passes to the moment that it is settled or its connection ends, whose link it
came by, and whether it was settled for good; and every time in which the broker itself carries the
message on.
"""

from __future__ import annotations

import math
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.services.frameparser import (
    ACK,
    CHANNEL_CLOSE,
    DELIVER,
    GET_OK,
    NACK,
    PUBLISH,
    REJECT,
    TX_COMMIT,
    TX_SELECT,
    Frames,
    Message,
    Method,
    Section,
    section,
)
from tests.services.proxy import Direction, Hook, ProxyConnection

DELAYED: Final = b"route-delay"
"""What is published here waits in a tier, and goes on from there by the broker's own hand."""
THE_BROKER: Final = "the broker"
ON_ITS_WAY: Final = 0.5
"""Seconds before the end of a connection in which what was settled may not have arrived."""


@dataclass(frozen=True, slots=True)
class Life:
    """A message as it was published first, or one sending of a letter."""

    identity: str
    letter: str | None = None
    generation: int = 0


@dataclass(slots=True)
class Held:
    """A message in somebody's hands: a process's, or the broker's own."""

    life: Life
    holder: str
    since: float
    until: float = math.inf
    safe: bool = False
    """Whether it was acked or rejected, and its connection lived on: the broker knows of it."""
    in_doubt_until: float = 0.0
    """If it was settled just before its connection ended: when that was."""


class Wiretap:
    """Listens on every link. Each has one owner: a process, or those that do the same work."""

    def __init__(self) -> None:
        self._connections: dict[ProxyConnection, _Connection] = {}

    def hook_of(self, owner: str) -> Hook:
        """What a link calls with all that passes."""

        def hook(link: ProxyConnection, direction: Direction, data: bytes) -> None:
            if link not in self._connections:
                self._connections[link] = _Connection(owner)
            self._connections[link].heard(direction, data, time.time())

        return hook

    def held(self) -> list[Held]:
        """All that was held so far."""
        hands: dict[Life, list[Held]] = defaultdict(list)
        carried: list[tuple[Life, float]] = []
        for link, connection in self._connections.items():
            if link.ended is not None:
                connection.end(link.ended)
            carried += connection.carried
            for each in connection.held:
                hands[each.life].append(each)
        by_broker = []
        for life, since in carried:
            then = (each.since for each in hands[life] if each.since > since)
            by_broker.append(Held(life, THE_BROKER, since, min(then, default=math.inf)))
        return [*(each for some in hands.values() for each in some), *by_broker]


class _Connection:
    """What passes over one connection."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._uncommitted: dict[int, list[Held]] = {}  # by channel, of those in transactions
        self._frames = {direction: Frames() for direction in Direction}
        self._open: dict[int, dict[int, Held]] = defaultdict(dict)  # by channel and tag
        self.held: list[Held] = []
        self.carried: list[tuple[Life, float]] = []
        """What the broker carries on by itself, and since when: until its next delivery."""

    def heard(self, direction: Direction, data: bytes, at: float) -> None:
        for each in self._frames[direction].feed(data):
            if isinstance(each, Message):
                self._message(each, at)
            elif each.name == CHANNEL_CLOSE:
                self._closed(each.channel, at)
            elif direction is Direction.SENT and each.name in (ACK, NACK, REJECT):
                self._settled(each, at)
            elif direction is Direction.SENT and each.name == TX_SELECT:
                self._uncommitted[each.channel] = []
            elif direction is Direction.SENT and each.name == TX_COMMIT:
                self._acked(self._uncommitted.pop(each.channel), at)
                self._uncommitted[each.channel] = []

    def end(self, at: float) -> None:
        """The connection is gone: what it held goes back to the broker."""
        for channel in {*self._open, *self._uncommitted}:
            self._closed(channel, at)
        for held in self.held:
            if held.safe and at - held.until <= ON_ITS_WAY:
                held.safe, held.in_doubt_until = False, at

    def _closed(self, channel: int, at: float) -> None:
        some = [*self._open.pop(channel, {}).values(), *self._uncommitted.pop(channel, [])]
        self._given_back(some, at)

    def _message(self, message: Message, at: float) -> None:
        arguments = message.method.arguments
        if message.method.name == PUBLISH:
            if message.exchange == DELAYED:
                self.carried.append((life_of(section(message.properties)), at))
            return
        assert message.method.name in (DELIVER, GET_OK)
        behind = 1 + arguments[0] if message.method.name == DELIVER else 0
        (tag,) = struct.unpack_from(">Q", arguments, behind)
        held = Held(life_of(section(message.properties)), self._owner, at)
        self._open[message.method.channel][tag] = held
        self.held.append(held)

    def _settled(self, method: Method, at: float) -> None:
        tag, bits = struct.unpack_from(">QB", method.arguments)
        several = bool(bits & 1) and method.name != REJECT
        back = bool(bits & (1 if method.name == REJECT else 2)) and method.name != ACK
        some = list(self._taken(method.channel, tag, several=several))
        if method.name == ACK and method.channel in self._uncommitted:
            self._uncommitted[method.channel] += some
        elif method.name == ACK:
            self._acked(some, at)
        else:  # back to its queue, or on to where that dead-letters
            self._given_back(some, at, safe=not back)

    def _taken(self, channel: int, tag: int, *, several: bool) -> Iterator[Held]:
        """Those that a settlement is for; a tag of 0 with `several` means all."""
        open_ = self._open[channel]
        for each in [n for n in open_ if n == tag or (several and (n < tag or tag == 0))]:
            yield open_.pop(each)

    def _acked(self, some: list[Held], at: float) -> None:
        for held in some:
            held.until, held.safe = at, True

    def _given_back(self, some: list[Held], at: float, *, safe: bool = False) -> None:
        for held in some:
            held.until, held.safe = at, safe
            self.carried.append((held.life, at))


def life_of(found: Section) -> Life:
    """Whose copy it is, by its properties."""
    identity = found.properties.get("message_id", b"\0")[1:].decode(errors="replace")
    letter, generation = found.header(b"redrive-letter"), found.header(b"redrive-generation")
    if letter is None:
        return Life(identity)
    number = 0 if generation is None else int.from_bytes(generation[2])
    return Life(identity, letter[2][4:].decode(errors="replace"), number)
