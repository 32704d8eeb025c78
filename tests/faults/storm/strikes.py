"""Faults strike, one lane after its own order, and each is mended before the next of its lane.

What is noted is what happened: from the moment before the blow to the moment all was there again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final
from urllib.parse import quote

import psycopg

from redrive.broker.private import PrivateNode
from redrive.errors import BrokerError, CannotStart
from tests.faults.storm.journal import Journal, Struck
from tests.faults.storm.plan import BROKER, OPERATOR, Fault, Trouble
from tests.faults.storm.world import CONNECTIONS, VHOST, World
from tests.services.proxy import Proxy

Blow = Callable[["Strikes", Fault], AbstractAsyncContextManager[str]]
"""Strikes when entered, and mends when left. What it says goes into the notes."""
ALARM: Final = """
Set = fun(Part) -> vm_memory_monitor:set_vm_memory_high_watermark(Part) end,
Set(0.0), spawn(fun() -> timer:sleep({milliseconds}), Set(0.3) end).
"""
"""Afterwards the watermark is what a private node begins with."""


class Strikes:
    """Carries out the faults of a plan."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal

    async def strike_all(self, lane: Sequence[Fault]) -> None:
        """The faults of one lane, each at its time or later."""
        for fault in lane:
            await asyncio.sleep(max(0.0, self._journal.began + fault.at - time.time()))
            await self._strike(fault)

    async def _strike(self, fault: Fault) -> None:
        began = time.time()
        async with BLOWS[fault.trouble](self, fault) as note:
            await asyncio.sleep(fault.lasts)
        self._journal.struck.append(Struck(fault, began, time.time(), note))

    # Processes

    @asynccontextmanager
    async def process_killed(self, fault: Fault) -> AsyncIterator[str]:
        if fault.target == OPERATOR:
            command = self._world.command
            if command is not None:
                command.kill()
            yield "" if command is not None else "no command ran"
            return
        member = self._world.members[fault.target]
        note = await asyncio.to_thread(member.kill)
        if note:
            self._journal.problems.append(f"{member.name}: {note}")
        yield note
        await asyncio.to_thread(member.start)

    @asynccontextmanager
    async def slow_consumers(self, _: Fault) -> AsyncIterator[str]:
        self._world.slow.touch()
        try:
            yield ""
        finally:
            self._world.slow.unlink()

    # The broker

    @asynccontextmanager
    async def nodes_killed(self, nodes: Sequence[PrivateNode]) -> AsyncIterator[str]:
        await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
        try:
            yield ", ".join(node.name.partition("@")[0].rpartition("-")[2] for node in nodes)
        finally:
            for node in nodes:
                node.start()
            await asyncio.gather(*(asyncio.to_thread(node.wait_ready) for node in nodes))

    def broker_killed(self, fault: Fault) -> AbstractAsyncContextManager[str]:
        return self.nodes_killed([self._world.nodes[int(fault.target)]])

    @asynccontextmanager
    async def leader_lost(self, fault: Fault) -> AsyncIterator[str]:
        first, *_ = nodes = self._world.nodes
        try:
            path = f"queues/{VHOST}/{quote(fault.target, safe='')}"
            leader = (await asyncio.to_thread(first.api, "GET", path))["leader"]
        except (BrokerError, KeyError):
            leader = None
        node = next((node for node in nodes if node.name == leader), first)
        async with self.nodes_killed([node]) as name:
            known = f"{name}, of {fault.target}"
            yield known if node.name == leader else f"not known which it is: {name}"

    def majority_lost(self, fault: Fault) -> AbstractAsyncContextManager[str]:
        survivor = self._world.nodes[int(fault.target)]
        return self.nodes_killed([node for node in self._world.nodes if node is not survivor])

    @asynccontextmanager
    async def memory_alarm(self, fault: Fault) -> AsyncIterator[str]:
        """The node itself ends it: a second rabbitmqctl would take longer than the alarm."""
        node = self._world.nodes[int(fault.target)]
        alarm = ALARM.format(milliseconds=int(fault.lasts * 1000))
        await asyncio.to_thread(node.ctl, "eval", alarm)
        yield ""

    # The network

    def _links(self, fault: Fault) -> list[Proxy]:
        world = self._world
        return world.broker_links if fault.target == BROKER else [world.database_link]

    @asynccontextmanager
    async def cut(self, fault: Fault) -> AsyncIterator[str]:
        links = self._links(fault)
        for link in links:
            link.cut(refuse=True)
        try:
            yield ""
        finally:
            for link in links:
                await link.accept()

    @asynccontextmanager
    async def delayed(self, fault: Fault) -> AsyncIterator[str]:
        links = self._links(fault)
        for link in links:
            link.delay(0.4)
        try:
            yield ""
        finally:
            for link in links:
                link.delay(0.0)

    @asynccontextmanager
    async def half_open(self, fault: Fault) -> AsyncIterator[str]:
        """Nothing passes and nobody is told. If the network heals, what was sent meanwhile
        arrives; else the connections turn out to be dead."""
        links = self._links(fault)
        for link in links:
            link.half_open()
        try:
            yield "and healed" if fault.heals else "and then dead"
        finally:
            for link in links:
                if not fault.heals:
                    link.cut()
                link.flow()

    # The database

    @asynccontextmanager
    async def database_killed(self, _: Fault) -> AsyncIterator[str]:
        await asyncio.to_thread(self._world.postgres.kill)
        try:
            yield ""
        finally:
            await asyncio.to_thread(self._world.postgres.start)

    @asynccontextmanager
    async def connection_limit(self, _: Fault) -> AsyncIterator[str]:
        """Every connection is taken, and those that Redrive had are gone."""
        world, taken = self._world, list[psycopg.Connection]()
        try:
            await asyncio.to_thread(self._take_connections, taken)
            world.database_link.cut()
            await asyncio.to_thread(self._take_connections, taken)
            yield f"{len(taken)} taken"
        finally:
            for each in taken:
                each.close()

    def _take_connections(self, taken: list[psycopg.Connection]) -> None:
        for _ in range(CONNECTIONS):
            try:
                taken.append(psycopg.connect(self._world.store_url, connect_timeout=5))
            except psycopg.OperationalError:
                return

    @asynccontextmanager
    async def disk_full(self, _: Fault) -> AsyncIterator[str]:
        disk, postgres = self._world.disk, self._world.postgres
        if disk is None:
            yield "not struck: only root can mount a small disk"
            return
        await asyncio.to_thread(disk.fill)
        try:
            yield ""
        finally:
            disk.free()
            # A server that cannot write ends by itself, now or in a moment.
            with contextlib.suppress(CannotStart):
                await asyncio.to_thread(postgres.wait_ready)
            await asyncio.to_thread(postgres.start)


BLOWS: Final[dict[Trouble, Blow]] = {
    Trouble.PROCESS_KILLED: Strikes.process_killed,
    Trouble.BROKER_KILLED: Strikes.broker_killed,
    Trouble.LEADER_LOST: Strikes.leader_lost,
    Trouble.MAJORITY_LOST: Strikes.majority_lost,
    Trouble.MEMORY_ALARM: Strikes.memory_alarm,
    Trouble.CUT: Strikes.cut,
    Trouble.DELAY: Strikes.delayed,
    Trouble.HALF_OPEN: Strikes.half_open,
    Trouble.DATABASE_KILLED: Strikes.database_killed,
    Trouble.CONNECTION_LIMIT: Strikes.connection_limit,
    Trouble.DISK_FULL: Strikes.disk_full,
    Trouble.SLOW_CONSUMERS: Strikes.slow_consumers,
}
