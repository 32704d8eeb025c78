"""The worker: letters that are due are looked at, sent by their strategy, or left to a person.

    due → strategy → claim → send → record → (verdict: see `verdict_watch` and `receipts`)

What it guarantees:
- Nothing is claimed while the broker is away or blocks publishers, nor once a letter has told that
  the return exchange is missing, until that is back: a mistake in the topology fails no letter.
- What was claimed is sent and recorded, or its lease ends and it is in doubt (`sender.py`).
- While the store is away, what was sent is recorded as soon as it is back, within the lease.
- A letter for which its queue would push out its oldest messages, as far as is known
  (`room_ahead.py`), stays pending, and is looked at again in a minute; that counts as no revival.

Any number of workers may run: a letter is claimed by one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from redrive.amqp.supervision import supervise
from redrive.domain import metrics
from redrive.domain.backoff import Backoff
from redrive.domain.letter import Head, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination
from redrive.domain.revival import FULL_AGAIN, Decision, LeaveToPerson, Postpone, Send
from redrive.domain.strategy import CONDITIONS_AGAIN, Rules, Strategy, Timetable
from redrive.errors import BrokerError, StoreError
from redrive.events import Events, LetterChanged
from redrive.store.fitting import BOUNDLESS
from redrive.store.sendings import Outcome, Sendings, Taken
from redrive.tally import Tally
from redrive.work.conditions import Conditions
from redrive.work.room_ahead import RoomAhead
from redrive.work.sender import Sender, Sent

log = structlog.get_logger()

_CONDITIONS_HOLD: Final = 5.0
"""Seconds for which a look at the conditions is good."""
_RECORD_FOR: Final = 30.0
"""Seconds for which recording is tried while the store is away; then the lease tells."""
_LOOK_FOR_WAY: Final = 5.0
"""Seconds between two looks for the return exchange while it is missing."""


class Worker:
    """Revives letters until told to stop."""

    def __init__(  # noqa: PLR0913  (what it works with, each by its name)
        self,
        worker_id: str,
        vhost: str,
        sendings: Sendings,
        make_sender: Callable[[], Sender],
        *,
        rules: Rules,
        timetable: Timetable,
        conditions: Conditions,
        destination_of: Callable[[Letter | Head], Destination | None],
        max_revivals: int,
        batch: int,
        poll: timedelta,
        verdict_after: timedelta,
        events: Events | None = None,
        tally: Tally | None = None,
        on_ready: Callable[[], None] | None = None,
        make_room: Callable[[], RoomAhead] | None = None,
    ) -> None:
        """`on_ready` hears of every time that it has a connection to send by. `make_room` makes
        what knows of room in queues; None if that does not matter."""
        self.id = worker_id
        self._vhost = vhost
        self._sendings = sendings
        self._make_sender = make_sender
        self._rules = rules
        self._timetable = timetable
        self._conditions = conditions
        self._destination_of = destination_of
        self._max_revivals = max_revivals
        self._batch = batch
        self._poll = poll
        self._verdict_after = verdict_after
        self._events = events or Events()
        self._tally = tally or Tally()
        self._on_ready = on_ready or (lambda: None)
        self._room = None if make_room is None else make_room()
        self._full: set[str] = set()  # queues that were said to be
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._unmet: list[str] = []
        self._unmet_until = 0.0
        self._outage = ""
        self._log = log.bind(worker=worker_id)

    def stop(self) -> None:
        """Ask for an orderly end: what is claimed is sent and recorded, then `run` returns."""
        self._stopping.set()
        self._woken.set()

    def wake(self) -> None:
        """Something is due, or may be."""
        self._woken.set()

    async def run(self) -> None:
        """Revive until `stop`, through every loss of the broker and the store."""
        try:
            await supervise(self._session, on_lost=self._on_lost, stopping=self._stopping)
        finally:
            if self._room is not None:
                self._room.close()

    def _on_lost(self, error: BrokerError, delay: timedelta) -> None:
        self._tally.count(metrics.RECONNECTS, "worker")
        if str(error) != self._outage:  # one line for an outage, not one for every try
            self._outage = str(error)
            self._log.warning("worker.lost", error=str(error), remedy=error.remedy)

    async def _session(self) -> None:
        sender = self._make_sender()
        try:
            await sender.open()
            self._log.info("worker.back" if self._outage else "worker.ready")
            self._outage = ""
            self._on_ready()
            await self._work(sender)
            await sender.close()
        finally:
            sender.abort()

    async def _work(self, sender: Sender) -> None:
        failures, backoff = 0, Backoff()
        while not self._stopping.is_set():
            self._woken.clear()
            await self._while_blocked(sender)
            if self._stopping.is_set():
                return
            if not await sender.has_way():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _LOOK_FOR_WAY)
                continue
            try:
                looked_at = await self.round(sender)
                wait = 0.0 if looked_at else await self._until_due()
                failures = 0
            except StoreError as error:
                failures += 1
                if failures == 1:
                    self._log.warning("worker.store_away", error=str(error), remedy=error.remedy)
                wait = backoff.delay(failures, random.random()).total_seconds()  # noqa: S311
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), wait)

    async def _while_blocked(self, sender: Sender) -> None:
        waiting = asyncio.ensure_future(sender.ready())
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
        finally:
            for task in (waiting, stopped):
                task.cancel()

    async def _until_due(self) -> float:
        """Seconds until there is something to do."""
        due_in = await self._sendings.next_due_in(self._vhost)
        poll = self._poll.total_seconds()
        # What is due and was not taken is in the hands of another worker.
        return poll if due_in is None else min(poll, max(due_in.total_seconds(), 0.05))

    async def round(self, sender: Sender) -> int:
        """Look at one batch of letters that are due; how many those were."""
        await self._look_at_conditions(sender)
        taken = await self._sendings.take_due(
            self.id, self._vhost, self._batch, self._decide, self._room or BOUNDLESS
        )
        for letter, reason in taken.left:
            self._events.tell(LetterChanged(letter, State.MANUAL, reason))
            self._log.info(
                "letter.left_to_person", letter=letter.id, queue=letter.queue, reason=reason[:200]
            )
        if taken.claims:
            sent = await sender.send(taken.claims)
            outcomes = [self._outcome(each) for each in sent]
            note = partial(
                self._sendings.record, self.id, outcomes, verdict_after=self._verdict_after
            )
            await record_patiently(note, len(outcomes), self._stopping)
            for each, outcome in zip(sent, outcomes, strict=True):
                log_sent(self._log, each)
                tell_refused(self._events, outcome)
            if any(each.no_way for each in sent):
                remedy = "run 'redrive topology apply'"
                self._log.warning("worker.return_exchange_missing", remedy=remedy)
        await self._look_for_room(taken)
        return taken.looked_at

    async def _look_for_room(self, taken: Taken) -> None:
        """Whatever was claimed has been sent: nothing is under way that a look would miss."""
        for queue in taken.full.keys() - self._full:
            remedy = "make room in it, raise its limit, or have it refuse (reject-publish)"
            self._log.warning(
                "worker.queue_full", queue=queue, reason=taken.full[queue], remedy=remedy
            )
        self._full |= taken.full.keys()
        sent_to = {claim.queue for claim in taken.claims if claim.queue is not None}
        self._full -= sent_to - taken.full.keys() - taken.look_at
        if taken.look_at and self._room is not None:
            await self._room.look(taken.look_at)

    # Deciding

    async def _look_at_conditions(self, sender: Sender) -> None:
        if time.monotonic() >= self._unmet_until:
            self._unmet = await self._conditions.unmet(broker_blocked=sender.is_blocked)
            self._unmet_until = time.monotonic() + _CONDITIONS_HOLD

    def _decide(self, letter: Letter, now: datetime, has_copy: bool) -> Decision:
        chosen = self._rules.choose(letter)
        why = chosen.rule if chosen.quotes_reason else f"{chosen.why} ({chosen.rule})"
        destination = self._destination_of(letter)
        if has_copy:
            return LeaveToPerson(reason="another letter may be a second copy of it")
        if letter.dlq_retry_count >= self._max_revivals:
            return LeaveToPerson(reason=f"{letter.dlq_retry_count} revivals failed")
        if chosen.strategy is Strategy.MANUAL or destination is None:
            return LeaveToPerson(reason=why)
        if letter.strategy != chosen.strategy:
            at = self._timetable.next_try(chosen.strategy, letter.dlq_retry_count, now)
            if at is not None and at > now:
                return Postpone(
                    at=at, strategy=chosen.strategy, reason=f"{chosen.strategy.value}: {why}"
                )
        conditional = chosen.strategy is Strategy.CONDITIONAL
        if conditional and self._unmet:
            return Postpone(
                at=now + CONDITIONS_AGAIN,
                strategy=chosen.strategy,
                reason=f"waits for conditions: {self._unmet[0]}",
                noted=letter.strategy != chosen.strategy,
            )
        return Send(
            strategy=chosen.strategy,
            queue=destination.queue,
            exchange=destination.exchange,
            gated=conditional,
        )

    def _outcome(self, sent: Sent) -> Outcome:
        """What is noted. A queue that is full or down is tried again, and counts as a revival; that
        the way to every queue is missing, or the connection was lost before, does not."""
        letter = sent.claim.letter
        if sent.result is not Result.REFUSED or not sent.passing:
            return Outcome(claim=sent.claim, result=sent.result, reason=sent.reason)
        counts = not (sent.no_way or sent.disconnected)
        last = counts and letter.dlq_retry_count + 1 >= self._max_revivals
        return Outcome(
            claim=sent.claim,
            result=sent.result,
            reason=sent.reason,
            after=State.FAILED if last else State.PENDING,
            retry_in=FULL_AGAIN,
            revival=counts,
        )


async def record_patiently(
    note: Callable[[], Awaitable[None]], letters: int, stopping: asyncio.Event
) -> None:
    """Note what became of claims, also if the store is away for a while. If it is for longer, the
    leases end: what was sent counts as in doubt, which is true."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + _RECORD_FOR
    failures, backoff = 0, Backoff()
    while True:
        try:
            await note()
            return
        except StoreError as error:
            failures += 1
            if stopping.is_set() or loop.time() > give_up_at:
                log.warning("sender.not_recorded", letters=letters, error=str(error))
                raise
            delay = backoff.delay(failures, random.random())  # noqa: S311  # spreads load, no secret
        await asyncio.sleep(delay.total_seconds())


def tell_refused(events: Events, outcome: Outcome) -> None:
    """A letter that was not sent, and is left to a person or has failed, is one that changed."""
    if outcome.result is Result.REFUSED and outcome.after is not State.PENDING:
        events.tell(LetterChanged(outcome.claim.letter, outcome.after, outcome.reason))


def log_sent(logger: structlog.stdlib.BoundLogger, sent: Sent) -> None:
    """One line for each letter that was sent, or was not."""
    letter = sent.claim.letter
    logger.info(
        "letter.sent",
        letter=letter.id,
        result=sent.result.value,
        generation=sent.claim.generation,
        queue=sent.claim.queue,
        exchange=sent.claim.exchange,
        reason=sent.reason or None,
    )
