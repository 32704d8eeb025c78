"""Possible duplicates: found among any number of letters, counted, settled a group at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.amqp import fields
from redrive.domain import metrics
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival
from redrive.domain.lifecycle import State
from redrive.errors import StoreRefused
from redrive.store.store import Store
from redrive.work.decide import decide
from tests.services.letters import (
    BEGAN,
    arrival,
    books_are_exact,
    died_in,
    letter_store,
)
from tests.services.plans import Asked, goes_by, statements

ANN = "cli:ann"
INDEX = "redrive_letter_possible_duplicate"
COPIES = Filters(possible_duplicate=True)
Headers = Mapping[str, bytes]


def named(name: str, *, queue: str = "orders", more: Headers | None = None) -> dict[str, bytes]:
    return {**died_in(queue), "redrive-id": fields.longstr(name), **(more or {})}


def twice(name: str, **more: Any) -> tuple[Arrival, Arrival]:
    """A message, and the second copy that a crash has made of it."""
    headers = named(name, **more)
    return arrival(headers=headers), arrival(headers=headers)


async def listed(store: Store, filters: Filters) -> list[str]:
    return [letter.id for letter in (await store.letters.page(filters)).items]


async def counted(store: Store) -> int:
    return await store.counts.total(metrics.POSSIBLE_DUPLICATES.name)


# Found


async def test_only_letters_that_may_be_second_copies_are_found(store: Store) -> None:
    first, copy = twice("r-1")
    other, later = twice("r-2")
    await store.letters.add([first, copy, other, arrival()])
    await store.letters.add([later])
    wanted = [later.letter.id, copy.letter.id]
    assert await listed(store, COPIES) == wanted
    assert await store.decisions.count(COPIES) == 2
    assert [kept.letter.id async for kept in store.letters.stream(COPIES)] == wanted[::-1]
    neighbours = await store.letters.neighbours(other.letter.id, COPIES)
    assert neighbours == (later.letter.id, copy.letter.id)
    assert await listed(store, Filters()) != wanted


TAGGED = {"redrive-tags": fields.longstr("vip,eu")}
TOGETHER = {
    "status": Filters(status=(State.PENDING,)),
    "error type": Filters(error_type="REJ*"),
    "queue": Filters(queue="billing"),
    "exchange": Filters(exchange="shop"),
    "routing key": Filters(routing_key="order.*"),
    "source": Filters(source="billing"),
    "tag": Filters(tag="vip"),
    "tag glob": Filters(tag="v*"),
    "from": Filters(created_from=BEGAN),
    "until": Filters(created_until=BEGAN + timedelta(days=3)),
    "search": Filters(search="order"),
}
WITHOUT = {
    "status": Filters(status=(State.MANUAL,)),
    "error type": Filters(error_type="TIMEOUT"),
    "queue": Filters(queue="orders"),
    "tag": Filters(tag="critical"),
    "until": Filters(created_until=BEGAN),
    "search": Filters(search="nowhere"),
}


@pytest.mark.parametrize("name", TOGETHER)
async def test_with_another_filter_both_must_hold(store: Store, name: str) -> None:
    first, copy = twice("r-1", queue="billing", more=TAGGED)
    await store.letters.add([first, copy])
    filters = replace(TOGETHER[name], possible_duplicate=True)
    assert await listed(store, filters) == [copy.letter.id]
    assert await store.decisions.count(filters) == 1
    assert await listed(store, replace(filters, ids=(first.letter.id,))) == []
    if name in WITHOUT:
        wrong = replace(WITHOUT[name], possible_duplicate=True)
        assert await listed(store, wrong) == []
        assert await store.decisions.count(wrong) == 0


async def test_an_imported_letter_is_found_by_what_it_was_and_is_not_counted_again(
    store: Store, tmp_path: Path
) -> None:
    await store.letters.add(twice("r-1"))
    kept = [each async for each in store.letters.stream(COPIES)]
    async with letter_store(f"sqlite:///{tmp_path}/other.db") as other:
        await other.letters.restore(kept)
        assert await other.decisions.count(COPIES) == 1
        assert await counted(other) == 0


def narrowed(copy: Arrival) -> dict[str, Filters]:
    """Filters that nearly all letters of the store pass, but for the copies."""
    open_ = (State.PENDING, State.MANUAL, State.FAILED)
    given = {
        "alone": Filters(),
        "a state": Filters(status=(State.PENDING,)),
        "states": Filters(status=open_),
        "a group": Filters(group=copy.letter.fingerprint),
        "a group, to be decided on": Filters(group=copy.letter.fingerprint, status=open_),
        "a queue": Filters(queue="orders"),
        "a routing key": Filters(routing_key="order.created"),
        "an error type": Filters(error_type="REJECTED"),
        "a tag": Filters(tag="vip"),
        "a time": Filters(created_from=BEGAN),
        "a search": Filters(search="order"),
    }
    return {name: replace(filters, possible_duplicate=True) for name, filters in given.items()}


async def test_copies_are_found_without_reading_what_is_none(store: Store) -> None:
    tagged = {"redrive-tags": fields.longstr("vip")}
    await store.letters.add([arrival(headers=named(f"r-{n}", more=tagged)) for n in range(500)])
    await store.letters.add([copy := arrival(headers=named("r-7", more=tagged))])
    for name, filters in narrowed(copy).items():
        asked: dict[str, Asked] = {}
        with statements(store, "SELECT redrive_letter.id") as asked["list"]:
            assert await listed(store, filters) == [copy.letter.id], name
        with statements(store, "SELECT redrive_letter.id") as asked["neighbours"]:
            await store.letters.neighbours(copy.letter.id, filters)
        with statements(store, "SELECT count(*)") as asked["count"]:
            assert await store.decisions.count(filters) == 1, name
        with statements(store, "SELECT redrive_letter.id") as asked["decision"]:
            assert len(await store.decisions.listed(filters)) == 1, name
        for what, some in asked.items():
            assert some, (name, what)
            assert await goes_by(store, some, INDEX), (name, what)


# Settled


async def test_all_copies_of_a_group_are_discarded_at_once_and_nothing_else_is(
    store: Store,
) -> None:
    pairs = [twice(f"r-{number}") for number in range(3)]
    elsewhere = twice("r-9", queue="billing")
    alone = arrival()
    await store.letters.add([*(each for pair in pairs for each in pair), *elsewhere, alone])
    group = pairs[0][0].letter.fingerprint
    filters = Filters(group=group, possible_duplicate=True)
    chosen = await store.decisions.listed(filters, expected=3)
    tally = await decide(store.decisions, "discard", chosen, actor=ANN, reason="second copies")
    assert (tally.changed, dict(tally.unchanged)) == (3, {})
    away = await listed(store, Filters(status=(State.ARCHIVED,)))
    assert set(away) == {copy.letter.id for _, copy in pairs}
    assert await store.decisions.count(Filters(status=(State.PENDING,))) == 6
    assert await books_are_exact(store)


# Counted


async def test_what_is_marked_is_counted_once_for_ever(store: Store) -> None:
    first, copy = twice("r-1")
    await store.letters.add([first, arrival()])
    assert await counted(store) == 0
    await store.letters.add([copy])
    await store.letters.add([copy], again=True)
    tick = arrival(b"tick")
    await store.letters.add([tick])
    await store.letters.add([arrival(b"tick", redelivered=True), *twice("r-2")])
    assert await counted(store) == 3
    await store.decisions.discard([copy.letter.id], ANN)
    await store.counts.compact()
    assert await counted(store) == 3
    found = await store.figures.read()
    assert found.values[metrics.POSSIBLE_DUPLICATES.name] == {(): 3}


async def test_what_is_not_stored_is_not_counted(store: Store) -> None:
    first, copy = twice("r-1")
    wrong = replace(copy, letter=replace(copy.letter, priority=-1))
    with pytest.raises(StoreRefused):
        await store.letters.add([first, wrong])
    assert await counted(store) == 0
