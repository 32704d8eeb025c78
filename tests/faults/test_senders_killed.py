"""kill -9 of workers, and of a replay's runner, between claim and record, and at random.

Every letter ends resolved, or with a person and in doubt. None is delivered twice, but for those in
doubt that the operator sends again. A crash leaves at most one batch in doubt.
"""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from redrive.broker.processes import GuardedProcess
from redrive.domain.filters import Filters
from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import ReplayState
from redrive.store.store import Store
from redrive.work.destinations import destinations
from redrive.work.replay import ReplayRunner
from tests.acceptance.command_line import CommandLine
from tests.faults.worker_process import Scene, Step
from tests.services import scale
from tests.services.eventually import eventually_async
from tests.services.letters import books_are_exact, letter_store
from tests.services.plugin import Vhost
from tests.services.reviving import LEASE, VERDICT_AFTER, reviver
from tests.services.settling import (
    all_letters,
    consuming,
    doubtful,
    fill,
    lay_out,
    operator_sends_doubtful,
    ordered,
    settle_in_doubt,
    watch_of,
)

log = structlog.get_logger()
pytestmark = pytest.mark.soak

LETTERS = scale.messages(20_000)
REPLAYED = scale.messages(50_000)
KILLS = scale.faults(10, quick=2)
EVERY = scale.seconds(5, quick=1)
BATCH = 100
WITHIN = scale.seconds(1200, quick=90)
AHEAD = 120.0
"""Seconds after which every letter is due."""


@pytest.fixture(params=["sqlite", "postgresql"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    url = f"sqlite:///{tmp_path}/redrive.db"
    return url if request.param == "sqlite" else request.getfixturevalue("database")


async def dies(scene: Scene, output: Path) -> None:
    process = scene.start(output)
    try:
        await eventually_async(lambda: not process.alive, within=WITHIN)
        assert process.exit_code == -9, f"see {output}"
    finally:
        process.kill()


# At every step


@pytest.mark.timeout(WITHIN * 2)
@pytest.mark.parametrize("step", Step, ids=[step.name.lower() for step in Step])
async def test_a_worker_killed_between_claim_and_record_sends_nothing_twice(
    vhost: Vhost, place: str, tmp_path: Path, step: Step
) -> None:
    await lay_out(vhost.url)
    count = 35
    async with letter_store(place) as store:
        await fill(store, count)
        store.clock.ahead += timedelta(seconds=AHEAD)
        scene = Scene(
            url=vhost.url,
            store_url=place,
            step=step,
            nth=15,
            name="first",
            ahead=2 * AHEAD,
        )
        await scheduled(vhost.url, store)
        async with consuming(vhost.url, receipts=False) as consumer:
            store.clock.ahead += timedelta(seconds=AHEAD)
            await dies(scene, tmp_path / "first.log")
            parts = reviver(vhost.url, store, name="second")
            await parts.sender.open()
            while await parts.worker.round(parts.sender):
                pass
            await parts.sender.close()
            watch = watch_of(vhost.url, store)
            await settle_in_doubt(vhost.url, store, watch)
            await settle_in_doubt(vhost.url, store, watch)
            watch.close()
            in_doubt = await doubtful(store)
            log.info("killed", step=step.value, in_doubt=len(in_doubt))
            assert len(in_doubt) == (0 if step is Step.RECORDED else 10)
            for letter in await all_letters(store):
                wanted = State.MANUAL if letter.id in in_doubt else State.RESOLVED
                assert letter.status is wanted
            await consumer.has_seen_all_but(in_doubt, store, within=WITHIN)
            assert max(consumer.seen.values()) == 1
            unsent = {letter.id for letter in await all_letters(store)} - set(consumer.seen)
            assert unsent <= in_doubt
            await operator_sends_doubtful(vhost.url, store)
            await eventually_async(lambda: len(consumer.seen) == count)
            twice = {letter for letter, times in consumer.seen.items() if times > 1}
            assert twice <= in_doubt
            assert await books_are_exact(store)


async def scheduled(url: str, store: Store) -> None:
    """Every letter is looked at, and due a little later."""
    parts = reviver(url, store)
    await parts.sender.open()
    while await parts.worker.round(parts.sender):
        pass
    await parts.sender.close()


@pytest.mark.timeout(WITHIN * 2)
async def test_a_replay_killed_at_random_goes_on_where_it_was_and_sends_each_letter_once(
    vhost: Vhost, place: str, tmp_path: Path
) -> None:
    await lay_out(vhost.url)
    chance = random.Random(5)
    async with letter_store(place) as store:
        await fill(store, REPLAYED)
        made = await ordered(store, Filters(), batch_size=BATCH)
        assert made is not None
        ahead = 0.0
        async with consuming(vhost.url) as consumer:
            for number in range(KILLS):
                step = chance.choice([Step.CLAIMED, Step.PUBLISHED, Step.CONFIRMED])
                scene = Scene(
                    url=vhost.url,
                    store_url=place,
                    step=step,
                    nth=chance.randint(1, max(1, REPLAYED // (KILLS + 1))),
                    name=f"runner-{number}",
                    replay=made.id,
                    ahead=ahead,
                )
                await dies(scene, tmp_path / "runner.log")
                ahead += LEASE.total_seconds() + 1  # its lease has ended when the next begins
            store.clock.ahead = timedelta(seconds=ahead)
            await finish(vhost.url, store, made.id)
            await eventually_async(
                lambda: len(consumer.seen) >= REPLAYED - KILLS * BATCH, within=WITHIN
            )
            watch = watch_of(vhost.url, store)
            await watch.round()
            watch.close()
            in_doubt = await doubtful(store)
            log.info("killed", kills=KILLS, in_doubt=len(in_doubt), letters=REPLAYED)
            assert len(in_doubt) <= KILLS * BATCH
            await consumer.has_seen_all_but(in_doubt, store, within=WITHIN)
            assert max(consumer.seen.values()) == 1
            missing = {letter.id for letter in await all_letters(store)} - set(consumer.seen)
            assert missing <= in_doubt
            results = await store.replays.results(made.id)
            assert results[Result.IN_DOUBT] == len(in_doubt)
            assert sum(results.values()) == REPLAYED
        assert await books_are_exact(store)


async def finish(url: str, store: Store, replay_id: str) -> None:
    parts = reviver(url, store, name="last")
    await parts.sender.open()
    ours = await store.replays.begin(replay_id, "last", LEASE)
    runner = ReplayRunner(
        "last",
        store.replays,
        parts.sender,
        verdict_after=VERDICT_AFTER,
        lease=LEASE,
        stopping=asyncio.Event(),
    )
    await runner.run(ours, destinations(lambda: parts.policies))
    found = await store.replays.get(replay_id)
    assert found is not None
    assert found.state is ReplayState.DONE
    await parts.sender.close()


# At random


@pytest.mark.timeout(WITHIN * 2)
async def test_workers_killed_at_random_leave_every_letter_resolved_or_in_doubt(
    vhost: Vhost, place: str, tmp_path: Path
) -> None:
    await lay_out(vhost.url)
    workers = 2 if place.startswith("sqlite") else 4
    redrive = CommandLine(
        tmp_path,
        vhost.url,
        ["1s"],
        store_url=place,
        more=(
            '[worker]\npoll = "500ms"\nlease = "3s"\nverdict_after = "2s"\n'
            'default_strategy = "immediate"\ndelays = ["1ms"]\n'
        ),
    )
    redrive.write_settings()
    async with letter_store(place) as store:
        await fill(store, LETTERS)
        await rename_vhost(store, vhost.name)
        async with consuming(vhost.url) as consumer:
            processes = [redrive.start("run", "--roles", "worker,janitor") for _ in range(workers)]
            try:
                await keep_killing(redrive, processes, store)
            finally:
                for process in processes:
                    process.kill()
            in_doubt = await doubtful(store)
            log.info("killed", workers=workers, letters=LETTERS, in_doubt=len(in_doubt))
            for letter in await all_letters(store):
                wanted = State.MANUAL if letter.id in in_doubt else State.RESOLVED
                assert letter.status is wanted, letter
            await consumer.has_seen_all_but(in_doubt, store, within=WITHIN)
            assert max(consumer.seen.values()) == 1
            missing = {letter.id for letter in await all_letters(store)} - set(consumer.seen)
            assert missing <= in_doubt
        assert await books_are_exact(store)


async def rename_vhost(store: Store, name: str) -> None:
    """The letters are of the broker's vhost: a process serves one."""
    from sqlalchemy import update  # noqa: PLC0415

    from redrive.store.schema import redrive_letter  # noqa: PLC0415

    async with store.database.writing() as connection:
        await connection.execute(update(redrive_letter).values(vhost=name))


async def keep_killing(redrive: CommandLine, processes: list[GuardedProcess], store: Store) -> None:
    """Until every letter is resolved or with a person: one at random dies, and is started anew."""
    chance = random.Random(3)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + WITHIN
    kills = 0
    while loop.time() < ends_at:
        await asyncio.sleep(EVERY)
        ledger = await store.books.ledger()
        if not ledger.states[State.PENDING] and not ledger.states[State.PROCESSING]:
            log.info("done", kills=kills)
            assert kills, "every letter was sent before the first kill"
            return
        if kills < KILLS:
            victim = chance.randrange(len(processes))
            await asyncio.to_thread(processes[victim].kill)
            processes[victim] = redrive.start("run", "--roles", "worker,janitor")
            kills += 1
    raise AssertionError(f"not within {WITHIN} s: {await store.books.ledger()}")
