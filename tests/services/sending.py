"""What tests of sendings, verdicts and replays need: letters that are claimed, sent and come back
in a store whose clock is set by hand, and a check of the story that each letter tells."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from redrive.amqp import fields
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Attempt, Claim, Collected, Kept, Letter, Result
from redrive.domain.lifecycle import State, may_become
from redrive.domain.revival import Decision, Send
from redrive.domain.verdict import OUTSTANDING
from redrive.store.sendings import Outcome
from redrive.store.store import Store
from tests.services.letters import arrival, books_are_exact, died_in

VHOST = "/"
QUEUE = "orders"
WORKER = "worker-1"
LEASE = timedelta(minutes=1)
VERDICT_AFTER = timedelta(minutes=10)

Decide = Callable[[Letter, datetime, bool], Decision]

_ids = itertools.count(1)


def new_id() -> str:
    """An id for a replay; each is later than the one before."""
    return f"01950000-0000-7000-8000-{next(_ids):012x}"


class Places:
    """So many more letters fit into a queue, as somebody saw; None: nobody has looked yet."""

    def __init__(self, **places: int | None) -> None:
        self.places = places
        self.taken: list[tuple[str, int, int]] = []
        self._touched: set[str] = set()

    def unknown(self, queues: Collection[str]) -> set[str]:
        return {queue for queue in queues if self.places.get(queue, 0) is None}

    def weighs(self, queue: str) -> bool:
        return queue in self.places

    def take(self, queue: str, body: int, properties: int) -> bool:
        left = self.places.get(queue, 1)
        assert left is not None
        if left and queue in self.places:
            self.places[queue] = left - 1
            self._touched.add(queue)
            self.taken.append((queue, body, properties))
        return left > 0

    def why_full(self, queue: str) -> str | None:
        return None if queue in self._touched else f"{queue} is full"


async def stored(store: Store, number: int = 1, *, queue: str = QUEUE, **more: Any) -> list[str]:
    """So many new letters that are due; their ids, oldest first."""
    given = [arrival(headers=died_in(queue), **more) for _ in range(number)]
    await store.letters.add(given)
    return [each.letter.id for each in given]


def sending(queue: str | None = QUEUE, **more: Any) -> Decide:
    """Decides to send every letter there."""
    return lambda _, __, ___: Send(strategy="immediate", queue=queue, **more)


async def claimed(
    store: Store, decide: Decide | None = None, *, worker: str = WORKER, limit: int = 10
) -> list[Claim]:
    """What a worker claims of the letters that are due."""
    return (await store.sendings.take_due(worker, VHOST, limit, decide or sending())).claims


async def record(
    store: Store, claims: Sequence[Claim], result: Result = Result.SENT, **more: Any
) -> None:
    """What a worker notes of its claims."""
    outcomes = [Outcome(claim=claim, result=result, **more) for claim in claims]
    await store.sendings.record(WORKER, outcomes, verdict_after=VERDICT_AFTER)


async def sent(store: Store, decide: Decide | None = None, *, limit: int = 10) -> list[Claim]:
    """Letters that are due are claimed, sent and recorded."""
    claims = await claimed(store, decide, limit=limit)
    await record(store, claims)
    return claims


async def in_doubt(store: Store, decide: Decide | None = None) -> list[Claim]:
    """Letters that are due are claimed by a worker that is never heard of again."""
    claims = await claimed(store, decide)
    later(store, LEASE)
    await store.verdicts.end_leases(LEASE, verdict_after=VERDICT_AFTER)
    return claims


def back(claim: Claim, queue: str = QUEUE) -> Arrival:
    """The message of a claim, dead again."""
    headers = {
        **died_in(claim.queue or queue),
        "redrive-letter": fields.longstr(claim.letter.id),
        "redrive-generation": fields.int32(claim.generation),
    }
    return arrival(claim.envelope.body, headers=headers)


async def come_back(store: Store, claims: Sequence[Claim]) -> list[Collected]:
    """The messages of claims are collected again."""
    return await store.letters.add([back(claim) for claim in claims])


def later(store: Store, time: timedelta) -> None:
    """Let time pass."""
    store.clock.ahead += time


async def letter(store: Store, letter_id: str) -> Letter:
    """A letter that is there."""
    found = await store.letters.get(letter_id)
    assert found is not None
    return found


async def last_attempt(store: Store, letter_id: str) -> Attempt:
    """A letter's newest sending."""
    return (await store.letters.attempts(letter_id))[-1]


async def in_priority(store: Store, *priorities: int) -> list[str]:
    """A letter of each priority; their ids."""
    given = [arrival() for _ in priorities]
    given = [
        replace(each, letter=replace(each.letter, priority=priority))
        for each, priority in zip(given, priorities, strict=True)
    ]
    await store.letters.add(given)
    return [each.letter.id for each in given]


# The story


async def all_is_consistent(store: Store) -> None:
    """The books are exact, and every letter's history leads to what it is."""
    assert await books_are_exact(store)
    async for kept in store.letters.stream(Filters()):
        tells_its_story(kept)


def tells_its_story(kept: Kept) -> None:
    letter, story = kept.letter, kept.history
    assert (story[0].before, story[0].after) == (None, State.PENDING)
    for one, next_ in itertools.pairwise(story):
        assert next_.before is one.after, story
        assert next_.before is next_.after or may_become(one.after, next_.after), story
    assert story[-1].after is letter.status, story
    assert [each.generation for each in kept.attempts] == [*range(1, letter.generation + 1)]
    waits = letter.status is State.PROCESSING
    if kept.attempts:
        newest = kept.attempts[-1].result
        assert (newest is Result.SENDING) is (letter.locked_by is not None), (newest, letter)
        assert not waits or newest in OUTSTANDING, (newest, letter)
        assert all(each.result is not Result.SENDING for each in kept.attempts[:-1])
    assert waits or (letter.locked_by, letter.verdict_due_at) == (None, None), letter
    assert (letter.next_retry_at is not None) is (letter.status is State.PENDING), letter
    assert (letter.resolution is not None) is (letter.status is State.RESOLVED), letter
