"""A connection without a broker: bytes are fed in by hand, what is written is kept.

Only for what no broker would do or say on demand: nonsense, and every way to cut a stream.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from pamqp import base, commands

from redrive.amqp import (
    Budget,
    Channel,
    Connection,
    Consumer,
    Publisher,
    frames,
    parse_addresses,
)
from redrive.amqp.wire import Wire

T = TypeVar("T")
CHANNEL = 1


class StubTransport(asyncio.Transport):
    """Takes everything, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Stub:
    """A connection on a stub transport."""

    def __init__(self) -> None:
        (address,) = parse_addresses("amqp://nowhere/")
        self.connection = Connection(address, "stub")
        self.transport = StubTransport()
        self.wire: Wire = self.connection._wire
        self.wire.connection_made(self.transport)
        self.wire.frame_max = 4096

    def feed(self, data: bytes) -> None:
        """Hand in bytes as a transport would: nothing more once it is closed."""
        if not self.transport.closed:
            self.wire.data_received(data)

    async def answered(self, call: Awaitable[T], replies: Sequence[bytes]) -> T:
        """Make a call, and feed it its answers one by one."""
        task = asyncio.ensure_future(call)
        for reply in replies:
            await asyncio.sleep(0)
            self.feed(reply)
            await asyncio.sleep(0)
        return await task

    async def channel(self) -> Channel:
        return await self.answered(self.connection.channel(), [method(commands.Channel.OpenOk())])

    async def consumer(self, channel: Channel, *, budget: Budget | None = None) -> Consumer:
        replies = [
            method(commands.Basic.QosOk(), channel.number),
            method(commands.Basic.ConsumeOk(consumer_tag="any"), channel.number),
        ]
        return await self.answered(channel.consume("q", prefetch=10, budget=budget), replies)

    async def publisher(self, channel: Channel) -> Publisher:
        return await self.answered(
            channel.publisher(), [method(commands.Confirm.SelectOk(), channel.number)]
        )


# What a broker says


def method(each: base.Frame, channel: int = CHANNEL) -> bytes:
    return frames.encode_method(each, channel)


def content(
    properties: bytes, body: bytes, *, channel: int = CHANNEL, pieces: Sequence[int] = ()
) -> bytes:
    """Header and body frames, the body cut at `pieces`."""
    head = (60).to_bytes(2) + b"\x00\x00" + len(body).to_bytes(8) + properties
    bounds = [0, *sorted({at for at in pieces if 0 < at < len(body)}), len(body)]
    chunks = [body[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    return frame(frames.HEADER, channel, head) + b"".join(
        frame(frames.BODY, channel, chunk) for chunk in chunks
    )


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return frames.HEAD.pack(kind, channel, len(payload)) + payload + frames.END_BYTE


def deliver(
    consumer: Consumer,
    tag: int,
    routing_key: str,
    properties: bytes,
    body: bytes,
    pieces: Sequence[int] = (),
) -> bytes:
    said = commands.Basic.Deliver(
        consumer_tag=consumer._tag, delivery_tag=tag, exchange="e", routing_key=routing_key
    )
    return method(said) + content(properties, body, pieces=pieces)


def give_back(
    routing_key: str, properties: bytes, body: bytes, pieces: Sequence[int] = ()
) -> bytes:
    said = commands.Basic.Return(
        reply_code=312, reply_text="NO_ROUTE", exchange="e", routing_key=routing_key
    )
    return method(said) + content(properties, body, pieces=pieces)
