"""Seed 002's failure table: kill -9 of the sweep at every step, and cuts. Nothing is lost.

Messages are counted by identity. What is within the limit is in its queue, once, whatever happens;
what is over it is in its queue or in the target, and doubled only where a copy was published and
not acked: then the copies have one `redrive-id`, and one of them is marked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from redrive.amqp import Properties
from redrive.domain import headers
from tests.faults.retrier_process import Step
from tests.faults.sweep_process import GIVEN_BACK, Scene, management_of, sweep
from tests.services.eventually import eventually_async
from tests.services.moving import (
    Kind,
    connector,
    copies,
    declare,
    holds,
    identities,
    marked,
    publish,
    ready,
    take_all,
)
from tests.services.plugin import NewProxy, Vhost
from tests.services.sweeping import DLQ, FINAL, dead

MESSAGES = 60
WITHIN = [str(number) for number in range(0, MESSAGES, 2)]
OVER = [str(number) for number in range(1, MESSAGES, 2)]


async def lay_out(url: str, kind: Kind) -> None:
    for queue in (DLQ, FINAL):
        await declare(url, queue, kind)
    await publish(url, [dead(number, 5 if number % 2 else 1) for number in range(MESSAGES)])


async def killed(scene: Scene, log: Path) -> int | None:
    process = scene.start(log)
    try:
        await eventually_async(lambda: not process.alive, within=60, what="the sweep's end")
    finally:
        process.kill()
    return process.exit_code


CASES: list[tuple[str, Kind, bool]] = [
    *((str(step), "classic", told) for step in Step for told in (True, False)),
    (GIVEN_BACK, "classic", True),
    (GIVEN_BACK, "classic", False),
    (str(Step.CONFIRMED), "quorum", False),
    (GIVEN_BACK, "quorum", False),
]
"""The step, the queues' type, and whether the sweep is told of it."""


async def all_are_ready(url: str) -> None:
    """Wait until the broker has noticed, and what was held is back."""

    async def all_there() -> bool:
        return await ready(url, DLQ) + await ready(url, FINAL) >= MESSAGES

    await eventually_async(all_there, what="all messages ready again")


@pytest.mark.parametrize(
    ("step", "kind", "told"),
    CASES,
    ids=[f"{kind}-{'told' if told else 'untold'}-{step}" for step, kind, told in CASES],
)
async def test_a_sweep_killed_at_any_step_loses_nothing(
    vhost: Vhost, step: str, kind: Kind, told: bool, tmp_path: Path
) -> None:
    await lay_out(vhost.url, kind)
    log = tmp_path / "sweep.log"
    management_url = vhost.management_url if told else ""
    scene = Scene(
        url=vhost.url, queue=DLQ, target=FINAL, management_url=management_url, step=step, nth=7
    )
    assert await killed(scene, log) == -9, log.read_text()
    await all_are_ready(vhost.url)
    outcome = await sweep(connector(vhost.url), DLQ, FINAL)
    assert outcome.is_sound, outcome
    await holds(vhost.url, DLQ, len(WITHIN))
    assert sorted(identities(await take_all(vhost.url, DLQ)), key=int) == WITHIN
    moved = copies(await take_all(vhost.url, FINAL))
    assert sorted(moved, key=int) == OVER
    doubled = {identity: them for identity, them in moved.items() if len(them) > 1}
    for them in doubled.values():
        ids = {Properties.read(each.properties).header(headers.ID) for each in them}
        assert len(ids) == 1
        assert sum(map(marked, them)) == len(them) - 1
    if step in (Step.STORED, Step.CONFIRMED):
        assert doubled  # without a second copy the step was not reached
    if step == GIVEN_BACK:
        assert not doubled


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("received", [3_000, 8_000])
async def test_a_cut_connection_ends_the_sweep_with_an_error_and_loses_nothing(
    vhost: Vhost, proxy: NewProxy, received: int, told: bool
) -> None:
    await lay_out(vhost.url, "classic")
    between = await proxy("127.0.0.1", vhost.node.port)
    between.cut_after(received=received)
    management = management_of(vhost.url, vhost.management_url) if told else None
    through = connector(between.through(vhost.url))
    outcome = await asyncio.wait_for(sweep(through, DLQ, FINAL, management), 60)
    assert outcome.error
    await all_are_ready(vhost.url)
    there = Counter(identities(await take_all(vhost.url, DLQ)))
    moved = Counter(identities(await take_all(vhost.url, FINAL)))
    assert set(there) >= set(WITHIN)
    assert set(there) | set(moved) == {*WITHIN, *OVER}
    assert not set(moved) - set(OVER)
    assert set(there.values()) == {1}
