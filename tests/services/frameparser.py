"""A second opinion on what passed over the wire: AMQP frames and properties, read by the test.

It shares no code with redrive.amqp, so that both being wrong in the same way is unlikely. It trusts
its input: what a broker and Redrive said to each other, seen by the proxy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

PUBLISH, DELIVER, GET_OK = (60, 40), (60, 60), (60, 71)
CHANNEL_CLOSE, TX_SELECT, TX_COMMIT = (20, 40), (90, 10), (90, 20)
ACK, REJECT, NACK = (60, 80), (60, 90), (60, 120)
PROPERTIES = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority"),
    *("correlation_id", "reply_to", "expiration", "message_id", "timestamp", "type"),
    *("user_id", "app_id", "cluster_id"),
)
SIZES = {b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"f": 4, b"D": 5, b"V": 0}
SIZES |= {b"l": 8, b"L": 8, b"d": 8, b"T": 8}


@dataclass(frozen=True, slots=True)
class Method:
    """A method frame: (class, method) and its arguments."""

    channel: int
    name: tuple[int, int]
    arguments: bytes


@dataclass(slots=True)
class Message:
    """A publish or a delivery with its content; of the body the digest, since bodies are many."""

    method: Method
    properties: bytes = b""
    size: int = 0
    digest: bytes = b""
    exchange: bytes = b""
    routing_key: bytes = b""
    redelivered: bool = False


@dataclass(slots=True)
class _Arriving:
    message: Message
    missing: int = 0
    hashing: object = field(default_factory=sha256)


class Frames:
    """Bytes in, in any pieces; whole methods and messages out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._arriving: dict[int, _Arriving] = {}
        self._greeting = True

    def feed(self, data: bytes) -> Iterator[Method | Message]:
        self._rest += data
        if self._greeting and self._rest:
            if self._rest[:4] == b"AMQP"[: len(self._rest)]:
                if len(self._rest) < 8:
                    return
                del self._rest[:8]
            self._greeting = False
        position = 0
        while len(self._rest) - position >= 8:
            kind, channel, size = struct.unpack_from(">BHI", self._rest, position)
            end = position + 7 + size
            if end >= len(self._rest):
                break
            assert self._rest[end] == 0xCE, "a frame that does not end where it says"
            payload = bytes(self._rest[position + 7 : end])
            position = end + 1
            yield from self._frame(kind, channel, payload)
        del self._rest[:position]

    def _frame(self, kind: int, channel: int, payload: bytes) -> Iterator[Method | Message]:
        if kind == 1:
            method = Method(channel, struct.unpack_from(">HH", payload), payload[4:])
            if method.name in (PUBLISH, DELIVER, GET_OK):
                self._arriving[channel] = _Arriving(_opened(method))
            else:
                yield method
            return
        if kind not in (2, 3) or channel not in self._arriving:
            return
        arriving = self._arriving[channel]
        message = arriving.message
        hashing = arriving.hashing
        if kind == 2:
            message.size = arriving.missing = struct.unpack_from(">Q", payload, 4)[0]
            message.properties = payload[12:]
        else:
            hashing.update(payload)  # type: ignore[attr-defined]  # hashlib's type has no name
            arriving.missing -= len(payload)
        if arriving.missing == 0:
            message.digest = hashing.digest()  # type: ignore[attr-defined]
            del self._arriving[channel]
            yield message


def _opened(method: Method) -> Message:
    arguments = method.arguments
    position, redelivered = 2, False
    if method.name != PUBLISH:
        position = 1 + arguments[0] if method.name == DELIVER else 0
        redelivered = arguments[position + 8] != 0
        position += 9
    exchange, position = _shortstr(arguments, position)
    routing_key, position = _shortstr(arguments, position)
    return Message(method, exchange=exchange, routing_key=routing_key, redelivered=redelivered)


def _shortstr(data: bytes, position: int) -> tuple[bytes, int]:
    end = position + 1 + data[position]
    return data[position + 1 : end], end


Header = tuple[bytes, bytes, bytes]
"""Name, type letter, payload."""


@dataclass(frozen=True, slots=True)
class Section:
    """A property section, taken apart."""

    properties: dict[str, bytes]
    headers: list[Header]

    def header(self, name: bytes) -> Header | None:
        return next((each for each in self.headers if each[0] == name), None)


def section(raw: bytes) -> Section:
    """Take a property section apart, entry by entry."""
    (flags,) = struct.unpack_from(">H", raw)
    position = 2
    found: dict[str, bytes] = {}
    headers: list[Header] = []
    for bit, name in enumerate(PROPERTIES):
        if not flags & 0x8000 >> bit:
            continue
        if name == "headers":
            end = position + 4 + struct.unpack_from(">I", raw, position)[0]
            headers = list(_entries(raw, position + 4, end))
        elif name in ("delivery_mode", "priority"):
            end = position + 1
        elif name == "timestamp":
            end = position + 8
        else:
            end = position + 1 + raw[position]
        if name != "headers":
            found[name] = raw[position:end]
        position = end
    assert position == len(raw), "bytes behind the last property"
    return Section(found, headers)


def _entries(raw: bytes, position: int, end: int) -> Iterator[Header]:
    while position < end:
        name, position = _shortstr(raw, position)
        letter = raw[position : position + 1]
        position += 1
        size = SIZES.get(letter)
        if size is None:
            assert letter in b"SAFx", f"unknown type {letter!r}"
            size = 4 + struct.unpack_from(">I", raw, position)[0]
        yield name, letter, raw[position : position + size]
        position += size
    assert position == end, "a header crosses the end of its table"
