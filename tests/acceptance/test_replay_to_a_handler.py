"""A letter replayed to a handler: handled, its receipt resolves it; failed, it returns at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from redrive import Consumer, DeadLetter, Message
from tests.acceptance.command_line import CommandLine
from tests.services.consuming import QUEUE, consumed, send, serving, settings_for
from tests.services.eventually import eventually_async
from tests.services.plugin import Vhost

TIERS = ("100ms", "200ms", "300ms")
WORKER = '[worker]\npoll = "1s"\nverdict_after = "10m"\n'
READ = ("retry-queue", "dlq-queue", "redrive-receipts")


async def test_a_handled_replay_resolves_its_letter_at_once_and_a_failed_one_returns_at_once(
    vhost: Vhost, tmp_path: Path
) -> None:
    redrive = CommandLine(tmp_path, vhost.url, TIERS, more=WORKER)
    redrive.write_settings()
    await redrive.done("topology", "apply")
    consumer = Consumer(settings=settings_for(vhost.url, "quorum"))
    mended = False

    @consumer.handler(QUEUE, retries=3)
    async def settle(message: Message) -> None:
        if not mended:
            raise DeadLetter("the card is blocked", error_type="CARD_BLOCKED")

    async def letter() -> dict[str, Any]:
        listed = json.loads(await redrive.done("letters", "list", "--output", "json"))["items"]
        return dict(listed[0]) if len(listed) == 1 else {}

    async with (
        redrive.running(admin_url=vhost.url, queues=READ, roles="retrier,collector,worker"),
        serving(consumer),
    ):
        await consumed(vhost.url)
        await send(vhost.url, "m")

        async def kept() -> bool:
            return bool(await letter())

        await eventually_async(kept, what="the letter")
        identity = (await letter())["id"]
        await redrive.done("replay", identity, "--ignore-health", "--yes")

        async def returned() -> bool:
            shown = json.loads(await redrive.done("letters", "show", identity, "--output", "json"))
            results = [each["result"] for each in shown["replayAttempts"]]
            return results == ["failed"] or "returned" in results

        await eventually_async(returned, what="the return")
        mended = True
        await redrive.done("replay", identity, "--ignore-health", "--yes")

        async def resolved() -> bool:
            shown = json.loads(await redrive.done("letters", "show", identity, "--output", "json"))
            return (shown["status"], shown["resolution"]) == ("dlq_resolved", "receipt")

        await eventually_async(resolved, what="resolved by its receipt")
