"""The collector's role: one `Collector` for every queue that is to be collected.

Queues are named, or meant by globs; those are looked up now and then, so that a queue that is made
later is found, and one that is gone is left. A queue that is named is collected as soon as it is
there. Redrive's own waiting queues are never collected, whatever a glob means: what waits in them
is not dead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import structlog

from redrive.domain.globs import is_glob, matching
from redrive.errors import BrokerError
from redrive.work.collector import Collector

log = structlog.get_logger()

_LOOK_EVERY: Final = 30.0

ListQueues = Callable[[], Awaitable[list[str]]]


class QueueCollection:
    """Collects queues by name and by glob, until told to stop."""

    def __init__(
        self,
        queues: Sequence[str],
        make: Callable[[str], Collector],
        *,
        list_queues: ListQueues | None,
        never: Collection[str] = (),
    ) -> None:
        """`list_queues` names every queue of the broker; without it, globs mean nothing.
        `never` are queues that no glob means."""
        self._names = [queue for queue in queues if not is_glob(queue)]
        self._globs = [queue for queue in queues if is_glob(queue)]
        self._make = make
        self._list_queues = list_queues
        self._never = never
        self._running: dict[str, tuple[Collector, asyncio.Task[None]]] = {}

    async def run(self, stopping: asyncio.Event) -> None:
        """Collect until `stopping` is set. Raises what ended a collector for good."""
        if self._globs and self._list_queues is None:
            log.warning(
                "collector.globs_unused",
                globs=self._globs,
                remedy="set [broker] management_url: only the management API lists queues",
            )
        async with asyncio.TaskGroup() as tasks:
            for name in self._names:
                self._begin(name, tasks)
            while not stopping.is_set():
                await self._look(tasks)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), _LOOK_EVERY)
            for collector, _ in self._running.values():
                collector.stop()

    def _begin(self, name: str, tasks: asyncio.TaskGroup) -> None:
        if name not in self._running:
            collector = self._make(name)
            self._running[name] = collector, tasks.create_task(collector.run())

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        """Begin with queues that are there by now, end with those that are gone."""
        if not self._globs or self._list_queues is None:
            return
        try:
            there = await self._list_queues()
        except BrokerError as error:
            log.warning("collector.queues_unread", error=str(error), remedy=error.remedy)
            return
        meant = {name for glob in self._globs for name in matching(glob, there)}
        for name in sorted(meant - set(self._never)):
            self._begin(name, tasks)
        for name in sorted(self._running.keys() - meant - set(self._names)):
            collector, _ = self._running.pop(name)
            collector.stop()
