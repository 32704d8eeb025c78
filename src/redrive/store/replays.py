"""Replays: jobs that send many letters, and outlive the process that began them.

The letters of a job are listed once, when it is made, in the order in which they go. A batch is
claimed in the transaction that moves the job's position, so whoever goes on after a crash begins
behind it: what was claimed and not recorded is in doubt, and is never sent by the job again.

One process runs a job at a time, by a lease that every batch renews. A job is locked before its
letters, which no other writer does the other way round; then letters, then breakers, as all do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, exists, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from redrive.domain import metrics
from redrive.domain.breaker import USUAL, BreakerLimits, held_by
from redrive.domain.filters import Filters, Page
from redrive.domain.letter import Claim, Head, Letter, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import (
    REPLAYED_BY_DEFAULT,
    Destination,
    Replay,
    ReplayOrder,
    ReplayState,
)
from redrive.errors import CountChanged, OrderRefused
from redrive.store.changing import lock_heads
from redrive.store.clock import DatabaseClock
from redrive.store.counts import add_counts
from redrive.store.cursors import read_cursor
from redrive.store.details import not_surely_sent_since
from redrive.store.engine import Database
from redrive.store.fitting import BOUNDLESS, Room
from redrive.store.listed import Listed
from redrive.store.replay_choice import Chooser
from redrive.store.replay_list import list_listed, list_matching, order_of
from redrive.store.resolving import await_resolving
from redrive.store.schema import (
    redrive_attempt,
    redrive_letter,
    redrive_replay,
    redrive_replay_letter,
    redrive_tag,
)
from redrive.store.selecting import conditions, is_listed_by_tag
from redrive.store.sendings import Outcome, claim, record

_LETTER: Final = redrive_letter.c
_ATTEMPT: Final = redrive_attempt.c
_REPLAY: Final = redrive_replay.c
_ITEM: Final = redrive_replay_letter.c
_COLUMNS: Final = tuple(redrive_replay.columns.keys())


@dataclass(frozen=True, slots=True)
class Batch:
    """What a job took: claims to send, and the letters that it left out, with the reasons.

    `wait_until`: the rest has to wait, because of the breaker of `held_by`. `look_at`: nothing goes
    on before somebody has looked at how much room there is in these queues. `ended`: there is no
    more, or the job is paused, or not this process's any more.
    """

    claims: list[Claim] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    wait_until: datetime | None = None
    now: datetime | None = None
    held_by: str | None = None
    look_at: frozenset[str] = frozenset()
    ended: bool = False
    first: int = 0
    """The position of its first letter."""
    positions: dict[str, int] = field(default_factory=dict)
    """Of its letters, by id."""

    @property
    def behind(self) -> int:
        """The position behind its last letter."""
        return self.first + len(self.claims) + len(self.skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """That a job pauses, and where it begins when it is resumed."""

    replay_id: str
    position: int
    """Of a letter that was not sent. Those behind it that were are not sent again."""
    reason: str
    again: int = 0
    """How many letters from there on were left out, and are looked at again."""


class Replays:
    """The jobs of a store."""

    def __init__(
        self, database: Database, clock: DatabaseClock, limits: BreakerLimits = USUAL
    ) -> None:
        self._database = database
        self._clock = clock
        self._limits = limits

    # Making and seeing

    async def create(
        self,
        replay_id: str,
        vhost: str,
        which: Filters | Listed,
        order: ReplayOrder,
        *,
        limit: int | None = None,
        worker: str | None = None,
    ) -> Replay | None:
        """A job for the letters that match, oldest first, up to a limit; or for those that were
        listed, as far as they match yet. None if there are none, `CountChanged` if there are not
        as many as the order says. `worker`: the process that runs it, so that no other takes it
        first."""
        now = await await_resolving(self._database, self._clock)
        async with self._database.writing() as connection:
            ordered = order.ordered_by is not None
            if isinstance(which, Filters):
                chosen = self.chosen(vhost, which, limit=limit, ordered=ordered)
                letters = await list_matching(connection, replay_id, chosen, ordered=ordered)
            else:
                choose = partial(self.chosen, vhost, limit=None)
                letters = await list_listed(connection, replay_id, which, choose, ordered=ordered)
            if order.letters is not None and order.letters != letters:
                raise CountChanged(order.letters, letters)
            if not letters:
                return None
            replay = Replay(
                id=replay_id,
                created_at=now,
                updated_at=now,
                vhost=vhost,
                actor=order.actor,
                state=ReplayState.RUNNING,
                reason="",
                filters=order.described,
                destination=None if order.destination is None else str(order.destination),
                batch_size=order.batch_size,
                pause=order.pause,
                rate=order.rate,
                doubtful=order.doubtful,
                ordered_by=order.ordered_by,
                drop_oldest=order.drop_oldest,
                letters=letters,
                position=0,
                locked_by=worker,
                locked_at=None if worker is None else now,
            )
            values = {name: getattr(replay, name) for name in _COLUMNS}
            await connection.execute(insert(redrive_replay).values(values))
        return replay

    def chosen(
        self, vhost: str, filters: Filters, *, limit: int | None, ordered: bool = False
    ) -> Select[Any]:
        """The letters that a replay with these filters would take, oldest first."""
        if not filters.status:
            filters = replace(filters, status=REPLAYED_BY_DEFAULT)
        found = select(redrive_letter).where(_LETTER.vhost == vhost)
        if is_listed_by_tag(filters):
            # Never by the index of states: that is of nearly all letters, and a tag's of its own.
            states = _LETTER.status.concat("").in_([state.value for state in filters.status])
            found = found.join(redrive_tag, redrive_tag.c.letter_id == _LETTER.id).where(states)
            filters = replace(filters, status=())
        matching = conditions(filters, sqlite=self._database.is_sqlite)
        return (
            found.where(*matching).order_by(*order_of(redrive_letter, ordered=ordered)).limit(limit)
        )

    async def get(self, replay_id: str) -> Replay | None:
        query = select(redrive_replay).where(_REPLAY.id == replay_id)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else read_replay(row)

    async def page(self, *, limit: int = 50, after: str | None = None) -> Page[Replay]:
        """Jobs, newest first."""
        query = select(redrive_replay).order_by(_REPLAY.id.desc()).limit(limit + 1)
        if after is not None:
            query = query.where(_REPLAY.id < read_cursor(after))
        async with self._database.reading() as connection:
            found = [read_replay(row) for row in (await connection.execute(query)).mappings()]
        return Page(tuple(found[:limit]), found[limit - 1].id if len(found) > limit else None)

    async def results(self, replay_id: str) -> dict[Result, int]:
        """What became of the letters that a job has sent, as far as it is known by now."""
        query = (
            select(_ATTEMPT.result, func.count())
            .join(redrive_replay_letter, _ITEM.letter_id == _ATTEMPT.letter_id)
            .where(_ITEM.replay_id == replay_id, *last_of_replay(replay_id))
            .group_by(_ATTEMPT.result)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {Result(result): int(number) for result, number in rows}

    # What people say

    async def pause(self, replay_id: str, reason: str) -> Replay:
        """It stops after the batch that is being sent."""
        return await self._switch(replay_id, (ReplayState.RUNNING,), ReplayState.PAUSED, reason)

    async def resume(self, replay_id: str, worker: str | None = None) -> Replay:
        """It goes on where it was: in the process `worker`, or in whatever process takes it."""
        paused = (ReplayState.PAUSED,)
        return await self._switch(replay_id, paused, ReplayState.RUNNING, "", worker)

    async def cancel(self, replay_id: str, reason: str) -> Replay:
        """It ends; what was not sent stays as it is."""
        open_ = (ReplayState.RUNNING, ReplayState.PAUSED)
        return await self._switch(replay_id, open_, ReplayState.CANCELLED, reason)

    async def _switch(
        self,
        replay_id: str,
        before: Sequence[ReplayState],
        after: ReplayState,
        reason: str,
        worker: str | None = None,
    ) -> Replay:
        async with self._database.writing() as connection:
            replay = await _lock(connection, replay_id)
            if replay is None:
                raise OrderRefused(f"there is no replay {replay_id}")
            if replay.state not in before:
                raise OrderRefused(
                    f"replay {replay_id} is {replay.state.value}, and cannot become {after.value}"
                )
            now = await self._clock.now(connection)
            values: dict[str, Any] = {
                "state": after.value,
                "reason": reason,
                "updated_at": now,
                "locked_by": worker,
                "locked_at": None if worker is None else now,
            }
            await _write(connection, replay_id, values)
            return replace(replay, **(values | {"state": after}))

    # Running

    async def take(self, vhost: str, worker: str, lease: timedelta) -> Replay | None:
        """A job that should run and that nobody runs, for this process; None if none."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            query = (
                select(redrive_replay)
                .where(
                    _REPLAY.vhost == vhost,
                    _REPLAY.state == ReplayState.RUNNING.value,
                    or_(_REPLAY.locked_by.is_(None), _REPLAY.locked_at <= now - lease),
                )
                # The one that has waited longest: a job that a breaker holds lets others go first.
                .order_by(_REPLAY.updated_at, _REPLAY.id)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            row = (await connection.execute(query)).mappings().one_or_none()
            if row is None:
                return None
            await _write(connection, row["id"], {"locked_by": worker, "locked_at": now})
            if row["locked_by"] is not None:
                await add_counts(connection, {(metrics.TAKEOVERS.name, "replay"): 1})
            return replace(read_replay(row), locked_by=worker, locked_at=now)

    async def begin(self, replay_id: str, worker: str, lease: timedelta) -> Replay:
        """A certain job for this process; `OrderRefused` if it does not run or another has it."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            replay = await _lock(connection, replay_id)
            if replay is None:
                raise OrderRefused(f"there is no replay {replay_id}")
            if replay.state is not ReplayState.RUNNING:
                raise OrderRefused(f"replay {replay_id} is {replay.state.value}")
            held = replay.locked_at is not None and replay.locked_at > now - lease
            if held and replay.locked_by != worker:
                raise OrderRefused(f"replay {replay_id} is being run by {replay.locked_by}")
            await _write(connection, replay_id, {"locked_by": worker, "locked_at": now})
            return replace(replay, locked_by=worker, locked_at=now)

    async def renew(self, replay_id: str, worker: str, reason: str) -> bool:
        """Keep the lease while the job waits, and say why it does; False if it is not ours."""
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            done = await connection.execute(
                update(redrive_replay)
                .where(*_ours(replay_id, worker))
                .values(locked_at=now, reason=reason)
            )
            return bool(done.rowcount)

    async def release(self, replay_id: str, worker: str) -> None:
        """Leave a job to whoever takes it next."""
        async with self._database.writing() as connection:
            await connection.execute(
                update(redrive_replay)
                .where(_REPLAY.id == replay_id, _REPLAY.locked_by == worker)
                .values(locked_by=None, locked_at=None)
            )

    async def take_batch(
        self,
        replay: Replay,
        worker: str,
        destination_of: Callable[[Letter | Head], Destination | None],
        *,
        most: int | None = None,
        room: Room = BOUNDLESS,
    ) -> Batch:
        """Claim the next letters of a job. `destination_of` says where each goes; None for one
        that cannot go anywhere. `room`: what there is room for. A letter for which its queue would
        push out others is not claimed: it pauses the job, unless that was ordered."""
        async with self._database.writing() as connection:
            held = await _lock(connection, replay.id)
            if held is None or not _is_ours(held, worker):
                return Batch(ended=True)
            if held.ordered_by is not None and (stuck := await _stuck_in_order(connection, held)):
                reason = f"letter {stuck} may or may not have been sent, and none may overtake it"
                await _write(
                    connection, held.id, _paused(reason, await self._clock.now(connection))
                )
                return Batch(ended=True)
            size = min(most or held.batch_size, held.batch_size)
            ids = await _next_ids(connection, held.id, held.position, size)
            letters = await lock_heads(connection, ids)
            # After the locks: an edit that is sent is never later than its sending.
            now = await self._clock.now(connection)
            chooser = Chooser(connection, held, now, self._limits, destination_of)
            orders = await chooser.choose(ids, letters, BOUNDLESS if held.drop_oldest else room)
            claims = await claim(connection, orders, worker, now)
            values = _moved(held, chooser, now, claimed=bool(orders))
            await _write(connection, replay.id, values)
        return Batch(
            claims,
            chooser.skipped,
            chooser.wait_until,
            now,
            chooser.held_by,
            frozenset(chooser.look_at),
            ended="state" in values,
            first=held.position,
            positions={id_: held.position + place for place, id_ in enumerate(ids)},
        )

    async def give_back(
        self,
        replay_id: str,
        worker: str,
        batch: Batch,
        outcomes: Sequence[Outcome],
        first: int | None = None,
    ) -> None:
        """Letters of a batch that certainly were not sent: the job takes them again, from the
        position `first` on (None: the whole batch), unless it has gone on, or was cancelled,
        since. Those behind it that were sent are not sent again."""
        first = batch.first if first is None else first
        again = [id_ for id_, _ in batch.skipped if batch.positions[id_] >= first]
        async with self._database.writing() as connection:
            now = await self._clock.now(connection)
            held = await _lock(connection, replay_id)
            await record(connection, worker, outcomes, now, timedelta(0))
            if held is None or held.position != batch.behind:
                return
            if held.state not in (ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.DONE):
                return
            values: dict[str, Any] = {
                "position": first,
                "skipped": held.skipped - len(again),
            }
            if held.state is ReplayState.DONE:
                values["state"] = ReplayState.RUNNING.value
            await _write(connection, replay_id, values)

    async def record(
        self,
        worker: str,
        outcomes: Sequence[Outcome],
        *,
        verdict_after: timedelta,
        stop: Stop | None = None,
    ) -> None:
        """Note what became of a batch, and in the same transaction that its job stops for it: else
        whoever is killed in between leaves a job that goes on behind what was not sent."""
        async with self._database.writing() as connection:
            held = None if stop is None else await _lock(connection, stop.replay_id)
            now = await self._clock.now(connection)
            await record(connection, worker, outcomes, now, verdict_after)
            if stop is not None and held is not None:
                await _stop(connection, held, stop, now)


def last_of_replay(replay_id: str) -> tuple[ColumnElement[bool], ...]:
    """Of the attempts of a job, the newest of each letter: one that was refused, and then sent
    after the job was resumed, was sent."""
    later = redrive_attempt.alias("later")
    newer = exists().where(
        later.c.letter_id == _ATTEMPT.letter_id,
        later.c.generation > _ATTEMPT.generation,
        later.c.replay_id == replay_id,
    )
    return _ATTEMPT.replay_id == replay_id, ~newer


async def _stuck_in_order(connection: AsyncConnection, replay: Replay) -> str | None:
    """Of a job that keeps an order, a letter that may or may not have been sent, and that nobody
    has settled yet: none may overtake it.

    However long the job is, only letters within a batch of its position are looked at. No batch was
    claimed while there was one, so it is of the last that was; and where the job went back, what is
    more than a batch ahead is not overtaken by the next one. A letter that a person had put away,
    and brought back when those behind it had gone, keeps no order any more; nor does one that a
    person sent since. While nobody knows whether that went, or where it was refused, it holds the
    others as before.
    """
    size = replay.batch_size
    near = _ITEM.position.between(replay.position - size, replay.position + size)
    query = (
        select(_ATTEMPT.letter_id)
        .join(redrive_replay_letter, _ITEM.letter_id == _ATTEMPT.letter_id)
        .join(redrive_letter, _LETTER.id == _ATTEMPT.letter_id)
        .where(
            _ITEM.replay_id == replay.id,
            near,
            _ATTEMPT.replay_id == replay.id,
            not_surely_sent_since(),
            _ATTEMPT.result.in_([Result.SENDING.value, Result.IN_DOUBT.value]),
            _LETTER.status.in_([State.PROCESSING.value, State.MANUAL.value]),
        )
        .limit(1)
    )
    return (await connection.execute(query)).scalar_one_or_none()


async def _next_ids(
    connection: AsyncConnection, replay_id: str, position: int, limit: int
) -> list[str]:
    query = (
        select(_ITEM.letter_id)
        .where(_ITEM.replay_id == replay_id, _ITEM.position >= position)
        .order_by(_ITEM.position)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def _lock(connection: AsyncConnection, replay_id: str) -> Replay | None:
    query = select(redrive_replay).where(_REPLAY.id == replay_id).with_for_update()
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else read_replay(row)


async def _stop(connection: AsyncConnection, held: Replay, stop: Stop, now: datetime) -> None:
    if held.state is ReplayState.CANCELLED or held.position <= stop.position:
        return
    moved = {"position": stop.position, "skipped": held.skipped - stop.again}
    await _write(connection, held.id, {**_paused(stop.reason, now), **moved})


async def _write(connection: AsyncConnection, replay_id: str, values: dict[str, Any]) -> None:
    await connection.execute(update(redrive_replay).where(_REPLAY.id == replay_id).values(values))


def _paused(reason: str, now: datetime) -> dict[str, Any]:
    return {
        "state": ReplayState.PAUSED.value,
        "reason": reason,
        "updated_at": now,
        "locked_by": None,
        "locked_at": None,
    }


def _moved(replay: Replay, chooser: Chooser, now: datetime, *, claimed: bool) -> dict[str, Any]:
    """A job behind what was taken: it goes on, waits, is paused or done."""
    position = replay.position + chooser.taken
    reason = ""
    if not claimed and chooser.held_by is not None:
        reason = held_by(chooser.held_by)
    elif not claimed and chooser.look_at:
        reason = replay.reason  # it goes on waiting, until somebody has looked
    values: dict[str, Any] = {
        "position": position,
        "skipped": replay.skipped + len(chooser.skipped),
        "updated_at": now,
        "locked_at": now,
        "reason": reason,
    }
    if position >= replay.letters:
        values |= {"state": ReplayState.DONE.value, "locked_by": None, "locked_at": None}
    elif chooser.full:
        values |= _paused(chooser.full, now)
    return values


def _is_ours(replay: Replay, worker: str) -> bool:
    return replay.state is ReplayState.RUNNING and replay.locked_by == worker


def _ours(replay_id: str, worker: str) -> tuple[Any, ...]:
    return (
        _REPLAY.id == replay_id,
        _REPLAY.locked_by == worker,
        _REPLAY.state == ReplayState.RUNNING.value,
    )


def read_replay(row: Any) -> Replay:
    """A job as its row has it."""
    values = {name: row[name] for name in _COLUMNS}
    values["state"] = ReplayState(values["state"])
    return Replay(**values)
