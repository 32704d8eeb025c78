"""The parent's side of each client: start it, tell it to go, end it, learn what it used."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from bench.movers import PREFETCH, Order
from bench.stage import BenchFailed, Stage

_END_TIMEOUT = 30.0
_SHOVEL_PATH = "parameters/shovel/%2F/bench"
_NO_HOST = "amqp://"
"""Without a host, a shovel's connections are calls within the broker: no socket, no frames."""

SHOVEL, SHOVEL_INSIDE = "shovel", "shovel inside the broker"


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
    """The `bench.movers.by_…` that its process runs; empty for a shovel."""
    share: float
    """How much of the messages it gets: the slow ones fewer, the rate is what counts."""
    url: str = ""
    """Where it connects to, if not where all others do."""

    async def prepare(self, stage: Stage, order: Order) -> Moving:
        """Everything that can be done before the first message moves."""
        if not self.module:
            return Shovel(stage, replace(order, url=self.url or order.url))
        return await MoverProcess.start("bench.movers", order, self.module)


SHOVELS = (
    Client(SHOVEL, "", 1.0),
    Client(SHOVEL_INSIDE, "", 1.0, url=_NO_HOST),
)
CLIENTS = (
    Client("redrive", "redrive", 1.0),
    *SHOVELS,
    Client("aio-pika", "aio_pika", 0.1),
    Client("pika pipelined", "pika_pipelined", 0.25),
    Client("pika one at a time", "pika_one_at_a_time", 0.025),
)


def in_full(name: str) -> str:
    """A client's name where no table beside it says how it connects."""
    return "shovel over TCP" if name == SHOVEL else name


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

    @property
    def pid(self) -> int:
        return self._process.pid

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


async def start_retrier(stage: Stage, tiers: str, queue: str) -> MoverProcess:
    """The product's retrier with these tiers, serving one queue, or `all`."""
    order = Order(stage.url, "-", "-")
    return await MoverProcess.start("bench.movers.retrier", order, tiers, queue)


class Shovel:
    """The broker's own mover. It connects as its order's URL says, on both sides."""

    _LAST_ACKS = 0.25  # it cannot be asked whether it has sent them

    def __init__(self, stage: Stage, order: Order) -> None:
        self._stage = stage
        self._order = order
        self._made = False

    async def go(self) -> None:
        self._made = True
        definition = {"value": shovel_definition(self._order)}
        await asyncio.to_thread(self._stage.node.api, "PUT", _SHOVEL_PATH, definition)

    async def finish(self) -> None:
        await asyncio.sleep(self._LAST_ACKS)
        await self.abandon()

    async def abandon(self) -> None:
        if self._made:
            self._made = False
            await asyncio.to_thread(self._stage.node.api, "DELETE", _SHOVEL_PATH)


def shovel_definition(order: Order) -> dict[str, Any]:
    """The parameters of a shovel that moves as the order says."""
    target = {"dest-queue": order.target}
    if order.key:
        target = {"dest-exchange": order.target, "dest-exchange-key": order.key}
    return {
        "src-protocol": "amqp091",
        "src-uri": order.url,
        "src-queue": order.source,
        "src-prefetch-count": PREFETCH,
        "dest-protocol": "amqp091",
        "dest-uri": order.url,
        **target,
        "ack-mode": "on-confirm",
    }
