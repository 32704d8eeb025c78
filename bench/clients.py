"""The parent's side of each client: start it, tell it to go, end it, learn what it used."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.movers import PREFETCH, Order
from bench.stage import BenchFailed, Stage

_END_TIMEOUT = 30.0
_SHOVEL = "parameters/shovel/%2F/bench"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a client's process used between `go` and its end."""

    cpu_s: float
    memory_mb: float


class Moving(Protocol):
    """A client at work."""

    async def go(self) -> None:
        """Begin to move."""

    async def finish(self) -> Usage | None:
        """End in good order: what was moved is acked. None where the client is the broker."""

    async def abandon(self) -> None:
        """End in any way. Nothing happens after `finish`."""


@dataclass(frozen=True, slots=True)
class Client:
    """One of those compared."""

    name: str
    module: str
    """The `bench.movers.by_…` that its process runs; empty for the shovel."""
    share: float
    """How much of the messages it gets: the slow ones fewer, the rate is what counts."""

    async def prepare(self, stage: Stage, order: Order) -> Moving:
        """Everything that can be done before the first message moves."""
        if not self.module:
            return Shovel(stage, order)
        return await MoverProcess.start("bench.movers", order, self.module)


CLIENTS = (
    Client("redrive", "redrive", 1.0),
    Client("shovel", "", 1.0),
    Client("aio-pika", "aio_pika", 0.1),
    Client("pika pipelined", "pika_pipelined", 0.25),
    Client("pika one at a time", "pika_one_at_a_time", 0.025),
)


class MoverProcess:
    """A client in a process of its own; see bench/movers/told.py for what is said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, entry: str, order: Order, *arguments: str) -> MoverProcess:
        """Start it; returns when it is ready to go."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            entry,
            order.url,
            order.source,
            order.target,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )
        mover = cls(process)
        if await mover.line() != "ready":
            await mover.abandon()
            raise BenchFailed(f"the process of {arguments[0]} did not start")
        return mover

    async def go(self) -> None:
        await self.tell("go")

    async def finish(self) -> Usage:
        await self.tell("stop")
        async with asyncio.timeout(_END_TIMEOUT):
            answer = await self.line()
            await self._process.wait()
        if not answer or self._process.returncode:
            raise BenchFailed(f"a mover's process ended with exit code {self._process.returncode}")
        return Usage(**json.loads(answer))

    async def abandon(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        await self._process.stdin.drain()

    async def line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()


class Shovel:
    """The broker's own mover, as its management page makes one."""

    _LAST_ACKS = 0.25  # it cannot be asked whether it has sent them

    def __init__(self, stage: Stage, order: Order) -> None:
        self._stage = stage
        self._order = order
        self._made = False

    async def go(self) -> None:
        value = {
            "src-protocol": "amqp091",
            "src-uri": "amqp://",  # a direct connection within the broker
            "src-queue": self._order.source,
            "src-prefetch-count": PREFETCH,
            "dest-protocol": "amqp091",
            "dest-uri": "amqp://",
            "dest-queue": self._order.target,
            "ack-mode": "on-confirm",
        }
        self._made = True
        await asyncio.to_thread(self._stage.node.api, "PUT", _SHOVEL, {"value": value})

    async def finish(self) -> None:
        await asyncio.sleep(self._LAST_ACKS)
        await self.abandon()

    async def abandon(self) -> None:
        if self._made:
            self._made = False
            await asyncio.to_thread(self._stage.node.api, "DELETE", _SHOVEL)
