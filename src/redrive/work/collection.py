"""The collector's role: one `Collector` for every queue that is to be collected.

Queues are named, or meant by globs; those are looked up now and then, so that a queue that is made
later is found, and one that is gone is left. A queue that is named is collected as soon as it is
there. Redrive's own waiting queues, those of the SDK too, are never collected, whatever a glob
means: what waits in them is not dead. Nor is a stream: it keeps what is read, and gives a consumer
what comes from now on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Final

import structlog

from redrive.domain.globs import is_glob, matching
from redrive.errors import BrokerError
from redrive.work.collector import NO_STREAMS, Collector

log = structlog.get_logger()

_LOOK_EVERY: Final = 30.0
_TOLD_WITHIN: Final = 1.0
"""Seconds for which queues that are named wait to be known as none that is a stream."""

ListQueues = Callable[[], Awaitable[Mapping[str, str]]]
"""The queues of a broker, and the type of each."""


class QueueCollection:
    """Collects queues by name and by glob, until told to stop."""

    def __init__(
        self,
        queues: Sequence[str],
        make: Callable[[str], Collector],
        *,
        list_queues: ListQueues | None,
        never: Container[str] = (),
    ) -> None:
        """Without `list_queues`, globs mean nothing, and what is named is not known to be a stream.
        `never` are queues that no glob means."""
        self._names = [queue for queue in queues if not is_glob(queue)]
        self._globs = [queue for queue in queues if is_glob(queue)]
        self._make = make
        self._list_queues = list_queues
        self._never = never
        self._running: dict[str, tuple[Collector, asyncio.Task[None]]] = {}
        self._streams: set[str] = set()  # those that are named, and of which that was told

    async def run(self, stopping: asyncio.Event) -> None:
        """Collect until `stopping` is set. Raises what ended a collector for good."""
        if self._globs and self._list_queues is None:
            log.warning(
                "collector.globs_unused",
                globs=self._globs,
                remedy="set [broker] management_url: only the management API lists queues",
            )
        async with asyncio.TaskGroup() as tasks:
            while not stopping.is_set():
                await self._look(tasks, stopping)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), _LOOK_EVERY)
            for collector, _ in self._running.values():
                collector.stop()

    def _begin(self, name: str, tasks: asyncio.TaskGroup) -> None:
        if name not in self._running:
            collector = self._make(name)
            self._running[name] = collector, tasks.create_task(collector.run())

    async def _look(self, tasks: asyncio.TaskGroup, stopping: asyncio.Event) -> None:
        """Begin with queues that are there by now, end with those that are gone. What is named
        waits for no broker that does not tell what there is."""
        listing = asyncio.ensure_future(self._listed())
        stopped = asyncio.ensure_future(stopping.wait())
        either = (listing, stopped)
        try:
            await asyncio.wait(either, timeout=_TOLD_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            there = listing.result() if listing.done() else None
            if there is None and not stopping.is_set():
                for name in self._names:
                    if name not in self._streams:
                        self._begin(name, tasks)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            there = listing.result() if listing.done() else None
            if there is not None:
                self._go_by(there, tasks)
        finally:
            listing.cancel()
            stopped.cancel()

    def _go_by(self, there: Mapping[str, str], tasks: asyncio.TaskGroup) -> None:
        streams = {name for name, kind in there.items() if kind == "stream"}
        self._refuse(streams.intersection(self._names))
        by_glob = {name for glob in self._globs for name in matching(glob, sorted(there))}
        meant = {*(name for name in by_glob if name not in self._never), *self._names} - streams
        for name in sorted(meant):
            self._begin(name, tasks)
        for name in sorted(self._running.keys() - meant):
            collector, _ = self._running.pop(name)
            collector.stop()

    async def _listed(self) -> Mapping[str, str] | None:
        if self._list_queues is None:
            return None
        try:
            return await self._list_queues()
        except BrokerError as error:
            if self._globs:  # what is named is collected all the same
                log.warning("collector.queues_unread", error=str(error), remedy=error.remedy)
            return None

    def _refuse(self, streams: set[str]) -> None:
        for name in sorted(streams - self._streams):
            log.error("collector.stream", queue=name, remedy=NO_STREAMS)
        self._streams = streams
