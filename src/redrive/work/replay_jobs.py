"""Replays that nobody runs are run by a worker: those that were left to it, and those whose process
died. One at a time; one that a breaker holds is left, so that others have their turn. One that was
cut short because the store was away goes on as soon as it is back, and waits for no lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog

from redrive.amqp.supervision import supervise
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Replay, read_destination
from redrive.errors import BrokerError, OrderRefused, StoreError, StoreUnreachable
from redrive.store.replays import Replays
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from redrive.work.room_ahead import RoomAhead
from redrive.work.sender import Sender

log = structlog.get_logger()

_LOOK_EVERY: Final = 1.0


class ReplayJobs:
    """Takes jobs until told to stop."""

    def __init__(  # noqa: PLR0913  (what it works with, each by its name)
        self,
        worker_id: str,
        vhost: str,
        replays: Replays,
        make_sender: Callable[[], Sender],
        policies: Callable[[], PolicyBook],
        *,
        lease: timedelta,
        verdict_after: timedelta,
        make_room: Callable[[], RoomAhead] | None = None,
    ) -> None:
        """`make_room`: makes what knows of room in queues; None if that does not matter."""
        self._id = worker_id
        self._vhost = vhost
        self._replays = replays
        self._make_sender = make_sender
        self._policies = policies
        self._lease = lease
        self._verdict_after = verdict_after
        self._make_room = make_room
        self._stopping = asyncio.Event()
        self._outage = ""

    def stop(self) -> None:
        """Ask for an orderly end: the batch in hand is finished, the job left to others."""
        self._stopping.set()

    async def run(self) -> None:
        """Take and run jobs until `stop`, through every loss of the broker and the store."""
        ours: Replay | None = None
        while not self._stopping.is_set():
            try:
                if ours is None:
                    ours = await self._take()
                if ours is not None:
                    await self._run(ours)
                    ours = None
                self._outage = ""
            except StoreError as error:
                self._say(error)
                if not isinstance(error, StoreUnreachable):
                    # It may be the job's own fault: others have their turn until its lease ends.
                    ours = None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_EVERY)

    async def _take(self) -> Replay | None:
        replay = await self._replays.take(self._vhost, self._id, self._lease)
        if replay is not None:
            log.info("replay.taken", replay=replay.id, left=replay.letters - replay.position)
        return replay

    async def _run(self, replay: Replay) -> None:
        room = None if self._make_room is None else self._make_room()

        async def session() -> None:
            sender = self._make_sender()
            try:
                await sender.open()
                runner = ReplayRunner(
                    self._id,
                    self._replays,
                    sender,
                    verdict_after=self._verdict_after,
                    stopping=self._stopping,
                    lease=self._lease,
                    waits=False,
                    room=room,
                )
                redirect = read_destination(replay.destination) if replay.destination else None
                try:
                    current = await self._replays.begin(replay.id, self._id, self._lease)
                except OrderRefused:
                    return  # paused, cancelled or taken over while the broker was away
                await runner.run(current, destinations(self._policies, redirect))
                await sender.close()
            finally:
                sender.abort()

        try:
            await supervise(
                session, on_lost=lambda error, _: self._say(error), stopping=self._stopping
            )
        finally:
            if room is not None:
                room.close()
        await self._replays.release(replay.id, self._id)
        log.info("replay.left", replay=replay.id)

    def _say(self, error: BrokerError | StoreError) -> None:
        if str(error) != self._outage:  # one line for an outage, not one for every try
            self._outage = str(error)
            log.warning("replay.waits", error=str(error), remedy=error.remedy)
