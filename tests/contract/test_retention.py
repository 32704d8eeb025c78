"""Retention: one suite that SQLite and PostgreSQL both pass, for real. Time is set, not waited."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text
from structlog.testing import capture_logs

from redrive.amqp import fields
from redrive.domain.filters import Filters
from redrive.domain.letter import Fate, Kept
from redrive.domain.lifecycle import DELETABLE, State
from redrive.domain.replay import ReplayOrder
from redrive.errors import TransitionRefused
from redrive.store import retention as store_retention
from redrive.store.changing import Changes, lock_letters
from redrive.store.details import keep, one_moment
from redrive.store.engine import Database
from redrive.store.retention import Expiry
from redrive.store.rows import read_letter
from redrive.store.schema import (
    redrive_attempt,
    redrive_edit,
    redrive_envelope,
    redrive_history,
    redrive_letter,
    redrive_replay_letter,
    redrive_tag,
)
from redrive.store.store import Store, open_letter_store
from redrive.work import cold_storage as cold_storage_module
from redrive.work import retention as retention_module
from redrive.work.cold_storage import ColdStorage, as_restored
from redrive.work.export import read_line
from redrive.work.retention import Retention, Retired
from tests.services.letters import arrival, books_are_exact, died_in, letter_store, replayed
from tests.services.retiring import CHANGED, PERIODS, letter_in, state_of
from tests.services.sending import new_id, stored

MILLISECOND = timedelta(milliseconds=1)
YEARS = timedelta(days=1000)
"""Whatever is kept for some time only, is over then."""
OUTCOMES = {State.RESOLVED: None, State.FAILED: State.ARCHIVED, State.ARCHIVED: None}
"""What becomes of a letter whose time is over; None if it is deleted."""


class Crash(Exception):
    """The process died here."""


@pytest.fixture
def store(store: Store) -> Store:
    """An empty store whose time stands still, at first when letters came into their states."""
    stop_clock(store)
    return store


def stop_clock(store: Store) -> None:
    async def now(_: object) -> datetime:
        return CHANGED + store.clock.ahead

    store.clock.now = now  # type: ignore[method-assign, assignment]


@pytest.fixture
def storage(tmp_path: Path) -> ColdStorage:
    return ColdStorage(tmp_path / "archive")


@pytest.fixture
def retention(store: Store, storage: ColdStorage) -> Retention:
    return Retention(store.expiry, storage, PERIODS)


async def kept(store: Store, letter_id: str) -> Kept:
    found = await store.letters.kept(letter_id)
    assert found is not None
    return found


# The table


@pytest.mark.parametrize("state", OUTCOMES)
async def test_a_letter_whose_time_is_over_goes_its_way(
    store: Store, retention: Retention, state: State
) -> None:
    letter = await letter_in(store, state)
    store.clock.ahead = PERIODS[state]
    done = await retention.round()
    assert await state_of(store, letter) is OUTCOMES[state]
    archived = int(state is State.FAILED)
    assert done == Retired(deleted=1 - archived, archived=archived)
    assert await books_are_exact(store)


async def test_a_replay_that_ended_is_forgotten_with_its_list(
    store: Store, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_retention, "LISTED", 2)
    await stored(store, 5)
    order = ReplayOrder(actor="me", described="")
    jobs = [await store.replays.create(new_id(), "/", Filters(), order) for _ in range(3)]
    cancelled, running, paused = [job.id for job in jobs if job is not None]
    await store.replays.cancel(cancelled, "no")
    await store.replays.pause(paused, "not now")
    store.clock.ahead = PERIODS[State.RESOLVED] - MILLISECOND
    assert await retention.round() == Retired()
    store.clock.ahead = PERIODS[State.RESOLVED] * 2  # it rests for a while
    assert await retention.round() == Retired(replays=1)
    assert [job.id for job in (await store.replays.page()).items] == [paused, running]
    listed = select(redrive_replay_letter.c.replay_id, func.count()).group_by(text("1"))
    async with store.database.reading() as connection:
        rows = [tuple(row) for row in await connection.execute(listed)]
    assert sorted(rows) == [(running, 5), (paused, 5)]


@pytest.mark.parametrize("state", OUTCOMES)
async def test_a_millisecond_earlier_nothing_happens(
    store: Store, retention: Retention, state: State
) -> None:
    letter = await letter_in(store, state)
    store.clock.ahead = PERIODS[state] - MILLISECOND
    assert await retention.round() == Retired()
    assert await state_of(store, letter) is state


@pytest.mark.parametrize("state", [State.PENDING, State.MANUAL, State.PROCESSING])
async def test_what_somebody_has_to_do_something_about_is_kept_for_ever(
    store: Store, retention: Retention, state: State
) -> None:
    letter = await letter_in(store, state)
    store.clock.ahead = timedelta(days=36500)
    assert await retention.round() == Retired()
    assert await state_of(store, letter) is state


async def test_time_is_that_of_the_databases_clock(store: Store, retention: Retention) -> None:
    del store.clock.now  # it goes on
    async with store.database.reading() as connection:
        now = await store.clock.now(connection)
    letter = await letter_in(store, State.RESOLVED, at=now)
    store.clock.ahead = timedelta(days=29)
    await retention.round()
    assert await state_of(store, letter) is State.RESOLVED
    store.clock.ahead = timedelta(days=31)
    await retention.round()
    assert await state_of(store, letter) is None


async def test_a_resolved_letter_leaves_no_file(
    store: Store, retention: Retention, storage: ColdStorage
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    await letter_in(store, State.RESOLVED)
    await retention.round()
    assert storage.names() == []


async def test_nothing_of_a_deleted_letter_stays_but_its_identity(
    store: Store, retention: Retention
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    await letter_in(store, State.RESOLVED, edits=[b"better"])
    assert (await retention.round()).deleted == 1
    async with store.database.reading() as connection:
        for table in (
            redrive_letter,
            redrive_envelope,
            redrive_tag,
            redrive_history,
            redrive_attempt,
            redrive_edit,
        ):
            rows = await connection.execute(select(func.count()).select_from(table))
            assert rows.scalar_one() == 0, table.name


async def test_a_second_copy_of_a_deleted_letter_is_recognised(
    store: Store, retention: Retention
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    named = {**died_in("orders"), "redrive-id": fields.longstr("r-1")}
    gone = await letter_in(store, State.RESOLVED, headers=named)
    await retention.round()
    (copy,) = await store.letters.add([arrival(headers=named)])
    assert (copy.fate, copy.letter.duplicate_of) == (Fate.DUPLICATE, gone)
    assert await books_are_exact(store)


async def test_a_return_of_a_deleted_letter_is_a_new_one_with_its_id(
    store: Store, retention: Retention
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    gone = await letter_in(store, State.RESOLVED)
    await retention.round()
    (back,) = await store.letters.add([arrival(headers=replayed(gone, 1))])
    assert (back.fate, back.letter.previous_id) == (Fate.SUCCESSOR, gone)


async def test_the_books_tell_what_was_deleted(store: Store, retention: Retention) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    for state in State:
        await letter_in(store, state)
    await retention.round()
    ledger = await store.books.ledger()
    assert (ledger.received, ledger.deleted, ledger.states[State.ARCHIVED]) == (6, 1, 2)
    assert await books_are_exact(store)


async def test_a_group_is_listed_as_long_as_it_has_letters(
    store: Store, retention: Retention
) -> None:
    store.clock.ahead = PERIODS[State.RESOLVED]
    await letter_in(store, State.RESOLVED)
    await retention.round()
    assert (await store.groups.page()).items == ()
    await store.letters.add([arrival()])
    (group,) = (await store.groups.page()).items
    assert group.counts == {State.PENDING: 1}


async def test_a_letter_that_is_deleted_while_it_is_read_is_read_whole(store: Store) -> None:
    letter = await letter_in(store, State.RESOLVED, edits=[b"better"])
    before = await kept(store, letter)
    async with store.database.reading() as connection:
        await one_moment(connection)
        row = (await connection.execute(select(redrive_letter))).mappings().one()
        assert await store.expiry.delete_resolved([letter], CHANGED) == 1
        assert await keep(connection, [read_letter(row)]) == [before]


# Rounds


async def test_a_round_that_takes_too_long_ends_and_the_next_one_goes_on(
    store: Store, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_retention, "AT_ONCE", 2)
    monkeypatch.setattr(retention_module, "_LONGEST_ROUND", -1.0)
    store.clock.ahead = PERIODS[State.FAILED]
    for state in (State.RESOLVED, State.FAILED):
        for _ in range(3):
            await letter_in(store, state)
    rounds = [await retention.round() for _ in range(3)]
    assert rounds == [
        Retired(deleted=2, archived=2),
        Retired(deleted=1, archived=1),
        Retired(),
    ]


async def test_retention_rests_when_nothing_more_is_due(store: Store, retention: Retention) -> None:
    store.clock.ahead = PERIODS[State.RESOLVED]
    assert await retention.round() == Retired()
    await letter_in(store, State.RESOLVED)
    assert await retention.round() == Retired()
    store.clock.ahead += timedelta(hours=6)
    assert await retention.round() == Retired(deleted=1)


async def test_what_was_done_is_logged_with_numbers(store: Store, retention: Retention) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    for state in (State.RESOLVED, State.FAILED, State.FAILED):
        await letter_in(store, state)
    with capture_logs() as logs:
        await retention.round()
    told = [(entry["event"], entry["letters"]) for entry in logs]
    assert told == [("retention.deleted", 1), ("retention.archived", 2)]


# Cold storage


async def test_a_failed_letter_is_in_a_sound_file_when_it_is_archived(
    store: Store, retention: Retention, storage: ColdStorage
) -> None:
    letter = await letter_in(store, State.FAILED, b"\xff\x00", edits=[b"one", b"\xfe"])
    before = await kept(store, letter)
    store.clock.ahead = PERIODS[State.FAILED]
    await retention.round()
    (name,) = storage.names()
    assert name == f"2026/05/{letter}-1.jsonl.zst"
    assert storage.check(name).sound
    assert storage.read_back(name) == [before]
    change = (await kept(store, letter)).history[-1]
    assert (change.actor, change.before, change.after) == (
        "retention",
        State.FAILED,
        State.ARCHIVED,
    )
    assert change.reason == f"kept for 90d; it is in cold storage: {name}"


async def test_an_archived_letter_that_is_in_a_file_is_not_written_again(
    store: Store, retention: Retention, storage: ColdStorage
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    letter = await letter_in(store, State.FAILED)
    await retention.round()
    names = storage.names()
    store.clock.ahead = YEARS
    assert await retention.round() == Retired(deleted=1)
    assert await state_of(store, letter) is None
    assert storage.names() == names


@pytest.mark.parametrize("what", ["file", "manifest", "letter"])
async def test_an_archived_letter_whose_file_does_not_hold_it_any_more_is_written_again(
    store: Store, retention: Retention, storage: ColdStorage, what: str
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    letter = await letter_in(store, State.FAILED)
    await retention.round()
    (first,) = storage.names()
    path = storage.folder / first
    if what == "file":
        path.unlink()
    elif what == "manifest":
        path.with_name(f"{letter}-1.json").write_text("{}")
    else:
        async with store.database.writing() as connection:
            await connection.execute(redrive_letter.update().values(priority=9))
    store.clock.ahead = YEARS
    now = await kept(store, letter)
    assert await retention.round() == Retired(deleted=1)
    (second,) = set(storage.names()) - {first}
    assert storage.read_back(second) == [now]


async def test_many_letters_are_written_in_bounded_files(
    store: Store,
    retention: Retention,
    storage: ColdStorage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    monkeypatch.setattr(store_retention, "AT_ONCE", 3)
    monkeypatch.setattr(store_retention, "BYTES_AT_ONCE", 5000)
    sizes = [1, 1, 1, 1, 4000, 4000, 9000, 1]
    letters = [await letter_in(store, State.FAILED, b"x" * size) for size in sizes]
    assert await retention.round() == Retired(archived=8)
    found = [[each.letter.id for each in storage.read_back(name)] for name in storage.names()]
    assert sorted(map(len, found)) == [1, 1, 1, 2, 3]
    assert sorted(itertools.chain(*found)) == letters
    assert await books_are_exact(store)


async def test_a_letter_that_no_line_can_hold_stays_and_keeps_no_other_back(
    store: Store, retention: Retention, storage: ColdStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    stays, goes = [await letter_in(store, State.FAILED) for _ in range(2)]

    def only_the_other(line: bytes) -> Any:
        answer = read_line(line)
        assert isinstance(answer, Kept)
        return None if answer.letter.id == stays else answer

    monkeypatch.setattr(cold_storage_module, "read_line", only_the_other)
    with capture_logs() as logs:
        assert await retention.round() == Retired(archived=1)
    assert await state_of(store, stays) is State.FAILED
    assert await state_of(store, goes) is State.ARCHIVED
    assert [entry["letter"] for entry in logs if entry["event"] == "retention.left"] == [stays]


async def test_a_letter_that_comes_back_from_cold_storage_is_as_it_was(
    store: Store, retention: Retention, storage: ColdStorage
) -> None:
    letter = await letter_in(store, State.ARCHIVED, b"\xff\x00\n", edits=[b"a", b"\xfe"])
    before = await kept(store, letter)
    store.clock.ahead = YEARS
    await retention.round()
    (name,) = storage.names()
    now = await store.expiry.now()
    back = [as_restored(each, now=now, actor="me", name=name) for each in storage.read_back(name)]
    assert await store.letters.restore(back) == 1
    after = await kept(store, letter)
    assert after.history[-1].reason == f"brought back from {name}"
    same = replace(after.letter, updated_at=before.letter.updated_at)
    assert replace(after, letter=same, history=after.history[:-1]) == before
    assert await books_are_exact(store)


async def test_a_letter_that_came_back_is_not_taken_at_once_again(
    store: Store, retention: Retention, storage: ColdStorage
) -> None:
    letter = await letter_in(store, State.ARCHIVED)
    store.clock.ahead = YEARS
    await retention.round()
    (name,) = storage.names()
    now = await store.expiry.now()
    back = [as_restored(each, now=now, actor="me", name=name) for each in storage.read_back(name)]
    await store.letters.restore(back)
    store.clock.ahead += timedelta(days=1)
    assert await retention.round() == Retired()
    assert await state_of(store, letter) is State.ARCHIVED


# Crashes

STEPS = {
    "before the file is written": (ColdStorage, "write"),
    "while the file is written": (cold_storage_module, "write_lines"),
    "before the file has its name": (cold_storage_module, "settle"),
    "before the manifest is written": (cold_storage_module, "manifest_text"),
    "before the file is read back": (ColdStorage, "read_back"),
    "before the letter is changed": (store_retention, "lock_letters"),
    "before the change is committed": (Database, "_require_its_file"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", [State.FAILED, State.ARCHIVED])
async def test_a_crash_leaves_the_letter_in_the_store_and_the_next_round_goes_on(
    store: Store, storage: ColdStorage, state: State, step: str
) -> None:
    store.clock.ahead = PERIODS[state]
    letter = await letter_in(store, state, b"\xff", edits=[b"better"])
    before = await kept(store, letter)

    def crash(*_: Any, **__: Any) -> Any:
        raise Crash(step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*STEPS[step], crash)
        with pytest.raises(Crash):
            await Retention(store.expiry, storage, PERIODS).round()
    assert await kept(store, letter) == before
    assert await books_are_exact(store)
    await Retention(store.expiry, storage, PERIODS).round()
    assert await state_of(store, letter) is OUTCOMES[state]
    (name,) = storage.names()
    assert storage.read_back(name) == [before]
    assert not list(storage.folder.rglob("*.part"))
    assert await books_are_exact(store)


@pytest.mark.parametrize("state", [State.FAILED, State.ARCHIVED])
async def test_a_letter_whose_file_is_damaged_stays(
    store: Store,
    retention: Retention,
    storage: ColdStorage,
    monkeypatch: pytest.MonkeyPatch,
    state: State,
) -> None:
    store.clock.ahead = PERIODS[state]
    letter = await letter_in(store, state)
    write = storage.write

    def damaging(*given: Any, **more: Any) -> Any:
        written = write(*given, **more)
        assert written.name is not None
        path = storage.folder / written.name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        return written

    monkeypatch.setattr(storage, "write", damaging)
    with capture_logs() as logs:
        assert await retention.round() == Retired()
        assert await retention.round() == Retired()
    assert await state_of(store, letter) is state
    assert [entry["event"] for entry in logs] == ["retention.cold_storage"]
    assert len(storage.names()) == 1, "it is not tried again before it has rested"


async def test_while_cold_storage_cannot_be_written_that_is_said_once_and_nothing_is_lost(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "archive").write_text("not a folder")
    retention = Retention(store.expiry, ColdStorage(tmp_path / "archive"), PERIODS)
    failed, archived = [await letter_in(store, one) for one in (State.FAILED, State.ARCHIVED)]
    resolved = await letter_in(store, State.RESOLVED)
    store.clock.ahead = YEARS
    with capture_logs() as logs:
        assert await retention.round() == Retired(deleted=1)
        assert await retention.round() == Retired()
    assert await state_of(store, failed) is State.FAILED
    assert await state_of(store, archived) is State.ARCHIVED
    assert await state_of(store, resolved) is None
    (said,) = [entry for entry in logs if entry["event"] == "retention.cold_storage"]
    assert str(tmp_path / "archive") in said["error"]
    assert "[retention] cold_storage" in said["remedy"]
    (tmp_path / "archive").unlink()
    assert await retention.round() == Retired(deleted=1, archived=1)


async def test_without_cold_storage_only_resolved_letters_go(store: Store) -> None:
    store.clock.ahead = PERIODS[State.FAILED]
    retention = Retention(store.expiry, None, PERIODS)
    failed = await letter_in(store, State.FAILED)
    await letter_in(store, State.RESOLVED)
    with capture_logs() as logs:
        assert await retention.round() == Retired(deleted=1)
    assert await state_of(store, failed) is State.FAILED
    assert "set [retention] cold_storage" in [entry.get("remedy") for entry in logs]


# Letters that change meanwhile


@pytest.mark.parametrize("what", ["state", "edit", "history"])
@pytest.mark.parametrize("state", [State.FAILED, State.ARCHIVED])
async def test_a_letter_that_changed_after_it_was_read_is_left_alone(
    store: Store, retention: Retention, state: State, what: str
) -> None:
    letter = await letter_in(store, state)
    (found,) = await store.expiry.read([letter], state, CHANGED)
    async with store.database.writing() as connection:
        if what == "state":
            changes = Changes(connection, CHANGED, "me")
            locked = await lock_letters(connection, [letter])
            changes.become(locked[letter], State.MANUAL, "it is wanted")
            await changes.flush()
        elif what == "edit":
            await connection.execute(
                redrive_edit.insert().values(
                    letter_id=letter,
                    number=1,
                    at=CHANGED,
                    actor="me",
                    reason="",
                    properties=b"",
                    body=b"",
                    undone=False,
                )
            )
        else:
            await connection.execute(redrive_history.update().values(reason="another"))
    change = store.expiry.archive([found], "") if state is State.FAILED else None
    assert await (change or store.expiry.delete([found])) == 0
    assert await state_of(store, letter) is (State.MANUAL if what == "state" else state)
    assert await books_are_exact(store)


@pytest.mark.parametrize(
    ("state", "ways"),
    [
        (State.FAILED, [State.MANUAL]),
        (State.FAILED, [State.PROCESSING]),
        (State.FAILED, [State.PROCESSING, State.FAILED]),
        (State.ARCHIVED, [State.MANUAL]),
        (State.ARCHIVED, [State.MANUAL, State.ARCHIVED]),
    ],
)
async def test_a_letter_that_changed_after_it_was_found_is_left_alone_and_keeps_no_other_back(
    store: Store,
    retention: Retention,
    storage: ColdStorage,
    monkeypatch: pytest.MonkeyPatch,
    state: State,
    ways: list[State],
) -> None:
    monkeypatch.setattr(store_retention, "BYTES_AT_ONCE", 1)
    changed, other = [await letter_in(store, state) for _ in range(2)]
    store.clock.ahead = PERIODS[state]
    due = store.expiry.due

    async def found_and_changed(*given: Any, **more: Any) -> list[str]:
        ids = await due(*given, **more)
        for way in ways if changed in ids else ():
            async with store.database.writing() as connection:
                changes = Changes(connection, await store.expiry.now(), "me")
                locked = await lock_letters(connection, [changed])
                changes.become(locked[changed], way, "it is wanted")
                await changes.flush()
        return ids

    monkeypatch.setattr(store.expiry, "due", found_and_changed)
    archived = int(state is State.FAILED)
    assert await retention.round() == Retired(deleted=1 - archived, archived=archived)
    assert await state_of(store, changed) is ways[-1]
    assert await state_of(store, other) is OUTCOMES[state]
    (name,) = storage.names()
    assert [each.letter.id for each in storage.read_back(name)] == [other]
    assert await books_are_exact(store)


@pytest.mark.parametrize("state", State)
async def test_only_failed_letters_are_archived_and_only_archived_ones_deleted_with_a_file(
    store: Store, state: State
) -> None:
    letter = await letter_in(store, state)
    found = await kept(store, letter)
    if state is not State.FAILED:
        assert await store.expiry.archive([found], "") == 0
    if state is not State.ARCHIVED:
        assert await store.expiry.delete([found]) == 0
    assert await kept(store, letter) == found
    assert await books_are_exact(store)


@pytest.mark.parametrize("state", [state for state in State if state not in DELETABLE])
async def test_what_is_not_over_is_never_deleted_whoever_asks(store: Store, state: State) -> None:
    letter = await letter_in(store, state)
    found = await kept(store, letter)
    with pytest.raises(TransitionRefused, match=f"{state.word} is never deleted"):
        async with store.database.writing() as connection:
            await store_retention._delete(connection, [found.letter])
    assert await kept(store, letter) == found


async def test_a_resolved_letter_that_came_back_is_left_alone(store: Store) -> None:
    letter = await letter_in(store, State.RESOLVED)
    ids = await store.expiry.due(State.RESOLVED, CHANGED)
    await store.letters.add([arrival(headers=replayed(letter, 1))])
    assert ids == [letter]
    assert await store.expiry.delete_resolved(ids, CHANGED) == 0
    assert await state_of(store, letter) is State.PENDING


# Several janitors


async def test_two_janitors_at_once_do_the_work_once(
    store: Store, storage: ColdStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where neither knows of the other."""

    @asynccontextmanager
    async def alone(_: Expiry) -> AsyncIterator[bool]:
        yield True

    monkeypatch.setattr(Expiry, "alone", alone)
    letters = [
        await letter_in(store, state, b"%d" % number) for state in OUTCOMES for number in range(5)
    ]
    other = await open_letter_store(_url(store))
    other.clock.ahead = store.clock.ahead = YEARS
    try:
        both = [Retention(each.expiry, storage, PERIODS) for each in (store, other)]
        first, second = await asyncio.gather(*(each.round() for each in both))
    finally:
        await other.close()
    assert first.deleted + second.deleted == 10
    assert first.archived + second.archived == 5
    states = [await state_of(store, letter) for letter in letters]
    assert states == [OUTCOMES[state] for state in OUTCOMES for _ in range(5)]
    assert all(storage.check(name).sound for name in storage.names())
    assert await books_are_exact(store)


async def test_one_janitor_works_while_another_is_at_it(database: str, tmp_path: Path) -> None:
    async with letter_store(database) as store:
        letter = await letter_in(store, State.RESOLVED)
        stop_clock(store)
        store.clock.ahead = YEARS
        retention = Retention(store.expiry, ColdStorage(tmp_path), PERIODS)
        async with store.expiry.alone() as alone:
            assert alone
            assert await retention.round() == Retired()
            assert await state_of(store, letter) is State.RESOLVED
        assert await retention.round() == Retired(deleted=1)


def _url(store: Store) -> str:
    return str(store.database.shown)
