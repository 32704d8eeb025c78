"""Letters in the store: one suite that SQLite and PostgreSQL both pass, for real."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from redrive.amqp import fields
from redrive.domain.filters import Filters
from redrive.domain.letter import Envelope, Fate
from redrive.domain.lifecycle import State
from redrive.errors import CursorRefused, StoreRefused, StoreUnreachable
from redrive.store.store import Store
from tests.services.letters import (
    BEGAN,
    arrival,
    books_are_exact,
    died_in,
    failed,
    letter_store,
    replayed,
    sent_by_a_worker,
)
from tests.services.sending import all_is_consistent, claimed, sending


def with_id(name: str, **more: Any) -> dict[str, bytes]:
    return {**died_in("orders"), "redrive-id": fields.longstr(name), **more}


# Into the store and out of it


async def test_a_letter_comes_back_as_it_was_stored(store: Store) -> None:
    given = arrival(
        b"\x00\xff body",
        headers={**died_in("orders"), "redrive-tags": fields.longstr("payment, critical")},
        properties={"message_id": "m-1", "app_id": "checkout", "content_type": "text/plain"},
        redelivered=True,
    )
    (kept,) = await store.letters.add([given])
    assert kept.fate is Fate.NEW
    assert await store.letters.get(given.letter.id) == kept.letter == given.letter
    assert given.letter.tags == ("payment", "critical")
    assert await store.letters.envelope(given.letter.id) == given.envelope


@pytest.mark.parametrize("count", [1, 9, 10, 11, 99, 100, 101, 499, 500, 601])
async def test_a_batch_of_any_size_is_stored_whole_and_its_second_copies_are_known(
    store: Store, count: int
) -> None:
    first = [arrival(headers=with_id(f"id-{each}")) for each in range(0, count, 7)]
    await store.letters.add(first)
    owners = dict(zip(range(0, count, 7), (each.letter.id for each in first), strict=True))
    bodies = [bytes(20_000 if each % 50 == 3 else each % 90) for each in range(count)]
    batch = [arrival(body, headers=with_id(f"id-{each}")) for each, body in enumerate(bodies)]
    kept = await store.letters.add(batch)
    assert [each.letter.duplicate_of for each in kept] == [
        owners.get(each) for each in range(count)
    ]
    for given in batch:
        assert await store.letters.envelope(given.letter.id) == given.envelope
    assert (await store.books.ledger()).received == len(first) + count
    assert await books_are_exact(store)


async def test_names_that_are_not_utf8_survive_in_the_envelope(store: Store) -> None:
    given = arrival(routing_key="caf\udce9")
    await store.letters.add([given])
    found = await store.letters.envelope(given.letter.id)
    assert isinstance(found, Envelope)
    assert found.routing_key == "caf\udce9"


async def test_a_history_begins_with_the_arrival(store: Store) -> None:
    given = arrival()
    await store.letters.add([given])
    (first,) = await store.letters.history(given.letter.id)
    assert (first.before, first.after, first.actor) == (None, State.PENDING, "collector")
    assert first.at == given.letter.created_at


async def test_what_is_not_there_is_none(store: Store) -> None:
    nobody = arrival().letter.id
    assert await store.letters.get(nobody) is None
    assert await store.letters.envelope(nobody) is None
    assert await store.letters.history(nobody) == []
    assert await store.letters.attempts(nobody) == []


async def test_a_batch_is_stored_whole_or_not_at_all(store: Store) -> None:
    sound, wrong = arrival(), arrival()
    wrong = replace(wrong, letter=replace(wrong.letter, priority=-1))
    with pytest.raises(StoreRefused):
        await store.letters.add([sound, wrong])
    assert await store.letters.get(sound.letter.id) is None
    assert (await store.books.ledger()).received == 0


async def test_a_batch_whose_commit_was_not_answered_is_not_stored_twice(store: Store) -> None:
    batch = [arrival(headers=with_id("r-1")), arrival()]
    await store.letters.add(batch)
    again = await store.letters.add(batch, again=True)
    assert [kept.letter.id for kept in again] == [given.letter.id for given in batch]
    assert (await store.books.ledger()).received == 2
    assert not any(kept.letter.possible_duplicate for kept in again)


async def test_a_batch_that_was_not_committed_is_stored_when_tried_again(store: Store) -> None:
    batch = [arrival(), arrival()]
    await store.letters.add(batch, again=True)
    assert (await store.books.ledger()).received == 2


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
async def test_bodies_of_any_size_are_kept_byte_for_byte(store: Store, size: int) -> None:
    given = arrival(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    await store.letters.add([given])
    assert await store.letters.envelope(given.letter.id) == given.envelope


# Second copies


async def test_a_second_letter_with_the_same_redrive_id_is_a_possible_duplicate(
    store: Store,
) -> None:
    first, second = arrival(headers=with_id("r-1")), arrival(headers=with_id("r-1"))
    await store.letters.add([first])
    (kept,) = await store.letters.add([second])
    assert kept.fate is Fate.DUPLICATE
    assert kept.letter.possible_duplicate
    assert kept.letter.duplicate_of == first.letter.id


async def test_the_second_copy_is_recognised_within_one_batch(store: Store) -> None:
    first, second = arrival(headers=with_id("r-1")), arrival(headers=with_id("r-1"))
    kept = await store.letters.add([first, second])
    assert [each.fate for each in kept] == [Fate.NEW, Fate.DUPLICATE]
    assert kept[1].letter.duplicate_of == first.letter.id


async def test_the_same_redrive_id_in_another_queue_is_another_failure(store: Store) -> None:
    elsewhere = {**died_in("billing"), "redrive-id": fields.longstr("r-1")}
    kept = await store.letters.add([arrival(headers=with_id("r-1")), arrival(headers=elsewhere)])
    assert [each.fate for each in kept] == [Fate.NEW, Fate.NEW]


async def test_of_two_copies_stored_at_once_one_is_marked(store: Store) -> None:
    for number in range(20):
        name = f"r-{number}"
        results = await asyncio.gather(
            store.letters.add([arrival(headers=with_id(name))]),
            store.letters.add([arrival(headers=with_id(name))]),
        )
        fates = sorted(kept.fate for (kept,) in results)
        assert fates == [Fate.DUPLICATE, Fate.NEW]


async def test_a_redelivery_of_a_stored_message_is_a_possible_duplicate(store: Store) -> None:
    first = arrival(b"tick")
    second = arrival(b"tick", redelivered=True)
    await store.letters.add([first])
    (kept,) = await store.letters.add([second])
    assert kept.letter.duplicate_of == first.letter.id


async def test_a_redelivery_is_recognised_although_the_broker_counted_it(store: Store) -> None:
    first = arrival(b"tick")
    counted = {**died_in("orders"), "x-delivery-count": fields.int64(1)}
    await store.letters.add([first])
    (kept,) = await store.letters.add([arrival(b"tick", headers=counted, redelivered=True)])
    assert kept.letter.duplicate_of == first.letter.id


async def test_identical_twins_that_were_not_redelivered_are_two_letters(store: Store) -> None:
    kept = await store.letters.add([arrival(b"tick"), arrival(b"tick")])
    kept += await store.letters.add([arrival(b"tick")])
    assert [each.fate for each in kept] == [Fate.NEW] * 3


async def test_a_redelivery_from_another_queue_is_no_duplicate(store: Store) -> None:
    await store.letters.add([arrival(b"tick", queue="one.dlq")])
    (kept,) = await store.letters.add([arrival(b"tick", queue="other.dlq", redelivered=True)])
    assert kept.fate is Fate.NEW


async def test_a_redelivery_more_than_a_day_later_is_no_duplicate(store: Store) -> None:
    await store.letters.add([arrival(b"tick", at=timedelta())])
    (kept,) = await store.letters.add(
        [arrival(b"tick", redelivered=True, at=timedelta(hours=24, seconds=1))]
    )
    assert kept.fate is Fate.NEW


# Lists


async def test_pages_show_every_letter_once_newest_first(store: Store) -> None:
    given = [arrival(str(number).encode()) for number in range(25)]
    await store.letters.add(given)
    seen: list[str] = []
    after: str | None = None
    while True:
        page = await store.letters.page(Filters(), limit=10, after=after)
        seen += [letter.id for letter in page.items]
        after = page.next
        if after is None:
            break
        await store.letters.add([arrival()])  # what arrives meanwhile moves nothing
    assert seen == [each.letter.id for each in reversed(given)]


async def test_the_neighbours_of_a_letter_are_those_of_the_list_it_is_seen_in(
    store: Store,
) -> None:
    tagged = {**died_in("orders"), "redrive-tags": fields.longstr("vip")}
    given = [arrival(headers=tagged), failed("a"), arrival(headers=tagged), failed("b")]
    oldest, first, vip, second = [kept.letter.id for kept in await store.letters.add(given)]
    neighbours = store.letters.neighbours
    assert await neighbours(first, Filters()) == (vip, oldest)
    assert await neighbours(first, Filters(error_type="TIMEOUT_ERROR")) == (second, None)
    assert await neighbours(vip, Filters(tag="vip")) == (None, oldest)
    assert await neighbours(first, Filters(tag="vip")) == (vip, oldest)


async def test_a_cursor_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(CursorRefused):
        await store.letters.page(Filters(), after="nonsense")


FOUND_BY = {
    "status": Filters(status=(State.PENDING,)),
    "error type": Filters(error_type="TIMEOUT_ERROR"),
    "error type glob": Filters(error_type="TIME*"),
    "error reason glob": Filters(error_reason="*[5 s]_100%"),
    "queue": Filters(queue="billing"),
    "queue glob": Filters(queue="bil?ing"),
    "exchange": Filters(exchange="shop"),
    "routing key": Filters(routing_key="order.created"),
    "source": Filters(source="billing"),
    "search, any case": Filters(search="AFTER [5"),
    "search in the body": Filters(search='"order"'),
    "from": Filters(created_from=BEGAN),
    "until": Filters(created_until=BEGAN + timedelta(days=3)),
}
NOT_FOUND_BY = {
    "status": Filters(status=(State.MANUAL, State.FAILED)),
    "case": Filters(error_type="timeout*"),
    "glob signs of SQL": Filters(error_reason="%"),
    "half a name": Filters(queue="bill"),
    "search": Filters(search="nowhere"),
    "search, signs of SQL": Filters(search="_____________________________"),
    "from": Filters(created_from=BEGAN + timedelta(days=3)),
    "until": Filters(created_until=BEGAN - timedelta(seconds=1)),
    "tag": Filters(tag="payment"),
}


@pytest.mark.parametrize("name", FOUND_BY)
async def test_a_letter_is_found_by(store: Store, name: str) -> None:
    await store.letters.add([failed("timeout after [5 s]_100%", queue="billing")])
    assert len((await store.letters.page(FOUND_BY[name])).items) == 1


@pytest.mark.parametrize("name", NOT_FOUND_BY)
async def test_a_letter_is_not_found_by(store: Store, name: str) -> None:
    await store.letters.add([failed("timeout after [5 s]_100%", queue="billing")])
    assert (await store.letters.page(NOT_FOUND_BY[name])).items == ()


async def test_filters_by_id_tag_and_group_find_what_they_name(store: Store) -> None:
    tagged = arrival(headers={**died_in("orders"), "redrive-tags": fields.longstr("a,b")})
    other = failed("something else")
    await store.letters.add([tagged, other])
    for filters in (
        Filters(ids=(tagged.letter.id,)),
        Filters(tag="b"),
        Filters(tag="?"),
        Filters(group=tagged.letter.fingerprint),
    ):
        assert [each.id for each in (await store.letters.page(filters)).items] == [tagged.letter.id]


async def test_ids_are_found_by_their_beginning(store: Store) -> None:
    given = [arrival() for _ in range(3)]
    await store.letters.add(given)
    whole = given[1].letter.id
    assert await store.letters.ids_beginning(whole) == [whole]
    assert set(await store.letters.ids_beginning(whole[:10])) == {each.letter.id for each in given}
    assert await store.letters.ids_beginning("zz") == []
    assert await store.letters.ids_beginning("") == []
    assert await store.letters.ids_beginning("0" * 33) == []


# Export and import


async def test_what_is_streamed_and_restored_is_the_same(store: Store, tmp_path: Path) -> None:
    given = [arrival(str(number).encode()) for number in range(45)]
    await store.letters.add(given)
    await sent_by_a_worker(store, given[0])
    await store.letters.add([arrival(b"0", headers=replayed(given[0].letter.id, 1))])
    kept = [each async for each in store.letters.stream(Filters())]
    assert [each.letter.id for each in kept] == [each.letter.id for each in given]
    async with letter_store(f"sqlite:///{tmp_path}/other.db") as other:
        assert await other.letters.restore(kept) == 45
        assert await other.letters.restore(kept) == 0
        assert [each async for each in other.letters.stream(Filters())] == kept
        assert await books_are_exact(other)


async def test_a_second_copy_of_a_restored_letter_is_recognised(store: Store) -> None:
    given = arrival(headers=with_id("r-1"))
    await store.letters.add([given])
    kept = [each async for each in store.letters.stream(Filters())]
    async with store.database.writing() as connection:
        for table in ("redrive_letter", "redrive_envelope", "redrive_identity", "redrive_ledger"):
            await connection.execute(text(f"DELETE FROM {table}"))
    await store.letters.restore(kept)
    (second,) = await store.letters.add([arrival(headers=with_id("r-1"))])
    assert second.letter.duplicate_of == given.letter.id


async def test_a_pending_letter_from_elsewhere_is_due(store: Store, tmp_path: Path) -> None:
    await store.letters.add([arrival()])
    (kept,) = [each async for each in store.letters.stream(Filters())]
    kept = replace(kept, letter=replace(kept.letter, next_retry_at=None))
    async with letter_store(f"sqlite:///{tmp_path}/other.db") as other:
        await other.letters.restore([kept])
        assert len(await claimed(other)) == 1
        await all_is_consistent(other)


@pytest.mark.parametrize("queue", ["orders", None])
async def test_a_letter_that_was_being_sent_is_in_doubt_elsewhere(
    store: Store, tmp_path: Path, queue: str | None
) -> None:
    await store.letters.add([arrival()])
    await claimed(store, sending(queue))
    kept = [each async for each in store.letters.stream(Filters())]
    async with letter_store(f"sqlite:///{tmp_path}/other.db") as other:
        await other.letters.restore(kept)
        await all_is_consistent(other)
        found = await other.letters.get(kept[0].letter.id)
        assert found is not None
        assert (found.status, found.locked_by) == (State.PROCESSING, None)
        survey = await other.verdicts.survey("/", timedelta(0))
        assert (survey.leases, survey.awaited, survey.silent) == (
            False,
            queue is not None,
            queue is None,
        )


# Clocks


async def test_a_new_letter_is_due_however_far_ahead_its_collectors_clock_is(store: Store) -> None:
    ahead = datetime.now(UTC) - BEGAN + timedelta(hours=1)
    (collected,) = await store.letters.add([arrival(at=ahead)])
    assert collected.letter == await store.letters.get(collected.letter.id)
    assert len(await claimed(store)) == 1


# Groups and books


async def test_letters_that_failed_alike_are_one_group(store: Store) -> None:
    await store.letters.add([failed(f"timeout after {number} ms") for number in range(100, 110)])
    await store.letters.add([failed("connection refused by 10.0.0.1:5432")])
    page = await store.groups.page()
    assert [(group.letters, group.error_type) for group in page.items] == [
        (1, "TIMEOUT_ERROR"),
        (10, "TIMEOUT_ERROR"),
    ]
    biggest = page.items[1]
    assert biggest.counts == {State.PENDING: 10}
    assert biggest.first_seen_at < biggest.last_seen_at
    assert await store.groups.get(biggest.fingerprint) == biggest
    assert await store.groups.get("0" * 16) is None


async def test_groups_are_paged(store: Store) -> None:
    letters = [failed("no", queue=f"queue-{number}") for number in range(7)]
    await store.letters.add(letters)
    first = await store.groups.page(limit=5)
    rest = await store.groups.page(limit=5, after=first.next)
    assert (len(first.items), len(rest.items), rest.next) == (5, 2, None)
    assert [group.queue for group in (*first.items, *rest.items)] == [
        f"queue-{number}" for number in reversed(range(7))
    ]


async def test_the_books_stay_exact_with_four_writers_and_a_compactor(store: Store) -> None:
    async def write(writer: int) -> None:
        for number in range(10):
            await store.letters.add(
                [failed(f"no such thing {writer}-{number}-{each}") for each in range(5)]
            )

    async def compact() -> None:
        for _ in range(10):
            await store.books.compact()

    await asyncio.gather(*(write(number) for number in range(4)), compact())
    before = await store.books.audit()
    assert before.exact
    assert before.ledger.received == 200
    await store.books.compact()
    assert await store.books.audit() == before
    (group,) = (await store.groups.page()).items
    assert group.letters == 200


async def test_compacting_leaves_one_row_for_each_account_of_a_group(store: Store) -> None:
    for _ in range(5):
        await store.letters.add([failed("no")])
    await store.books.compact()
    async with store.database.reading() as connection:
        rows = (await connection.execute(text("SELECT account, delta FROM redrive_ledger"))).all()
    assert {row.account: row.delta for row in rows} == {
        "received": 5,
        "dlq_pending": 5,
    }


async def test_an_audit_notices_a_letter_that_vanished(store: Store) -> None:
    given = arrival()
    await store.letters.add([given])
    async with store.database.writing() as connection:
        await connection.execute(text("DELETE FROM redrive_letter"))
    assert not await books_are_exact(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE redrive_letter SET status = 'lost'",
        "UPDATE redrive_letter SET resolution = 'hope'",
        "UPDATE redrive_letter SET locked_by = 'somebody'",
        "UPDATE redrive_letter SET generation = -1",
        "INSERT INTO redrive_ledger (fingerprint, account, delta) VALUES ('x', 'other', 1)",
    ],
)
async def test_the_database_itself_refuses_what_cannot_be(store: Store, statement: str) -> None:
    await store.letters.add([arrival()])
    with pytest.raises(StoreRefused):
        async with store.database.writing() as connection:
            await connection.execute(text(statement))


async def test_nothing_is_stored_into_a_file_that_is_not_at_its_path_any_more(
    tmp_path: Path,
) -> None:
    path = tmp_path / "redrive.db"
    async with letter_store(f"sqlite:///{path}") as store:
        await store.letters.add([arrival()])
        path.rename(tmp_path / "moved.db")
        with pytest.raises(StoreUnreachable):
            await store.letters.add([arrival()])
        (tmp_path / "moved.db").rename(path)
        await store.letters.add([arrival()])
        assert (await store.books.ledger()).received == 2


async def test_a_proof_that_there_is_room_leaves_nothing_behind(store: Store) -> None:
    before = await store.books.audit()
    await store.letters.prove_writable(room=5_000_000)
    assert await store.books.audit() == before
    async with store.database.reading() as connection:
        left = await connection.scalar(text("select count(*) from redrive_request"))
    assert left == 0
