"""Retention: what becomes of letters that nobody has to do anything about.

    resolved   30 days    deleted
    failed     90 days    written to cold storage, then archived
    archived   1 year     written to cold storage unless it is there, then deleted
    pending, manual, processing: never touched
    replays    30 days after they ended, as resolved letters: deleted

Guarantees: a letter is archived or deleted only after its file was synced to the disk, read back,
found to be what its checksums say, and compared with the letter in the transaction that changes it.
So a crash between any two steps leaves the letter in the store, in a sound file, or in both. One
that changed meanwhile is left as it is. Times are those of the database's clock.

Memory is bounded by the number of letters and their bytes. A round ends after some seconds, however
much there is to do; the next one goes on. Once nothing more is due, retention rests for a while, so
that a file holds what became due in hours, not in seconds.

While cold storage cannot be written, that is said once, nothing is archived or deleted that needs
it, and every round tries again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Self

import structlog

from redrive.domain.durations import format_duration
from redrive.domain.letter import Kept
from redrive.domain.lifecycle import State
from redrive.errors import ColdStorageError
from redrive.settings.sections import RetentionSettings
from redrive.store.retention import ACTOR, Expiry
from redrive.work.cold_storage import ColdStorage

log = structlog.get_logger()

_LONGEST_ROUND: Final = 5.0
_LONGEST_REST: Final = timedelta(hours=6)
_RESTS_A_PERIOD: Final = 4
_IN_FILE: Final = "; it is in cold storage: "
_FILE: Final = re.compile(re.escape(_IN_FILE) + r"(\d{4}/\d{2}/[0-9a-f-]+\.jsonl\.zst)$", re.ASCII)


@dataclass(slots=True)
class Retired:
    """What one round has done."""

    deleted: int = 0
    archived: int = 0
    replays: int = 0


class Retention:
    """Does its rounds; `round` may be called at any time, by any number of processes."""

    def __init__(
        self, expiry: Expiry, cold_storage: ColdStorage | None, periods: dict[State, timedelta]
    ) -> None:
        self._expiry = expiry
        self._cold_storage = cold_storage
        self._periods = periods
        self._rest = min(_LONGEST_REST, min(periods.values()) / _RESTS_A_PERIOD)
        self._resting_until = datetime.min.replace(tzinfo=UTC)
        self._after: dict[State, str] = {}
        self._complaint: str | None = None

    @classmethod
    def by(cls, settings: RetentionSettings, expiry: Expiry) -> Self:
        """As the settings say."""
        folder = settings.cold_storage
        periods = {
            State.RESOLVED: settings.resolved,
            State.FAILED: settings.failed,
            State.ARCHIVED: settings.archived,
        }
        return cls(expiry, None if folder is None else ColdStorage(folder), periods)

    async def round(self) -> Retired:
        """Do what is due, for some seconds at most. StoreError if the store is away."""
        done = Retired()
        async with self._expiry.alone() as alone:
            if not alone:
                return done
            now = await self._expiry.now()
            if now < self._resting_until:
                return done
            until = time.monotonic() + _LONGEST_ROUND
            finished = [await self._pass(state, now, until, done) for state in self._periods]
            finished.append(await self._forget_replays(now, until, done))
            if all(finished):
                self._resting_until = now + self._rest
        return done

    async def _pass(self, state: State, now: datetime, until: float, done: Retired) -> bool:
        """Go through the letters of a state; whether it came to the end."""
        due = now - self._periods[state]
        while ids := await self._expiry.due(state, due, after=self._after.get(state)):
            try:
                match state:
                    case State.RESOLVED:
                        last = await self._delete_resolved(ids, due, done)
                    case State.FAILED:
                        last = await self._archive(ids, due, now, done)
                    case _:
                        last = await self._delete_archived(ids, due, now, done)
            except ColdStorageError as error:
                self._complain(error)
                return False
            self._after[state] = last
            if time.monotonic() > until:
                return False
        self._after.pop(state, None)
        return True

    async def _forget_replays(self, now: datetime, until: float, done: Retired) -> bool:
        """Delete jobs whose letters are mostly gone as well; whether it came to the end."""
        due = now - self._periods[State.RESOLVED]
        while ids := await self._expiry.ended_replays(due):
            for replay_id in ids:
                while not await self._expiry.delete_replay(replay_id):
                    if time.monotonic() > until:
                        return False
                log.info("retention.deleted", replay=replay_id)
                done.replays += 1
                if time.monotonic() > until:
                    return False
        return True

    # What is done with some letters; each gives the last that it has looked at

    async def _delete_resolved(self, ids: Sequence[str], due: datetime, done: Retired) -> str:
        gone = await self._expiry.delete_resolved(ids, due)
        self._note_deleted(State.RESOLVED, gone, done)
        return ids[-1]

    async def _archive(
        self, ids: Sequence[str], due: datetime, now: datetime, done: Retired
    ) -> str:
        letters = await self._expiry.read(ids, State.FAILED, due)
        if not letters:  # somebody else was faster
            return ids[-1]
        name, kept = await self._written(letters, State.FAILED, now)
        if name is not None:
            reason = f"kept for {format_duration(self._periods[State.FAILED])}{_IN_FILE}{name}"
            archived = await self._expiry.archive(kept, reason)
            if archived:
                log.info("retention.archived", letters=archived, file=name)
                done.archived += archived
        return letters[-1].letter.id

    async def _delete_archived(
        self, ids: Sequence[str], due: datetime, now: datetime, done: Retired
    ) -> str:
        letters = await self._expiry.read(ids, State.ARCHIVED, due)
        if not letters:
            return ids[-1]
        there = await asyncio.to_thread(self._in_files, letters)
        others = [kept for kept in letters if kept.letter.id not in there]
        sound = [kept for kept in letters if kept.letter.id in there]
        if others:
            sound += (await self._written(others, State.ARCHIVED, now))[1]
        self._note_deleted(State.ARCHIVED, await self._expiry.delete(sound), done)
        return letters[-1].letter.id

    def _note_deleted(self, state: State, gone: int, done: Retired) -> None:
        if gone:
            log.info("retention.deleted", letters=gone, state=state.word)
            done.deleted += gone

    # Cold storage

    def _storage(self) -> ColdStorage:
        if self._cold_storage is None:
            raise ColdStorageError(
                "there is no folder for cold storage", remedy="set [retention] cold_storage"
            )
        return self._cold_storage

    async def _written(
        self, letters: Sequence[Kept], state: State, now: datetime
    ) -> tuple[str | None, list[Kept]]:
        """Write letters to a file, and read it; its name, and what is in it."""
        why = f"{state.word} for {format_duration(self._periods[state])}"
        storage = self._storage()
        written = await asyncio.to_thread(storage.write, letters, why=why, now=now)
        for letter_id in written.left_out:
            log.error("retention.left", letter=letter_id, reason="no line can hold it exactly")
        if written.name is None:
            return None, []
        try:
            kept = await asyncio.to_thread(storage.read_back, written.name)
        except ColdStorageError:
            # A disk that does not keep what it was given: not too often, or it would fill up.
            self._resting_until = now + self._rest
            raise
        self._complaint = None
        return written.name, kept

    def _in_files(self, letters: Sequence[Kept]) -> set[str]:
        """Those that are in a sound file since they were archived, and unchanged."""
        named: dict[str, dict[str, Kept]] = {}
        for kept in letters:
            if (name := file_of(kept)) is not None:
                named.setdefault(name, {})[kept.letter.id] = kept
        found: set[str] = set()
        for name, wanted in named.items():
            try:
                filed = self._storage().read_back(name, wanted)
            except ColdStorageError as error:
                log.warning("retention.written_again", error=str(error), letters=len(wanted))
                continue
            found |= {each.letter.id for each in filed if _is_filed(wanted[each.letter.id], each)}
        return found

    def _complain(self, error: ColdStorageError) -> None:
        """Once, as long as it is the same."""
        if self._complaint != str(error):
            self._complaint = str(error)
            log.error(
                "retention.cold_storage",
                error=str(error),
                remedy=error.remedy,
                until_then="nothing is archived or deleted that should be kept there",
            )


def file_of(kept: Kept) -> str | None:
    """The file that a letter was written to when retention archived it, if that was what happened
    to it last."""
    change = kept.history[-1]
    if change.actor != ACTOR or change.after is not State.ARCHIVED:
        return None
    found = _FILE.search(change.reason)
    return found[1] if found else None


def _is_filed(kept: Kept, filed: Kept) -> bool:
    """Whether an archived letter is as it was when it was filed, but for being archived."""
    change = kept.history[-1]
    before = replace(
        kept.letter, status=change.before or State.FAILED, updated_at=filed.letter.updated_at
    )
    return replace(kept, letter=before, history=kept.history[:-1]) == filed
