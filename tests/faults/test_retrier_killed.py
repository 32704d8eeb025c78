"""kill -9 of the retrier at every step between delivery and ack, and of the broker: none is lost.

Every message fails twice (one retry), so each must end in the dead letter queue. They are counted
by identity. A crash may double some: then the copies have one `redrive-id`, and, where Redrive made
them, one of them is marked. The step that is killed at is proven reached: by exit code -9, and by
the copies it must leave.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from redrive.amqp import Delivery, Properties, Publish
from redrive.broker.private import PrivateNode
from redrive.broker.processes import GuardedProcess
from redrive.broker.topology import return_key
from redrive.settings.sections import TopologySettings
from tests.faults.retrier_process import Hop, Scene, Step, Trap, set_on
from tests.services import scale
from tests.services.eventually import eventually_async
from tests.services.moving import Kind, channel_to, holds, publish, take_all
from tests.services.plugin import Vhost
from tests.services.retrying import (
    DEAD,
    Tally,
    coming_back_quickly,
    declare_origin,
    declare_topology,
    handling,
    handling_through_losses,
    never,
    publish_one,
    retrying,
    tally,
    topology,
)

log = structlog.get_logger()
pytestmark = pytest.mark.soak

MESSAGES = scale.messages(10_000)
KILLS = scale.faults(20, quick=3)
WINDOW = MESSAGES // (3 * KILLS)
"""A life ends at most at the WINDOWth message, with at most so many more under way: even if all of
them are done, messages are left for the next life to end at."""
WITHIN = scale.seconds(600, quick=60)
ORIGIN = "failing"
SAFE = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}
"""What makes the origin queue's own hop, the broker's, safe."""


def expected() -> list[str]:
    return [f"m{number}" for number in range(MESSAGES)]


async def publish_all(url: str) -> None:
    def message(identity: str) -> Publish:
        properties = Properties.empty().with_text("message_id", identity).persistent()
        return Publish("work", f"key.{identity}", properties.raw, b"the same for all")

    await publish(url, map(message, expected()))


async def lay_out(url: str, settings: TopologySettings, kind: Kind) -> None:
    await declare_topology(url, settings)
    safe = SAFE if kind == "quorum" else {}
    await declare_origin(url, ORIGIN, kind, "#", **safe)
    # As an enrolled queue is; else the first returns come back unroutable, and a process that ends
    # at one of them has doubled nothing.
    async with channel_to(url) as channel:
        await channel.bind_queue(ORIGIN, settings.names.return_exchange, return_key(ORIGIN))


async def the_dead(url: str) -> Tally:
    """Everything in the dead letter queue, once a message sent behind all others is there too."""
    await holds(url, DEAD, MESSAGES, within=WITHIN)
    await publish_one(url, "last", "last")
    found: list[Delivery] = []
    async with asyncio.timeout(WITHIN):
        while not any(
            Properties.read(each.properties).get("message_id") == "last" for each in found
        ):
            found += await take_all(url, DEAD)
    return tally(found, [*expected(), "last"])


def check(found: Tally) -> None:
    log.info("tally", found=str(found))
    assert not found.lost, found
    assert not found.strange, found
    assert not found.other_id, found


@asynccontextmanager
async def running(scene: Scene, output: Path) -> AsyncIterator[GuardedProcess]:
    process = scene.start(output)
    try:
        yield process
    finally:
        process.kill()


async def ended(process: GuardedProcess) -> None:
    await eventually_async(lambda: not process.alive, within=WITHIN, what="the end by kill -9")


def nths() -> list[int]:
    """At which message each kill comes: the first, and others all over a prefetch window."""
    chance = random.Random(3)
    return [1, *(chance.randint(2, WINDOW) for _ in range(KILLS - 1))]


@pytest.mark.timeout(WITHIN * 3)
@pytest.mark.parametrize("step", list(Step), ids=[step.name.lower() for step in Step])
@pytest.mark.parametrize("hop", list(Hop), ids=[hop.name.lower() for hop in Hop])
async def test_a_retrier_killed_between_delivery_and_ack_loses_nothing(
    vhost: Vhost, hop: Hop, step: Step, tmp_path: Path
) -> None:
    settings = topology("quorum")
    await lay_out(vhost.url, settings, "quorum")
    scene = Scene(
        url=vhost.url, topology=settings.model_dump(mode="json"), hop=hop, prefetch=WINDOW
    )
    output = tmp_path / "retrier.log"
    await publish_all(vhost.url)
    async with handling(vhost.url, ORIGIN, never):
        for nth in nths():
            async with running(replace(scene, step=step, nth=nth), output) as process:
                await ended(process)
                assert process.exit_code == -9, output.read_text()
        async with running(scene, output):
            found = await the_dead(vhost.url)
    check(found)
    assert not found.unmarked, found
    if step in (Step.STORED, Step.CONFIRMED):
        # The broker had a copy and no ack: without a second one the step was not reached.
        assert found.doubled


# The broker


AT_A_BROKER = (
    [(hop, step) for hop in Hop for step in Step]
    if scale.FULL
    else [(Hop.TO_WAIT, Step.CONFIRMED), (Hop.BACK, Step.WRITTEN)]
)
"""It takes long to restart."""
SENDS_AGAIN_SOON = """\
[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 5000}]}].
"""
"""What it was dead-lettering when it was killed, and has no confirm of; by itself after minutes."""


@pytest.fixture(scope="module")
def broker(rabbitmq_root: Path | None) -> Iterator[PrivateNode]:
    """A broker that the tests of this file may kill."""
    node = PrivateNode(root=rabbitmq_root)
    (node.folder / "advanced.config").write_text(SENDS_AGAIN_SOON)
    with node:
        yield node


@pytest.fixture
def url(broker: PrivateNode) -> Iterator[str]:
    """A fresh vhost of the broker that may be killed."""
    name = f"test-{secrets.token_hex(6)}"
    broker.create_vhost(name)
    yield broker.url(name)
    broker.delete_vhost(name)


@pytest.mark.timeout(WITHIN * 3)
@pytest.mark.parametrize(
    ("hop", "step"),
    [
        pytest.param(hop, step, id=f"{hop.name.lower()}-{step.name.lower()}")
        for hop, step in AT_A_BROKER
    ],
)
async def test_a_broker_killed_between_delivery_and_ack_loses_nothing(
    broker: PrivateNode, url: str, hop: Hop, step: Step
) -> None:
    await lay_out(url, topology("quorum"), "quorum")
    await publish_all(url)
    await asyncio.to_thread(broker.settle)
    trap = Trap(step, MESSAGES // 3, broker.kill)
    with set_on(hop, trap), coming_back_quickly():
        async with (
            retrying(url, topology("quorum"), {"#": 1}),
            handling_through_losses(url, ORIGIN, never),
        ):
            await eventually_async(lambda: trap.sprung, within=WITHIN, what="the step")
            await asyncio.to_thread(broker.restart)
            found = await the_dead(url)
    check(found)
    if step in (Step.STORED, Step.CONFIRMED):
        # The broker had a copy and no ack: without a second one the step was not reached.
        assert found.doubled


@pytest.mark.timeout(WITHIN * 3)
async def test_a_broker_killed_while_messages_flow_loses_nothing(
    broker: PrivateNode, url: str
) -> None:
    await lay_out(url, topology("quorum"), "quorum")
    await publish_all(url)
    await asyncio.to_thread(broker.settle)
    kills = scale.faults(6, quick=2)
    async with (
        retrying(url, topology("quorum"), {"#": 1}),
        handling_through_losses(url, ORIGIN, never) as handler,
    ):
        for number in range(kills):
            # Each message is handled twice: from the first rejects to the last returns.
            await handler.has_seen(2 * MESSAGES * (2 * number + 1) // (2 * kills), within=WITHIN)
            await asyncio.to_thread(crash, broker)
        found = await the_dead(url)
    # Copies that the broker makes in its own hop come as if for the first time: nobody could mark
    # them, and only the id tells.
    check(found)


def crash(node: PrivateNode) -> None:
    node.kill()
    node.restart()
