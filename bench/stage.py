"""Where the benches take place: a private broker, queues on it, and an eye on both.

The parent process fills queues and looks at them over one connection of its own; what is measured
runs elsewhere. A mover that makes no progress for a minute fails the run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.figures import Sample
from bench.messages import dead_letters
from redrive.amqp import Channel, Confirmed, Outcome, Publish, connect, parse_addresses
from redrive.broker.private import PrivateNode

SOURCE, TARGET = "bench-source", "bench-target"
CORES = os.cpu_count() or 1
_LOOK_EVERY = 0.01
_STUCK_AFTER = 60.0
_WINDOW = 5_000
_CHUNK = 250
_CALM = 0.1
_CALM_TIMEOUT = 5.0


class BenchFailed(Exception):
    """What was to be measured did not happen."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A running broker with a channel to look at it."""

    node: PrivateNode
    channel: Channel
    version: str

    @property
    def url(self) -> str:
        return self.node.url()

    async def declare(self, queue: str, queue_type: str, **arguments: int | str) -> None:
        await self.channel.declare_queue(queue, arguments={"x-queue-type": queue_type, **arguments})

    async def delete(self, *queues: str) -> None:
        for queue in queues:
            await self.channel.delete_queue(queue)

    async def depth(self, queue: str) -> int:
        return (await self.channel.inspect_queue(queue))[0]

    async def fill(self, queue: str, count: int, *, first: int = 0) -> None:
        """Publish messages to a queue; returns when the broker has confirmed them all."""
        await self.publish(dead_letters(queue, count, first=first))

    async def publish(self, messages: Iterable[Publish], *, window: int = _WINDOW) -> None:
        """Publish messages, at most `window` of them unconfirmed; returns when none is."""
        connection = await connect(parse_addresses(self.url), name="bench fill")
        try:
            publisher = await (await connection.channel()).publisher()
            sent = confirmed = 0
            for publish in messages:
                publisher.publish(publish)
                sent += 1
                if sent % _CHUNK:
                    continue
                await publisher.ready()
                while sent - confirmed > window - _CHUNK:
                    confirmed += _all_confirmed(await publisher.next_outcomes())
            while confirmed < sent:
                confirmed += _all_confirmed(await publisher.next_outcomes())
        finally:
            await connection.close()

    async def calm(self) -> None:
        """Wait until the broker has digested what it got, so that no mover pays for the filling.

        The whole machine has to be calm, so that a neighbour's burst passes; but not for long.
        """
        deadline = time.monotonic() + _CALM_TIMEOUT
        while time.monotonic() < deadline:
            before, began = machine_busy(), time.monotonic()
            await asyncio.sleep(0.2)
            share = (machine_busy() - before) / (time.monotonic() - began) / CORES
            if share < _CALM:
                return

    async def watch(self, queue: str, count: int) -> list[Sample]:
        """Look at a queue until it has `count` messages; what was seen."""
        return await _until(count, lambda: self.depth(queue), f"{queue} has got")

    async def drain(self, queue: str, count: int) -> list[Sample]:
        """Look at a queue of `count` messages until none is ready; how many were gone, and when."""

        async def gone() -> int:
            return count - await self.depth(queue)

        return await _until(count, gone, f"{queue} has given")

    def broker_cpu(self) -> float:
        """Seconds of CPU that the broker has used."""
        times = psutil.Process(self.node.pid).cpu_times()
        return float(times.user + times.system)


async def _until(count: int, look: Callable[[], Awaitable[int]], what: str) -> list[Sample]:
    samples: list[Sample] = []
    progress_at = time.monotonic()
    while True:
        seen = await look()
        now = time.monotonic()
        if not samples or seen != samples[-1][1]:
            progress_at = now
        samples.append((now, seen))
        if seen >= count:
            return samples
        if now - progress_at > _STUCK_AFTER:
            raise BenchFailed(f"{what} {seen} of {count} messages and no more")
        await asyncio.sleep(_LOOK_EVERY)


def machine_busy() -> float:
    """Seconds of CPU that the machine has spent on anything, all cores together."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def own_cpu() -> float:
    """Seconds of CPU that this process, which looks on, has used."""
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


@asynccontextmanager
async def open_stage(root: Path | None) -> AsyncIterator[Stage]:
    """Start a broker, from a folder with a system in it if `root` is given; end it afterwards."""
    say("starting a private RabbitMQ")
    node = PrivateNode(root=root)
    try:
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(node.wait_ready)
        connection = await connect(parse_addresses(node.url()), name="bench")
        try:
            version = str(connection.server_properties.get("version", "unknown"))
            yield Stage(node, await connection.channel(), version)
        finally:
            await connection.close()
    finally:
        await asyncio.to_thread(node.close)


def say(text: str) -> None:
    """Progress, for people; stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def _all_confirmed(outcomes: Sequence[tuple[Publish, Outcome]]) -> int:
    for _, outcome in outcomes:
        if not isinstance(outcome, Confirmed):
            raise BenchFailed(f"filling a queue: {outcome}")
    return len(outcomes)
