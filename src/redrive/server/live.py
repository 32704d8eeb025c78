"""What changes, for whoever listens: looked up in the store once for all, sent to each.

Guarantees:
- Changes of every process are seen, for they are read from the store; those of this process at
  once, others within `_EVERY`. Nobody listens: nothing is asked.
- Work does not wait for listeners. A look is a few reads by key, at most four a second however many
  listen, and a listener that does not read loses its queue and is told to `resync`.
- A place (`Place`) says how far somebody is, for any process: who comes back with it is told what
  happened since, or to `resync` if that is too much. A change may be told twice, never not at all:
  numbers of rows are given before they are committed, so a look reaches `_BEHIND` back; an entry of
  the audit log is written before the change, so it is told again when it has its outcome; and who
  comes listens before they are told what they missed.
- Where a look fails, or none was made for long, whoever listens is told to `resync`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog

from redrive.domain.replay import Replay
from redrive.errors import RedriveError
from redrive.work.desk import Desk
from redrive.work.replay_report import replay_document
from redrive.work.show import ledger_document

log = structlog.get_logger()

_EVERY: Final = 1.0
_SOONEST: Final = 0.25
_BEHIND: Final = 10.0
"""Seconds that a transaction may take from giving a number to its commit, and be seen."""
_QUEUED: Final = 100
_NAMED: Final = 500
"""Letters that one event names; beyond it is said that there are more."""
_TOO_MANY: Final = 5000
_BEAT: Final = 15.0
_LONGEST: Final = 600.0
"""Seconds after which a stream ends, and its client comes back: who was revoked does not. And how
long the outcome of a change is waited for."""
_REACH: Final = 100
"""Entries of the audit log before the newest that may still be without their outcome."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Place:
    """How far somebody is: rows of histories, of the audit log, and when replays changed."""

    step: int
    audit: int
    replays: datetime

    def __str__(self) -> str:
        milliseconds = (self.replays - _EPOCH) // timedelta(milliseconds=1)
        return f"{self.step}.{self.audit}.{milliseconds}"


def read_place(text: str) -> Place | None:
    """A place as it was written; None if it is none."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    step, audit, milliseconds = map(int, parts)
    if max(step, audit) >= 2**63 or milliseconds > 10**14:
        return None
    return Place(step, audit, _EPOCH + timedelta(milliseconds=milliseconds))


@dataclass(frozen=True, slots=True)
class Told:
    """One event for a listener."""

    name: str
    data: Any
    place: Place


RESYNC: Final = "resync"


class Listener:
    """One who listens: a queue that is bounded."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Told | None] = asyncio.Queue()

    def tell(self, told: Told) -> None:
        if self.queue.qsize() < _QUEUED:
            self.queue.put_nowait(told)
            return
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(Told(RESYNC, {"reason": "too slow"}, told.place))

    def tell_first(self, missed: list[Told]) -> None:
        """Tell these before what has come meanwhile."""
        come = []
        while not self.queue.empty():
            come.append(self.queue.get_nowait())
        for told in [*missed, *come]:
            if told is None:
                self.queue.put_nowait(None)
            else:
                self.tell(told)


class Live:
    """Looks while somebody listens."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._listeners: set[Listener] = set()
        self._woken = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self._eyes = _Eyes(desk)

    async def listen(self, since: str | None) -> AsyncIterator[Told | None]:
        """Events from now on, or from a place; None now and then, if nothing happens."""
        listener, ends = Listener(), time.monotonic() + _LONGEST
        before = tuple(self._listeners)
        self._listeners.add(listener)
        try:
            lost = await self._eyes.open()
            if lost is not None:
                for each in before:
                    each.tell(lost)
            listener.tell_first(await self._eyes.catch_up(since))
            self._start()
            while not self._closed and time.monotonic() < ends:
                try:
                    async with asyncio.timeout(_BEAT):
                        told_now = await listener.queue.get()
                except TimeoutError:
                    yield None
                    continue
                if told_now is None:
                    return
                yield told_now
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        self._woken.set()
        if self._watching is not None:
            self._watching.cancel()
        for listener in self._listeners:
            listener.queue.put_nowait(None)

    @property
    def is_looking(self) -> bool:
        """Whether the store is asked now and then."""
        return self._watching is not None and not self._watching.done()

    def _start(self) -> None:
        if not self._closed and not self.is_looking:
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        forget = self._desk.events.listen(lambda _: self._woken.set())
        try:
            while self._listeners and not self._closed:
                try:
                    for told in await self._eyes.look():
                        for listener in self._listeners:
                            listener.tell(told)
                except RedriveError as error:
                    log.info("live.waits", error=str(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), _EVERY)
                self._woken.clear()
                await asyncio.sleep(_SOONEST)
        finally:
            forget()


class _Eyes:
    """What was seen last."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._at: Place | None = None
        self._ledger: dict[str, Any] = {}
        self._newest: str | None = None
        self._steps: dict[int, float] = {}
        """Rows that were seen lately, and when: behind the place, where others may still appear."""
        self._actions: dict[int, tuple[float, bool]] = {}
        """The same of the audit log, and whether it had its outcome."""
        self._replays: dict[str, Replay] = {}
        self._looked = float("-inf")
        self._failed = False
        self._turn = asyncio.Lock()

    async def open(self) -> Told | None:
        """Begin, if nobody has looked lately; what to tell who has listened nevertheless."""
        async with self._turn:
            if self._at is not None and time.monotonic() - self._looked <= _BEHIND:
                return None
            await self._begin()
            return Told(RESYNC, {"reason": "nobody has looked for a while"}, self._place())

    async def catch_up(self, since: str | None) -> list[Told]:
        """What somebody has missed who was at a place; without one, how things stand."""
        now = self._place()
        hello = Told("stats", self._ledger, now)
        place = None if since is None else read_place(since)
        if since is None:
            return [hello]
        if place is None:
            return [Told(RESYNC, {"reason": "unknown place"}, now), hello]
        store = self._desk.store
        steps = await store.changed_since.steps(place.step, _TOO_MANY + 1)
        actions = await store.audit_log.since(place.audit, _TOO_MANY + 1)
        too_many = max(len(steps), len(actions)) > _TOO_MANY
        if too_many or place.step > now.step + _TOO_MANY:
            return [Told(RESYNC, {"reason": "too much has happened"}, now), hello]
        told = [hello]
        if steps:
            told.append(Told("letters", _letters([step.letter_id for step in steps]), now))
        replays = await store.changed_since.replays(place.replays)
        told += [Told("replay", replay_document(each), now) for each in replays]
        if actions:
            told.append(Told("changed", _resources([action.name for action in actions]), now))
        return told

    async def _begin(self) -> None:
        store, now = self._desk.store, time.monotonic()
        step = await store.changed_since.newest_step()
        audit = max(0, await store.audit_log.newest() - _REACH)
        recent = await store.audit_log.since(audit, _TOO_MANY)
        at = Place(step, audit, await store.series.now())
        self._ledger = ledger_document(await store.books.ledger())
        self._newest = await store.changed_since.newest_letter()
        self._steps = {}
        self._replays = {each.id: each for each in await store.changed_since.replays(None)}
        self._actions = {
            each.number: (float("-inf") if each.ended else now, each.ended) for each in recent
        }
        self._at, self._failed = replace(at, audit=self._settled(audit)), False
        self._looked = time.monotonic()

    async def look(self) -> list[Told]:
        """What is new since the last look."""
        async with self._turn:
            try:
                told = await self._look()
            except RedriveError:
                self._failed = True  # some of it may have been seen, and was not told
                raise
            if self._failed:
                self._failed = False
                told.insert(0, Told(RESYNC, {"reason": "the store was away"}, self._place()))
            return told

    async def _look(self) -> list[Told]:
        if self._at is None:
            await self._begin()
        store, told = self._desk.store, []
        letters = await self._new_letters()
        replays = [
            each
            for each in await store.changed_since.replays(None)
            if self._replays.get(each.id) != each
        ]
        self._replays |= {each.id: each for each in replays}
        actions = await self._new_actions()
        ledger = ledger_document(await store.books.ledger())
        self._looked = time.monotonic()
        place = self._place()
        if letters:
            told.append(Told("letters", _letters(letters), place))
        told += [Told("replay", replay_document(each), place) for each in replays]
        if actions:
            told.append(Told("changed", _resources(actions), place))
        if ledger != self._ledger:
            self._ledger = ledger
            told.append(Told("stats", ledger, place))
        return told

    async def _new_letters(self) -> list[str]:
        """Letters that changed, and the one that came last, if it is another."""
        assert self._at is not None
        since = self._desk.store.changed_since
        now = time.monotonic()
        found = await since.steps(self._at.step, _TOO_MANY)
        new = [step for step in found if step.number not in self._steps]
        self._steps |= {step.number: now for step in new}
        settled = [number for number, at in self._steps.items() if now - at > _BEHIND]
        if len(found) == _TOO_MANY:
            settled = [step.number for step in found[: _TOO_MANY // 2]]
        if settled:
            self._at = replace(self._at, step=max(self._at.step, *settled))
            self._steps = {n: at for n, at in self._steps.items() if n > self._at.step}
        letters = [step.letter_id for step in new]
        newest = await since.newest_letter()
        if newest is not None and newest != self._newest:
            self._newest = newest
            letters.append(newest)
        return letters

    async def _new_actions(self) -> list[str]:
        """What somebody has begun to change, and again what has been changed."""
        assert self._at is not None
        now, new = time.monotonic(), []
        found = await self._desk.store.audit_log.since(self._at.audit, _TOO_MANY)
        for each in found:
            at, ended = self._actions.get(each.number, (None, False))
            if at is None or (each.ended and not ended):
                new.append(each.name)
                self._actions[each.number] = (now, each.ended)
        audit = self._settled(self._at.audit)
        if len(found) == _TOO_MANY:
            audit = max(audit, found[_TOO_MANY // 2].number)
        self._at = replace(self._at, audit=audit)
        self._actions = {n: seen for n, seen in self._actions.items() if n > audit}
        return new

    def _settled(self, audit: int) -> int:
        """The last entry of the audit log before which nothing is waited for any more."""
        now = time.monotonic()
        for number, (at, ended) in sorted(self._actions.items()):
            if now - at <= (_BEHIND if ended else _LONGEST):
                break
            audit = number
        return audit

    def _place(self) -> Place:
        """Where who has heard all of this is: a little behind, see above."""
        assert self._at is not None
        changed = [each.updated_at for each in self._replays.values()]
        return replace(self._at, replays=max([self._at.replays, *changed]))


def _letters(ids: list[str]) -> dict[str, Any]:
    unique = list(dict.fromkeys(reversed(ids)))
    return {"ids": unique[:_NAMED], "more": len(unique) > _NAMED}


def _resources(actions: list[str]) -> dict[str, Any]:
    return {"resources": sorted({action.partition(".")[0] for action in actions})}
