"""The janitor: what has to be done now and then, by any process, never by a person.

Each chore has its own rhythm and its own outages: one that cannot be done for now is tried again at
its next turn, and does not keep the others from being done. Any number of janitors may run: none
needs the others to be away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from redrive.errors import RedriveError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Chore:
    """What to do, and every how many seconds."""

    name: str
    every: float
    do: Callable[[], Awaitable[object]]


class Janitor:
    """Does its chores until told to stop, through every loss of the store and the broker."""

    def __init__(self, chores: Sequence[Chore]) -> None:
        self._chores = chores

    async def run(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            for chore in self._chores:
                tasks.create_task(_repeat(chore, stopping))


async def _repeat(chore: Chore, stopping: asyncio.Event) -> None:
    outage = ""
    while not stopping.is_set():
        try:
            await chore.do()
            outage = ""
        except RedriveError as error:
            if str(error) != outage:  # one line for an outage, not one for every try
                outage = str(error)
                log.warning("janitor.put_off", chore=chore.name, error=outage, remedy=error.remedy)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), chore.every)
