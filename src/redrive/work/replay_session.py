"""A replay in the process of the person who asked for it.

What it guarantees, beside what `replay.py` does:
- The broker lost: the job waits, and goes on when it is back.
- Told to stop: the batch in hand is finished, and the job is paused.
- The store lost, or anything else: the error is raised, and the job is left to whoever takes it.
- A job whose process died is taken over only when its lease has ended without a sign of life.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import structlog

from redrive.amqp import Connection
from redrive.amqp.supervision import OnLost, supervise
from redrive.domain.filters import Filters
from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Replay, ReplayState, read_destination
from redrive.errors import BrokerError, ConnectionLost, OrderRefused, StoreError
from redrive.store.listed import Listed
from redrive.store.replay_looks import ReplayLooks
from redrive.store.replays import Replays
from redrive.work.destinations import destinations
from redrive.work.move import assure_return_exchange
from redrive.work.replay import Progress, ReplayRunner
from redrive.work.replay_report import Report, report_of
from redrive.work.room_ahead import RoomAhead
from redrive.work.sender import Sender

log = structlog.get_logger()

INTERRUPTED: Final = "interrupted by its user"
_LOOK_EVERY: Final = 0.25

Which = Filters | Listed
"""What a job is made for: the letters that match by then, or those that were listed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySession:
    """Runs jobs of this process."""

    worker_id: str
    replays: Replays
    looks: ReplayLooks
    make_sender: Callable[[], Sender]
    make_room: Callable[[], RoomAhead]
    connect: Callable[[str], Awaitable[Connection]]
    return_exchange: str
    policies: PolicyBook
    lease: timedelta
    verdict_after: timedelta

    async def run(
        self,
        replay_id: str,
        stopping: asyncio.Event,
        *,
        on_progress: Callable[[Progress], None],
        on_lost: OnLost,
    ) -> Report:
        """Run a job that is ours until it ends or it is time to stop; how it stands then."""
        progress, room = Progress(), self.make_room()

        async def session() -> None:
            sender = self.make_sender()
            try:
                await sender.open()
                runner = ReplayRunner(
                    self.worker_id,
                    self.replays,
                    sender,
                    verdict_after=self.verdict_after,
                    stopping=stopping,
                    lease=self.lease,
                    on_progress=on_progress,
                    room=room,
                )
                await self._run(runner, replay_id, progress)
                await sender.close()
            finally:
                sender.abort()

        try:
            await supervise(session, on_lost=on_lost, stopping=stopping)
            if stopping.is_set():
                with contextlib.suppress(OrderRefused):  # it has ended, or another has paused it
                    await self.replays.pause(replay_id, INTERRUPTED)
            return await self._report(replay_id, progress)
        except BaseException:
            with contextlib.suppress(StoreError):
                await self.replays.release(replay_id, self.worker_id)
            raise
        finally:
            room.close()

    async def _report(self, replay_id: str, progress: Progress) -> Report:
        found = await self.replays.get(replay_id)
        if found is None:
            raise OrderRefused(f"replay {replay_id} was deleted meanwhile")
        report = await report_of(self.replays, self.looks, found)
        return replace(report, left_out=progress.left_out, keyless=progress.keyless)

    async def _run(self, runner: ReplayRunner, replay_id: str, progress: Progress) -> None:
        try:
            replay = await self.replays.begin(replay_id, self.worker_id, self.lease)
        except OrderRefused:
            return  # paused, cancelled or taken over while the broker was away
        redirect = read_destination(replay.destination) if replay.destination else None
        if redirect is None or redirect.queue is not None:
            await self._assure_way_back()
        await runner.run(replay, destinations(lambda: self.policies, redirect), progress)

    async def _assure_way_back(self) -> None:
        """Make the return exchange where it is missing. Who may not is told so by each letter."""
        connection = await self.connect("redrive replay")
        try:
            await assure_return_exchange(connection, self.return_exchange)
        except ConnectionLost:
            raise
        except BrokerError as error:
            log.info("replay.way_back_not_assured", error=str(error), remedy=error.remedy)
        finally:
            await connection.close()

    async def take_over(
        self, replay_id: str, stopping: asyncio.Event, *, on_wait: Callable[[Replay], None]
    ) -> Replay:
        """Make a job ours: one that is paused, or whose process gives no sign of life until its
        lease ends. `OrderRefused` if it has ended or another process runs it."""
        first = await self.replays.get(replay_id)
        if first is not None and first.state is ReplayState.PAUSED:
            return await self.replays.resume(replay_id, self.worker_id)
        waited = False
        while True:
            try:
                return await self.replays.begin(replay_id, self.worker_id, self.lease)
            except OrderRefused:
                now = await self.replays.get(replay_id)
                if first is None or now is None or now.locked_at != first.locked_at:
                    raise  # it lives, or is none of ours
                if now.state is not ReplayState.RUNNING or stopping.is_set():
                    raise
            if not waited:
                on_wait(first)
                waited = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _LOOK_EVERY)
