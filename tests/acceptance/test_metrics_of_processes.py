"""Metrics of several processes: what one counts, another shows, also after the first has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from redrive.amqp import Properties, Publish, fields
from tests.acceptance.command_line import CommandLine
from tests.services.eventually import eventually_async
from tests.services.moving import channel_to, publish
from tests.services.plugin import Vhost
from tests.services.retrying import declare_origin

QUEUE, KEY = "orders", "order.created"


async def metrics(address: str) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as client:
        text = (await client.get("/metrics")).text
    return {
        "|".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_server_shows_what_a_retrier_elsewhere_has_counted_after_that_has_ended(
    vhost: Vhost, tmp_path: Path
) -> None:
    redrive = CommandLine(tmp_path, vhost.url, ("100ms",), more="[server]\nport = 0\n")
    redrive.write_settings()
    await redrive.done("topology", "apply")
    await redrive.done("policy", "set", KEY, "--max-retries", "2")
    retrier = replace(redrive, name="retrier")
    retrier.write_settings()
    async with redrive.serving() as (address, _):
        async with retrier.running(
            admin_url=vhost.url, queues=("retry-queue", "retry-queue-1"), roles="retrier"
        ):
            await declare_origin(vhost.url, QUEUE, "quorum", KEY)
            headers = {"redrive-queue": fields.longstr(QUEUE)}
            failed = Properties.empty().persistent().with_headers(headers)
            await publish(
                vhost.url, [Publish("retry-exchange", KEY, failed.raw, b"x") for _ in range(3)]
            )

            async with channel_to(vhost.url) as channel:

                async def back() -> bool:
                    return (await channel.inspect_queue(QUEUE))[0] == 3

                await eventually_async(back, what="they are back")

            async def is_seen() -> bool:  # once it has written its first counts
                return (await metrics(address)).get("redrive_processes|retrier") == 1

            await eventually_async(is_seen, what="the retrier among the processes")
        found = await metrics(address)
        assert found["redrive_retries_total|1"] == 3
        assert found["redrive_messages_returned_total"] == 3
        assert found["redrive_confirm_seconds_count"] >= 1
        assert found["redrive_processes|retrier"] == 0
        assert found["redrive_processes|server"] == 1
    (ready, *_) = retrier.logged("mover.ready")
    assert (ready["role"], bool(ready["queue"])) == ("retrier", True)
