"""A TCP proxy that misbehaves on request: cut, stall, delay, throttle, record.

It runs under the test's own event loop. `cut` resets connections (RST, not an orderly end), as when
a machine vanishes and comes back. While `half_open` nothing passes, ends of streams included, and
nobody is told; what was sent meanwhile arrives after `flow`, as it does when a network heals.
Memory is bounded: a side that does not read stops the other side from sending.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from redrive.broker.processes import free_ports

CHUNK = 64 * 1024
QUEUED = 64  # chunks on their way in one direction


class Direction(Enum):
    """Seen from the client."""

    SENT = "sent"
    RECEIVED = "received"


Hook = Callable[["ProxyConnection", Direction, bytes], bytes | None]


class ProxyConnection:
    """One client's connection through the proxy. `sent` is what the client sent."""

    def __init__(self, proxy: Proxy, number: int) -> None:
        self.number = number
        self.sent = bytearray()
        self.received = bytearray()
        self.count = {Direction.SENT: 0, Direction.RECEIVED: 0}
        self.closed = asyncio.Event()
        self.ended: float | None = None
        """When, by the machine's clock."""
        self.answers = asyncio.Event()
        """Cleared, it holds back what the server sends to this client, until it is set again."""
        self.answers.set()
        self._proxy = proxy
        self._cut = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """Reset both sides. What they had not read yet may be lost to them."""
        self._cut.set()
        for writer in self._writers:
            _reset(writer)

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward until both sides have ended, or one is lost, or it is cut."""
        self._writers.append(writer)
        tasks: list[asyncio.Task[object]] = []
        try:
            upstream, to_upstream = await asyncio.open_connection(*self._proxy.target)
            self._writers.append(to_upstream)
            for each in self._writers:
                each.transport.set_write_buffer_limits(high=0)  # drain() then means handed over
            ends = asyncio.gather(
                self._pump(upstream, writer, Direction.RECEIVED),
                self._pump(reader, to_upstream, Direction.SENT),
            )
            tasks = [asyncio.ensure_future(ends), asyncio.create_task(self._cut.wait())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done() and tasks[0].exception() is not None:
                self.cut()
        except OSError:
            self.cut()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in self._writers:
                each.close()
                with suppress(OSError):
                    await each.wait_closed()
            self.ended = time.time()
            self.closed.set()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Read and write at once, so that a delay is a delay and not a lower speed."""
        loop = asyncio.get_running_loop()
        underway: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED)

        async def read() -> None:
            data = b"?"
            while data:
                data = await reader.read(CHUNK)
                await underway.put((loop.time(), data))

        async def write() -> None:
            while True:
                arrived, data = await underway.get()
                await self._proxy.hold(arrived)
                if direction is Direction.RECEIVED:
                    await self.answers.wait()
                if not data:
                    if writer.can_write_eof():
                        writer.write_eof()
                    return
                await self._forward(data, writer, direction)

        # a TaskGroup: when one of the two fails the other ends with it
        async with asyncio.TaskGroup() as both:
            both.create_task(read())
            both.create_task(write())

    async def _forward(
        self, data: bytes, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        proxy = self._proxy
        if proxy.hook is not None:
            changed = proxy.hook(self, direction, data)
            data = data if changed is None else changed
        limit = proxy.limits.get(direction)
        if limit is not None and self.count[direction] + len(data) >= limit:
            data = data[: max(0, limit - self.count[direction])]
        while data and not self._cut.is_set():
            speed = proxy.bytes_per_second
            size = CHUNK if speed is None else max(1, min(CHUNK, int(speed / 20)))
            piece, data = data[:size], data[size:]
            self.count[direction] += len(piece)
            if proxy.recording:
                record = self.sent if direction is Direction.SENT else self.received
                record.extend(piece)
            writer.write(piece)
            await writer.drain()
            if speed is not None:
                await asyncio.sleep(len(piece) / speed)
        if limit is not None and self.count[direction] >= limit:
            self.cut()


class Proxy:
    """Listens on a free loopback port and forwards to `host`:`port`."""

    def __init__(self, host: str, port: int, *, recording: bool = False) -> None:
        self.target = (host, port)
        self.host = "127.0.0.1"
        (self.port,) = free_ports(1)
        self.recording = recording
        self.connections: list[ProxyConnection] = []
        self.bytes_per_second: float | None = None
        self.limits: dict[Direction, int] = {}
        self.hook: Hook | None = None
        self._delay = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> list[ProxyConnection]:
        """The connections that have not ended."""
        return [each for each in self.connections if not each.closed.is_set()]

    def through(self, url: str) -> str:
        """The same URL with this proxy's address in place of the server's."""
        parts = urlsplit(url)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{user}{self.host}:{self.port}"))

    async def accept(self) -> None:
        """Take connections (again)."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, self.host, self.port)

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED) until `accept`. Those that are open stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def cut(self, *, refuse: bool = False) -> None:
        """Reset every connection; with `refuse`, take no new one until `accept`."""
        if refuse:
            self.refuse()
        for connection in self.open:
            connection.cut()

    def cut_after(self, *, sent: int | None = None, received: int | None = None) -> None:
        """Let each connection pass that many bytes, counted from its beginning, and cut it there.

        `cut_after()` takes it back.
        """
        wanted = {Direction.SENT: sent, Direction.RECEIVED: received}
        self.limits = {way: limit for way, limit in wanted.items() if limit is not None}

    def half_open(self) -> None:
        """Pass nothing and say nothing, until `flow`. New connections are taken and hang too."""
        self._flowing.clear()

    def flow(self) -> None:
        """Let everything pass again."""
        self._flowing.set()

    def delay(self, seconds: float) -> None:
        """Let everything arrive this much later, in each direction."""
        self._delay = seconds

    def throttle(self, bytes_per_second: float | None) -> None:
        """Limit the speed of each direction of each connection; None lifts it."""
        self.bytes_per_second = bytes_per_second

    async def hold(self, arrived: float) -> None:
        """Wait for as long as a chunk that arrived at that time has to."""
        late = arrived + self._delay - asyncio.get_running_loop().time()
        if late > 0:
            await asyncio.sleep(late)
        await self._flowing.wait()

    async def close(self) -> None:
        """Cut everything and stop listening. Safe to call twice."""
        self.cut(refuse=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ProxyConnection(self, len(self.connections))
        self.connections.append(connection)
        task = asyncio.ensure_future(connection.run(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: a socket that lingers for zero seconds sends one in place of a FIN."""
    handle = writer.get_extra_info("socket")
    if handle is not None and handle.fileno() >= 0:
        # a duplicate, since uvloop's own socket object has no setsockopt; the option is shared
        with socket.socket(fileno=os.dup(handle.fileno())) as twin:
            twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
