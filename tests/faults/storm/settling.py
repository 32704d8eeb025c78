"""The end of a storm: everything is mended, and works on until nothing moves any more.

Then operators see to what is left, as people would after a bad day: they sweep, edit and replay.
When all is done, every process is stopped by SIGTERM, and what is where is looked up.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import select

from redrive.amqp import Delivery, Properties
from redrive.broker.live import SpareChannel
from redrive.domain.filters import Filters
from redrive.domain.letter import Kept
from redrive.domain.lifecycle import State
from redrive.domain.replay import ReplayState
from redrive.store.schema import redrive_replay
from redrive.store.store import Store, open_letter_store
from tests.faults.storm.accounts import Filed, Found, InQueue, Sending
from tests.faults.storm.journal import Journal, read_notes
from tests.faults.storm.messages import ORDERS, QUEUES, digest_of
from tests.faults.storm.operators import Operator
from tests.faults.storm.world import (
    CONSUMERS,
    PARCELS_DEAD,
    PERMANENT,
    ROLES,
    SWEEPER,
    TIERS,
    VHOST,
    WITNESS,
    World,
)
from tests.services.letters import books_are_exact
from tests.services.moving import channel_to, take_all
from tests.services.sending import tells_its_story

ON_THE_WAY: Final = (
    *QUEUES,
    f"redrive-again-{ORDERS}",
    f"redrive-alone-{ORDERS}",
    "retry-queue",
    *(f"queue.delay.{tier}" for tier in range(1, len(TIERS) + 1)),
    *(f"retry-queue-{tier}" for tier in range(1, len(TIERS) + 1)),
    "dlq-queue",
    "redrive-receipts",
    PARCELS_DEAD,
    PERMANENT,
)
"""Every queue that should be empty at the end."""
QUIET: Final = 3.0
"""Seconds for which nothing may wait anywhere, before nothing moves any more: longer than a tier,
and than a parcel waits."""
QUIET_CLUSTER: Final = 7.0
"""And than the counts of several nodes are late."""
LOOK_EVERY: Final = 0.5


class Settling:
    """Brings a storm to its end."""

    def __init__(self, world: World, journal: Journal, within: float) -> None:
        self._world = world
        self._journal = journal
        self._deadline = time.monotonic() + within
        self._operator = Operator(world, journal)

    async def settle(self) -> Found:
        """Let everything come to rest, and look where everything is."""
        for member in self._world.members.values():
            self._journal.problems += filter(None, [member.ended_by_itself()])
            await asyncio.to_thread(member.start)
        store = await open_letter_store(self._world.store_url)
        try:
            await self._come_to_rest(store)
            await self._operator.mend_and_replay()
            await self._come_to_rest(store)
            await self._stop_everything()
            return await self._look(store)
        finally:
            await store.close()

    async def _come_to_rest(self, store: Store) -> None:
        """Until queues are empty and nothing is awaited of any letter."""
        quiet = QUIET if len(self._world.nodes) == 1 else QUIET_CLUSTER
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < quiet:
            waiting = await self._waiting(store)
            if waiting:
                quiet_since = time.monotonic()
            if time.monotonic() > self._deadline:
                self._journal.problems.append(f"it does not come to rest: {waiting}")
                return
            await asyncio.sleep(LOOK_EVERY)

    async def _waiting(self, store: Store) -> dict[str, int]:
        """What is not at rest: messages by queue, letters by state, replays."""
        found: dict[str, int] = {}
        async with channel_to(self._world.url) as channel:
            spare = SpareChannel(channel.connection)
            for queue in ON_THE_WAY:
                counted = await spare.count(queue)
                found[queue] = 0 if counted is None else counted[0]
            await spare.close()
        found["dead-lettered and not confirmed"] = await asyncio.to_thread(self._unconfirmed)
        ledger = await store.books.ledger()
        found |= {state.word: ledger.states[state] for state in (State.PENDING, State.PROCESSING)}
        running = select(redrive_replay.c.id).where(
            redrive_replay.c.state == ReplayState.RUNNING.value
        )
        async with store.database.reading() as connection:
            found["replays"] = len((await connection.execute(running)).all())
        return {name: number for name, number in found.items() if number}

    def _unconfirmed(self) -> int:
        """What quorum queues have dead-lettered and hold until the target has it. After the loss of
        a node that led both, RabbitMQ sends it again only after three minutes."""
        node = next(node for node in self._world.nodes if node.running)
        queues = node.api("GET", f"queues/{quote(VHOST, safe='')}?columns=name,messages_dlx")
        return sum(each.get("messages_dlx") or 0 for each in queues)

    async def _stop_everything(self) -> None:
        members = self._world.members.values()
        said = await asyncio.gather(*(asyncio.to_thread(member.stop) for member in members))
        self._journal.problems += filter(None, said)
        for name in (*ROLES, SWEEPER):
            self._journal.problems += defects_in(self._world.members[name].log)
        for name in CONSUMERS:
            if "consumer.defect" in self._world.members[name].log.read_text(errors="replace"):
                self._journal.problems.append(f"{name} logged a defect of ours")

    async def _look(self, store: Store) -> Found:
        url, found = self._world.url, list[InQueue]()
        if not await books_are_exact(store):
            self._journal.problems.append("the books are not exact")
        for queue in ON_THE_WAY:
            found += [_copy(each, queue) for each in await take_all(url, queue)]
        witnessed = Counter(_copy(each, WITNESS).identity for each in await take_all(url, WITNESS))
        return Found(
            published=self._journal.published,
            consumed=read_notes(self._world.folder),
            in_queues=found,
            witnessed=witnessed,
            letters=await self._letters(store),
            struck=self._journal.struck,
            held=self._world.wiretap.held(),
            ended=time.time(),
        )

    async def _letters(self, store: Store) -> list[Filed]:
        found = []
        async for kept in store.letters.stream(Filters()):
            try:
                tells_its_story(kept)
            except AssertionError as error:
                self._journal.problems.append(f"letter {kept.letter.id}: unlawful: {error}")
            found.append(_filed(kept))
        return found


def _copy(delivery: Delivery, queue: str) -> InQueue:
    properties = Properties.read(delivery.properties)
    letter, generation = (properties.header(f"redrive-{name}") for name in ("letter", "generation"))
    return InQueue(
        identity=str(properties.get("message_id")),
        digest=digest_of(delivery.body),
        queue=queue,
        letter=letter if isinstance(letter, str) else None,
        generation=generation if isinstance(generation, int) else 0,
    )


def _filed(kept: Kept) -> Filed:
    letter = kept.letter
    return Filed(
        id=letter.id,
        identity=letter.message_id,
        digest=digest_of(kept.envelope.body),
        state=letter.status,
        queue=letter.queue,
        key=letter.routing_key,
        collected_from=letter.collected_from,
        at=letter.created_at.timestamp(),
        marked=letter.possible_duplicate,
        sendings=tuple(
            Sending(each.generation, each.at.timestamp(), each.result) for each in kept.attempts
        ),
    )


def defects_in(log: Path) -> list[str]:
    """Lines of a log that no fault excuses: errors, and whatever has a traceback."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            entry = {"event": line, "level": "error"}
        if entry.get("level") in ("error", "critical") or "exception" in entry:
            found.append(f"{log.stem} logged: {line[:1200]}")
    return found[:5]
