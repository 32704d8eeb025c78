"""What tests of the collector need: dead messages, a collector running, what it left in the store.

A message's identity is its `message_id`; whatever a store holds is told apart by that.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

from sqlalchemy import select, text

from redrive.amqp import Properties, Publish, fields
from redrive.amqp.lane import Connect
from redrive.amqp.supervision import supervise
from redrive.domain.filters import Filters
from redrive.domain.letter import Kept
from redrive.events import Events
from redrive.store.schema import redrive_letter
from redrive.store.store import Store
from redrive.work import collector, keeper
from redrive.work.collector import Collector
from redrive.work.keeper import LetterStore
from redrive.work.mover import Limits
from redrive.work.understand import Understanding
from tests.services.eventually import DEADLINE, eventually_async
from tests.services.letters import OWN, died_in
from tests.services.moving import QUICK, channel_to, connector, publish

QUEUE = "dead"
STOPS_WITHIN = 30.0


@contextmanager
def coming_back_quickly() -> Iterator[None]:
    """Collectors that wait only a little for a broker or a store that is away."""
    with (
        patch.object(collector, "supervise", partial(supervise, backoff=QUICK)),
        patch.object(keeper, "Backoff", lambda: QUICK),
    ):
        yield


def dead_message(identity: str, shape: int = 0, queue: str = QUEUE) -> Publish:
    """A dead message, persistent: rejected by a plain consumer, given up on by the retrier, without
    any header, or with a table that is empty."""
    put = {
        0: died_in("orders"),
        1: {
            "redrive-id": fields.longstr(f"r-{identity}"),
            "redrive-queue": fields.longstr("orders"),
        },
    }.get(shape % 4, {})
    properties = Properties.empty().with_text("message_id", identity).persistent()
    if put:
        properties = properties.with_headers(put)
    section = properties.raw
    if shape % 4 == 3:  # a table without entries: before the delivery mode, the first part
        section = bytes((section[0] | 0x20, section[1])) + bytes(4) + section[2:]
    return Publish("", queue, section, b"body of " + identity.encode())


def dead_messages(identities: Iterable[str], queue: str = QUEUE) -> Iterable[Publish]:
    """One of each identity, all shapes."""
    return (dead_message(each, number, queue) for number, each in enumerate(identities))


class Collecting:
    """Collectors that run."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self.collectors = collectors
        self._tasks = [asyncio.create_task(each.run()) for each in collectors]

    @property
    def acked(self) -> int:
        """How many deliveries were acked. Raises what a collector died of."""
        for task in self._tasks:
            if task.done():
                task.result()
        return sum(each.counts.acked for each in self.collectors)

    async def has_acked(self, count: int, *, within: float = DEADLINE) -> None:
        await eventually_async(
            lambda: self.acked >= count, within=within, what=f"{count} deliveries acked"
        )

    async def ended(self) -> None:
        """Wait until all of them have ended by themselves; raises what one died of."""
        await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        """Stop in good order; raises what a collector died of, and TimeoutError if it hangs."""
        for each in self.collectors:
            each.stop()
        try:
            await asyncio.wait_for(asyncio.gather(*self._tasks), STOPS_WITHIN)
        finally:
            await self.kill()

    async def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def collecting(
    connect_by: Connect | str,
    letters: LetterStore,
    *queues: str,
    limits: Limits | None = None,
    events: Events | None = None,
) -> AsyncIterator[Collecting]:
    """A collector for each queue that runs until the block ends, and then stops in good order."""
    by = connector(connect_by) if isinstance(connect_by, str) else connect_by
    understanding = Understanding("/", OWN, {"dlq-queue", "redrive-receipts"})
    running = Collecting(
        [
            Collector(queue, letters, understanding, connect=by, limits=limits, events=events)
            for queue in queues or (QUEUE,)
        ]
    )
    try:
        yield running
    except BaseException:
        await running.kill()
        raise
    await running.stop()


async def all_kept(store: Store) -> list[Kept]:
    """Everything in the store."""
    return [kept async for kept in store.letters.stream(Filters())]


async def has_all(store: Store, expected: Iterable[str], *, within: float) -> None:
    """Wait until every message is in the store, by identity, while collectors work on it."""
    wanted = set(expected)

    async def complete() -> bool:
        async with store.database.reading() as connection:
            rows = await connection.execute(select(redrive_letter.c.message_id))
        return wanted <= set(rows.scalars())

    await eventually_async(complete, within=within, what=f"{len(wanted)} messages in the store")


async def has_emptied(url: str, store: Store, queues: Iterable[str], *, within: float) -> list[str]:
    """Wait until the collectors of these queues have stored all that is in them, second copies too:
    up to a message that is sent behind all others. The identities of those."""
    last = {f"last of {queue}": queue for queue in queues}
    await publish(url, [dead_message(identity, 0, queue) for identity, queue in last.items()])
    await has_all(store, last, within=within)
    return list(last)


def identity_of(kept: Kept) -> str:
    return str(Properties.read(kept.envelope.properties).get("message_id"))


@dataclass(frozen=True, slots=True)
class Found:
    """What became of messages, by identity."""

    expected: int
    lost: tuple[str, ...]
    strange: tuple[str, ...]
    """Found, and never sent."""
    doubled: tuple[str, ...]
    """In the store more than once."""
    unmarked: tuple[str, ...]
    """Doubled, and not all copies but one are marked as the copy of another of them."""
    wrongly_marked: tuple[str, ...]
    """In the store once, and marked."""

    @property
    def sound(self) -> bool:
        """Nothing lost; of doubled ones all but one are marked; nothing else is."""
        return not (self.lost or self.strange or self.unmarked or self.wrongly_marked)


async def found_in(store: Store, expected: Iterable[str]) -> Found:
    """What the store has of these messages, once no collector works. Its books must be exact."""
    kept = await all_kept(store)
    audit = await store.books.audit()
    assert audit.exact, audit
    assert audit.ledger.received == len(kept)
    wanted = set(expected)
    copies: dict[str, list[Kept]] = defaultdict(list)
    for each in kept:
        copies[identity_of(each)].append(each)
    doubled = {identity: them for identity, them in copies.items() if len(them) > 1}
    return Found(
        expected=len(wanted),
        lost=tuple(sorted(wanted - copies.keys())),
        strange=tuple(sorted(copies.keys() - wanted)),
        doubled=tuple(sorted(doubled)),
        unmarked=tuple(sorted(each for each, them in doubled.items() if not _all_but_one(them))),
        wrongly_marked=tuple(
            sorted(
                each
                for each, them in copies.items()
                if len(them) == 1 and them[0].letter.possible_duplicate
            )
        ),
    )


def _all_but_one(copies: Sequence[Kept]) -> bool:
    ids = {each.letter.id for each in copies}
    marked = [each.letter for each in copies if each.letter.possible_duplicate]
    return len(marked) == len(copies) - 1 and all(
        each.duplicate_of in ids - {each.id} for each in marked
    )


async def is_empty(url: str, *queues: str) -> bool:
    """Whether nothing is ready in the queues."""
    async with channel_to(url) as channel:
        return not any([(await channel.inspect_queue(queue))[0] for queue in queues or (QUEUE,)])


async def has_consumers(url: str, count: int, queue: str = QUEUE) -> None:
    """Wait until so many collectors consume a queue."""
    async with channel_to(url) as channel:

        async def enough() -> bool:
            return (await channel.inspect_queue(queue))[1] == count

        await eventually_async(enough, what=f"{count} consumers of {queue}")


async def refuse(store: Store, condition: str) -> None:
    """Have the database refuse letters."""
    function = (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '23514'; END $$"
    )
    trigger = f"""
        CREATE TRIGGER refusing BEFORE INSERT ON redrive_letter
        FOR EACH ROW WHEN (NEW.{condition})"""
    async with store.database.writing() as connection:
        if store.database.is_sqlite:
            raising = "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            await connection.execute(text(f"{trigger} {raising}"))
        else:
            await connection.execute(text(function))
            await connection.execute(text(f"{trigger} EXECUTE FUNCTION refuse()"))
