"""Runs a replay: batch after batch is claimed, sent and recorded, until there is no more.

What it guarantees, beside what the Sender does:
- A crash at any moment leaves at most one batch in doubt; whoever goes on begins behind it. Without
  pauses a batch goes in halves. While one is being sent, the one before it is recorded, and only
  then the one behind it claimed: never more than two are claimed and not recorded.
- Paused or cancelled, it stops after the batch that is being sent.
- While the breaker of a destination is open, it waits; when that is half-open, it sends one letter
  and waits for what becomes of it.
- Where letters keep their order, one that is refused or in doubt stops the job: none overtakes it,
  and the job begins with it when it is resumed. A batch that takes a third of a lease, because many
  of its letters go one after the other, is cut there: nobody else takes them for lost meanwhile.
- A queue that is full, or down, pauses the job: what it did not take is as it was before, and first
  when the job is resumed. So does one that would push out its oldest messages for the next letter,
  as far as is known (`room_ahead.py`) and unless that was ordered: such a letter is not claimed.
- The connection lost: the job goes back to the first letter that was not sent for want of it, and
  `ConnectionLost` is raised, so that it goes on there when the broker is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import structlog

from redrive.domain.breaker import held_by
from redrive.domain.letter import Claim, Head, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, Replay
from redrive.domain.revival import FULL_AGAIN
from redrive.errors import ConnectionLost, OrderRefused
from redrive.store.fitting import BOUNDLESS
from redrive.store.replays import Batch, Replays, Stop
from redrive.store.sendings import Outcome
from redrive.work.ordering import Key, in_waves, read_ordering
from redrive.work.pace import Rate
from redrive.work.room_ahead import RoomAhead
from redrive.work.sender import Sender, Sent
from redrive.work.worker import log_sent, record_patiently

log = structlog.get_logger()

Take = Callable[[], Awaitable[Batch]]
Done = tuple[Batch, list[Sent], Stop | None]
"""A batch, what became of its claims, and where the job stops for that."""

_RENEW: Final = 5.0
"""Seconds between two signs of life while a job waits."""


@dataclass(slots=True)
class Progress:
    """How far a job is, as the process that runs it sees it."""

    done: int = 0
    results: Counter[Result] = field(default_factory=Counter)
    skipped: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Why letters were skipped, as far as this process did."""
    keyless: int = 0
    """Of letters that keep an order: how many have no value there, and so have none."""
    waits_for: str = ""


class ReplayRunner:
    """Runs jobs in this process, one at a time."""

    def __init__(  # noqa: PLR0913  (what it works with, each by its name)
        self,
        worker_id: str,
        replays: Replays,
        sender: Sender,
        *,
        verdict_after: timedelta,
        stopping: asyncio.Event,
        lease: timedelta,
        on_progress: Callable[[Progress], None] = lambda _: None,
        waits: bool = True,
        room: RoomAhead | None = None,
    ) -> None:
        """`waits`: it waits for breakers, instead of leaving the job to whoever takes it next.
        `room`: what there is room for; None if that does not matter."""
        self._id = worker_id
        self._replays = replays
        self._sender = sender
        self._verdict_after = verdict_after
        self._stopping = stopping
        self._on_progress = on_progress
        self._waits = waits
        self._room = room
        self._renew = min(_RENEW, lease.total_seconds() / 3)
        self._patience = lease.total_seconds() / 3
        self._log = log.bind(worker=worker_id)

    async def run(
        self,
        replay: Replay,
        destination_of: Callable[[Letter | Head], Destination | None],
        progress: Progress | None = None,
    ) -> Progress:
        """Send what is left of a job that is ours, until it ends or it is time to stop. Raises what
        store and broker raise; the job is then left to whoever takes it next. `progress` is that
        of an earlier session."""
        progress = progress or Progress()
        progress.done, progress.skipped = replay.position, replay.skipped
        in_halves = (
            replay.ordered_by is None
            and replay.rate is None
            and replay.pause == 0
            and replay.batch_size > 1
        )
        most = None if replay.rate is None else max(1, round(replay.rate))
        if in_halves:
            most = replay.batch_size // 2

        def take() -> Awaitable[Batch]:
            return self._replays.take_batch(
                replay, self._id, destination_of, most=most, room=self._room or BOUNDLESS
            )

        if in_halves:
            await self._run_in_halves(replay, take, progress)
        else:
            await self._run_in_turn(replay, take, progress)
        return progress

    async def _run_in_turn(self, replay: Replay, take: Take, progress: Progress) -> None:
        try:
            key = None if replay.ordered_by is None else read_ordering(replay.ordered_by)
        except OrderRefused as refused:  # a job of a version that took more of them
            with contextlib.suppress(OrderRefused):  # somebody else has ended or paused it
                await self._replays.pause(replay.id, str(refused))
            return
        pace = None if replay.rate is None else Rate(replay.rate)
        while not self._stopping.is_set():
            if not await self._until_ready(replay, progress):
                return
            batch = await take()
            sent, late = await self._send(batch.claims, key)
            stop = _where_to_stop(replay, batch, sent)
            cut = _disconnected(sent)
            if key is not None:
                taken = (each.claim.envelope for each in sent if not each.disconnected)
                progress.keyless += sum(key(envelope) is None for envelope in taken)
            if cut and stop is None:
                await self._go_back(replay, progress, batch, sent)
                if len(cut) > late:
                    raise ConnectionLost(cut[0].reason)
                continue
            await self._record(progress, batch, sent, stop)
            if stop is not None:
                return
            if batch.ended or not await self._may_go_on(replay, batch, progress):
                return
            if batch.claims:
                owed = 0.0 if pace is None else pace.owed(len(batch.claims))
                await self._idle(replay, max(owed, replay.pause))

    async def _run_in_halves(self, replay: Replay, take: Take, progress: Progress) -> None:
        async def record_and_take(before: Done | None, *, more: bool) -> Batch | None:
            if before is not None:
                await self._record(progress, *before)
            return await take() if more else None

        before: Done | None = None  # what is recorded while the next is sent
        following: Batch | None = None
        stopping = False  # once what is claimed has been sent
        while following is not None or not self._stopping.is_set():
            if following is None and not await self._until_ready(replay, progress):
                return
            batch, following = following or await take(), None
            sent: list[Sent] = []
            if batch.claims:
                more = not batch.ended and not stopping and not self._stopping.is_set()
                meanwhile = record_and_take(before, more=more)
                sent, following = await self._send_and(meanwhile, replay, progress, batch)
            stop = _where_to_stop(replay, batch, sent, following)
            stopping = stopping or stop is not None
            cut = _disconnected(sent)
            if cut and not stopping:
                if following is not None:  # the last that was taken first
                    unsent = [_unwritten(claim, cut[0].reason) for claim in following.claims]
                    await self._give_back(replay, following, unsent)
                await self._go_back(replay, progress, batch, sent)
                raise ConnectionLost(cut[0].reason)
            before = (batch, sent, stop)
            if following is None or not following.claims:
                await self._record(progress, *before)
                before = None
            if stopping and following is None:
                return
            if batch.ended or not await self._may_go_on(replay, batch, progress):
                return

    async def _may_go_on(self, replay: Replay, batch: Batch, progress: Progress) -> bool:
        """Wait where a breaker holds the rest, or where nobody knows whether there is room for it;
        False if the job is left to another instead."""
        if batch.claims:
            return True
        if batch.look_at and self._room is not None:  # nothing is under way that it would miss
            looking = self._room.look(batch.look_at)
            await self._until(looking, replay, progress, "it is not known yet what its queues hold")
        if batch.held_by is None:
            return True
        if self._waits:
            await self._wait_for_breaker(replay, batch, progress)
        return self._waits

    async def _until_ready(self, replay: Replay, progress: Progress) -> bool:
        """Wait until the broker takes messages; False if it is time to stop. Nothing is claimed
        before."""
        ready = self._sender.ready()
        return await self._until(ready, replay, progress, "the broker takes nothing for now")

    async def _until(
        self, what: Coroutine[Any, Any, None], replay: Replay, progress: Progress, waits_for: str
    ) -> bool:
        """Wait for something, with a sign of life now and then; False if it is time to stop."""
        waiting = asyncio.ensure_future(what)
        stopped = asyncio.ensure_future(self._stopping.wait())
        both = (waiting, stopped)
        try:
            while True:
                done, _ = await asyncio.wait(
                    both, timeout=self._renew, return_when=asyncio.FIRST_COMPLETED
                )
                if waiting in done:
                    waiting.result()
                if done:
                    return stopped not in done
                progress.waits_for = waits_for
                self._on_progress(progress)
                if not await self._replays.renew(replay.id, self._id, waits_for):
                    return True  # it is not ours any more, as the next batch will tell
        finally:
            for task in both:
                task.cancel()

    async def _send(self, claims: Sequence[Claim], key: Key | None) -> tuple[list[Sent], int]:
        """What became of claims, and for how many of them it had become too late."""
        if not claims:
            return [], 0
        if key is None:
            return await self._sender.send(claims), 0
        return await self._in_order(claims, key)

    async def _go_back(
        self, replay: Replay, progress: Progress, batch: Batch, sent: Sequence[Sent]
    ) -> None:
        """Record a batch, but for what was not sent for want of a connection: the job goes back to
        the first letter of that."""
        cut = _disconnected(sent)
        first = min((_place(batch, each) for each in cut), default=batch.behind)
        passed = [one for one in batch.skipped if batch.positions[one[0]] < first]
        others = [each for each in sent if not each.disconnected]
        await self._record(progress, replace(batch, skipped=passed), others)
        if cut:
            await self._give_back(replay, batch, cut, first)

    async def _give_back(
        self, replay: Replay, batch: Batch, unsent: Sequence[Sent], first: int | None = None
    ) -> None:
        outcomes = [_outcome(each) for each in unsent]
        await self._replays.give_back(replay.id, self._id, batch, outcomes, first)

    async def _send_and(
        self,
        meanwhile: Coroutine[Any, Any, Batch | None],
        replay: Replay,
        progress: Progress,
        batch: Batch,
    ) -> tuple[list[Sent], Batch | None]:
        """Send letters while those before are recorded and the next ones claimed. What was sent is
        recorded also if that fails."""
        recording = asyncio.ensure_future(meanwhile)
        try:
            sent = await self._sender.send(batch.claims)
            await asyncio.wait((recording,))
        finally:
            recording.cancel()
        if recording.exception() is not None:
            await self._go_back(replay, progress, batch, sent)
        return sent, recording.result()

    async def _record(
        self, progress: Progress, batch: Batch, sent: Sequence[Sent], stop: Stop | None = None
    ) -> None:
        if sent:
            await self._note_outcomes(sent, stop)
        progress.done += len(sent) + len(batch.skipped)
        progress.skipped += len(batch.skipped)
        progress.left_out.update(reason for _, reason in batch.skipped)
        progress.results.update(each.result for each in sent)
        progress.waits_for = ""
        self._on_progress(progress)

    async def _note_outcomes(self, sent: Sequence[Sent], stop: Stop | None) -> None:
        note = partial(
            self._replays.record,
            self._id,
            [_outcome(each) for each in sent],
            verdict_after=self._verdict_after,
            stop=stop,
        )
        await record_patiently(note, len(sent), self._stopping)
        for each in sent:
            log_sent(self._log, each)

    async def _in_order(self, claims: Sequence[Claim], key: Key) -> tuple[list[Sent], int]:
        """Each key's letters one after the other; behind one that was not sent, none."""
        done: list[Sent] = []
        late = 0
        stuck: dict[str, Sent] = {}
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        for wave in in_waves(claims, key):
            if done and loop.time() > until:
                done += [_unwritten(claim, "the batch took too long") for _, claim in wave]
                late += len(wave)
                continue
            free = [(name, claim) for name, claim in wave if name not in stuck]
            done += [_behind(stuck[name], claim) for name, claim in wave if name in stuck]
            sent = await self._sender.send([claim for _, claim in free])
            for (name, _), each in zip(free, sent, strict=True):
                if name is not None and each.result is not Result.SENT:
                    stuck[name] = each
            done += sent
        return done, late

    async def _wait_for_breaker(self, replay: Replay, batch: Batch, progress: Progress) -> None:
        """Until it may admit another letter; with a sign of life now and then."""
        progress.waits_for = held_by(batch.held_by or "")
        self._on_progress(progress)
        wait = self._renew
        if batch.wait_until is not None and batch.now is not None:
            wait = min(self._renew, max(0.1, (batch.wait_until - batch.now).total_seconds()))
        if await self._replays.renew(replay.id, self._id, progress.waits_for):
            await self._idle(replay, wait, progress.waits_for)

    async def _idle(self, replay: Replay, seconds: float, waits_for: str = "") -> None:
        """Wait, unless it is time to stop. A job that waits for longer than its lease stays ours by
        signs of life; one that is not ours any more need not wait."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(left, self._renew))
            if left > self._renew and not await self._replays.renew(replay.id, self._id, waits_for):
                return


def _outcome(sent: Sent) -> Outcome:
    """What is noted: a person asked for it, so a person hears why it was not sent; but what stands
    in its way only for now leaves a letter as it was. So does anything in the way of one that was
    resolved: it was consumed once, and no replay may take it that is not asked for those."""
    before = sent.claim.letter.status
    as_it_was = before is State.RESOLVED or (
        sent.passing and before in (State.PENDING, State.FAILED)
    )
    return Outcome(
        claim=sent.claim,
        result=sent.result,
        reason=sent.reason,
        after=before if as_it_was else State.MANUAL,
        retry_in=FULL_AGAIN,
    )


def _unwritten(claim: Claim, why: str) -> Sent:
    return Sent(claim=claim, result=Result.REFUSED, reason=why, passing=True, unwritten=True)


def _behind(before: Sent, claim: Claim) -> Sent:
    """What becomes of a letter behind one of its key that was not sent: it shares that one's fate
    where only the connection was to blame."""
    return Sent(
        claim=claim,
        result=Result.REFUSED,
        reason="a letter before it, of the same key, was not sent",
        passing=before.disconnected,
        unwritten=before.disconnected,
    )


def _disconnected(sent: Sequence[Sent]) -> list[Sent]:
    return [each for each in sent if each.disconnected]


def _place(batch: Batch, sent: Sent) -> int:
    return batch.positions.get(sent.claim.letter.id, batch.first)


def _where_to_stop(
    replay: Replay, batch: Batch, sent: Sequence[Sent], following: Batch | None = None
) -> Stop | None:
    """Where and why a job must not go on by itself; None if it may. A lost connection is no reason:
    the job waits for that. But what was not sent for it is not left behind either. `following` is
    what was taken meanwhile."""
    in_order = replay.ordered_by is not None

    def place(each: Sent) -> int:
        return _place(batch, each)

    stuck = [each for each in sent if each.passing or (in_order and each.result is not Result.SENT)]
    reasons = [each for each in stuck if not each.disconnected]
    if not reasons:
        return None
    first = min(reasons, key=place)
    reason = f"letter {first.claim.letter.id} was not sent"
    if first.reason:
        reason += f": {first.reason}"
    if in_order:
        reason += "; none may overtake it"
    position = min(map(place, stuck))
    again = sum(batch.positions[id_] >= position for id_, _ in batch.skipped)
    if following is not None:
        again += len(following.skipped)
    return Stop(replay_id=replay.id, position=position, reason=reason, again=again)
