"""Replays of letters that were listed before, as for a question: one suite that SQLite and
PostgreSQL both pass, for real."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.amqp import fields
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Head, Letter
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, Replay, ReplayOrder, ReplayState
from redrive.domain.verdict import Receipt
from redrive.errors import CountChanged
from redrive.store import replay_list, replay_looks
from redrive.store.listed import Listed
from redrive.store.replay_looks import Origin, ReplayLooks
from redrive.store.store import Store
from tests.services.letters import BEGAN, arrival, died_in, letter_store
from tests.services.plans import goes_by, statements
from tests.services.sending import QUEUE, VHOST, new_id, sent, stored

ME = "job-1"
Going = Counter[Destination | None]


async def seen(store: Store, filters: Filters | None = None, **more: Any) -> tuple[Listed, Going]:
    """What somebody is asked about who replays these."""
    looks = ReplayLooks(store.database, store.replays)
    wanted = {"limit": None, "ordered": False} | more
    return await looks.listed(VHOST, filters or Filters(), to_origin, **wanted)


def to_origin(one: Origin | Letter | Head) -> Destination | None:
    return None if one.queue is None else Destination(queue=one.queue)


async def job_of(store: Store, listed: Listed, **more: Any) -> Replay | None:
    order = ReplayOrder(actor="me", described="as the test wants it", **more)
    return await store.replays.create(new_id(), VHOST, listed, order, worker=ME)


async def taken(store: Store, job: Replay | None) -> list[str]:
    """The letters that a job sends, all in one batch that ends it."""
    assert job is not None
    batch = await store.replays.take_batch(job, ME, to_origin)
    assert batch.ended
    done = await store.replays.get(job.id)
    assert done is not None
    assert (done.state, done.position) == (ReplayState.DONE, job.letters)
    return [claim.letter.id for claim in batch.claims]


async def test_what_is_stored_after_the_list_was_made_is_not_sent_however_old_its_id_is(
    store: Store,
) -> None:
    understood_first = arrival()
    ids = await stored(store, 3)
    listed, going = await seen(store, limit=2)
    assert (len(listed), going) == (2, {Destination(queue=QUEUE): 2})
    await store.letters.add([understood_first])
    await stored(store)
    assert await taken(store, await job_of(store, listed)) == ids[:2]


async def test_what_does_not_match_any_more_is_left_out_and_leaves_no_gap(store: Store) -> None:
    ids = await stored(store, 4)
    listed, _ = await seen(store)
    await store.decisions.discard([ids[0], ids[2]], "me")
    job = await job_of(store, listed)
    assert job is not None
    assert job.letters == 2
    assert await taken(store, job) == [ids[1], ids[3]]


async def test_what_was_named_and_resolved_since_it_was_listed_is_left_out(store: Store) -> None:
    """Who names letters means them in any state: but the one that was seen."""
    again, in_doubt = await stored(store, 2)
    await sent(store)
    await store.verdicts.settle_receipts([Receipt(letter=again, generation=1)])
    listed, _ = await seen(store, Filters(ids=(again, in_doubt), status=tuple(State)))
    await store.verdicts.settle_receipts([Receipt(letter=in_doubt, generation=1)])
    assert await taken(store, await job_of(store, listed, doubtful=True)) == [again]


async def test_where_nothing_that_was_listed_matches_any_more_there_is_no_job(store: Store) -> None:
    ids = await stored(store, 2)
    listed, _ = await seen(store)
    await store.decisions.discard(ids, "me")
    await stored(store)
    with pytest.raises(CountChanged):
        await job_of(store, listed, letters=2)
    assert await job_of(store, listed) is None
    assert (await store.replays.page()).items == ()


def failed_before(hours: int) -> Arrival:
    given = arrival()
    first = BEGAN - timedelta(hours=hours)
    return replace(given, letter=replace(given.letter, first_failed_at=first))


@pytest.mark.parametrize("ordered_by", [None, "header:customer"], ids=["by age", "in order"])
async def test_a_long_list_keeps_its_order(
    store: Store, monkeypatch: pytest.MonkeyPatch, ordered_by: str | None
) -> None:
    monkeypatch.setattr(replay_looks, "_LISTED_AT_ONCE", 3)
    monkeypatch.setattr(replay_list, "_AT_ONCE", 2)
    hours = (3, 1, 4, 1, 5, 9, 2)
    ids = [
        one.letter.id for one in await store.letters.add([failed_before(each) for each in hours])
    ]
    listed, _ = await seen(store, ordered=ordered_by is not None)
    assert len(listed) == len(ids)
    await store.decisions.discard([ids[2]], "me")
    wanted = [ids[place] for place in ((5, 4, 0, 6, 1, 3) if ordered_by else (0, 1, 3, 4, 5, 6))]
    assert await taken(store, await job_of(store, listed, ordered_by=ordered_by)) == wanted


async def test_letters_are_counted_by_where_they_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_looks, "_LISTED_AT_ONCE", 2)
    await stored(store, 3)
    await stored(store, 2, queue="mail")
    await store.letters.add([arrival(headers={})])
    _, going = await seen(store)
    assert going == {Destination(queue=QUEUE): 3, Destination(queue="mail"): 2, None: 1}


TAGGED = {**died_in("billing"), "redrive-tags": fields.longstr("vip,eu")}


@pytest.mark.parametrize(
    "filters",
    [
        Filters(tag="vip"),
        Filters(tag="v*"),
        Filters(search="NEEDLE"),
        Filters(queue="billing"),
        Filters(queue="b?ll*", created_until=BEGAN + timedelta(days=2)),
    ],
    ids=["tag", "tag glob", "search", "queue", "queue glob, and until"],
)
async def test_what_is_listed_by_any_filter_is_looked_at_by_it_again(
    store: Store, filters: Filters
) -> None:
    await stored(store, 2)
    wanted = arrival(b"a NEEDLE", headers=TAGGED, at=timedelta(days=1))
    await store.letters.add([wanted])
    listed, _ = await seen(store, filters)
    assert len(listed) == 1
    assert await taken(store, await job_of(store, listed)) == [wanted.letter.id]


async def test_on_sqlite_letters_of_a_list_are_looked_at_by_their_ids(tmp_path: Path) -> None:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        await stored(store, 3)
        listed, _ = await seen(store, Filters(queue=QUEUE))
        with statements(store, "INSERT INTO redrive_replay_letter") as asked:
            assert await job_of(store, listed) is not None
        assert not await goes_by(store, asked, "redrive_letter_queue")
        assert await goes_by(store, asked, "sqlite_autoindex_redrive_letter_1")
