"""A broker that takes no more connections: Redrive waits, says why, and goes on when it may.

The links are cut while the limit is reached, so no connection of Redrive's can come back. Nobody
else's ends: messages keep failing meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from redrive.amqp import Confirmed, Properties, Publish
from tests.acceptance.command_line import CommandLine
from tests.services.eventually import eventually_async
from tests.services.moving import channel_to, identities
from tests.services.plugin import NewProxy, Vhost
from tests.services.retrying import declare_origin, handling, never

ONE_RETRY = '[[policy]]\nname = "k"\nmax_retries = 1\n'
READ = ("retry-queue", "retry-queue-1", "dlq-queue")
LETTERS = "SELECT message_id, possible_duplicate FROM redrive_letter"
REACHED = "connection limit"
"""In the broker's own words."""


def let_in(vhost: Vhost, connections: int) -> None:
    """At most so many connections to this vhost; below 0: any number."""
    vhost.node.api("PUT", f"vhost-limits/{vhost.name}/max-connections", {"value": connections})


async def test_a_broker_that_takes_no_more_connections_delays_messages_and_loses_none(
    vhost: Vhost, proxy: NewProxy, tmp_path: Path
) -> None:
    way = await proxy("127.0.0.1", vhost.node.port)
    redrive = CommandLine(tmp_path, way.through(vhost.url), ["100ms"], more=ONE_RETRY)
    redrive.write_settings()
    await redrive.done("topology", "apply")
    await declare_origin(vhost.url, "failing", "quorum", "k")
    sent: list[str] = []
    async with channel_to(vhost.url) as channel:
        publisher = await channel.publisher()

        async def fail(identity: str) -> None:
            properties = Properties.empty().with_text("message_id", identity).persistent()
            publish = Publish("work", "k", properties.raw, identity.encode())
            assert await publisher.send(publish) == Confirmed()
            sent.append(identity)

        async def all_are_kept() -> None:
            def kept() -> set[object]:
                return {identity for identity, _ in redrive.asked(LETTERS)}

            await eventually_async(lambda: kept() >= set(sent))

        async with (
            redrive.running(admin_url=vhost.url, queues=READ, roles="retrier,collector") as running,
            handling(vhost.url, "failing", never) as handler,
        ):
            await fail("before")
            await all_are_kept()

            let_in(vhost, 0)
            way.cut()
            await redrive.has_logged("mover.lost", REACHED)
            await redrive.has_logged("collector.lost", REACHED)
            for number in range(20):
                await fail(f"meanwhile {number}")

            async def all_wait() -> bool:
                return (await channel.inspect_queue("retry-queue"))[0] >= 20

            await eventually_async(all_wait)
            refused = await asyncio.to_thread(redrive.run, "peek", "retry-queue")
            assert (refused.returncode, refused.stdout) == (1, "")
            (said,) = refused.stderr.splitlines()
            assert REACHED in said
            assert {identity for identity, _ in redrive.asked(LETTERS)} == {"before"}

            let_in(vhost, -1)
            await running.consumes(vhost.url, READ)
            await fail("after")
            await all_are_kept()
    # A cut may come before an ack has arrived: what it was for is there twice then, and marked.
    first = [identity for identity, marked in redrive.asked(LETTERS) if not marked]
    assert sorted(first) == sorted(sent)
    tries = Counter(identities(handler.deliveries))
    assert {identity for identity in sent if tries[identity] < 2} == set()
