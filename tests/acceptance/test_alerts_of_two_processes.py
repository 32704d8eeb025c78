"""Alerts where several processes run: each message is sent by one of them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.command_line import ENDS_WITHIN, CommandLine
from tests.services.eventually import eventually_async
from tests.services.letters import failed, letter_store
from tests.services.plugin import Vhost
from tests.services.receiving import Receiver

RULE = """
[[alert]]
name = "TooMany"
condition = "dlq_backlog > 2"
for = "0s"
[[alert_sink]]
name = "team"
kind = "webhook"
url = "{url}"
"""


async def test_two_processes_tell_a_receiver_once_of_each_thing_that_happens(
    vhost: Vhost, store_database: str, tmp_path: Path
) -> None:
    receiver = Receiver()
    redrive = CommandLine(
        tmp_path, vhost.url, ["1s"], store_url=store_database, more=RULE.format(url=receiver.url)
    )
    redrive.write_settings()

    def told() -> list[str]:
        return [status for alert, status in receiver.told if alert == "TooMany"]

    with ExitStack() as ending:
        receiver.up()
        ending.callback(receiver.down)
        async with letter_store(store_database) as store:
            await store.letters.add([failed("boom") for _ in range(3)])
        processes = [redrive.start("run", "--roles", "janitor") for _ in range(2)]
        for process in processes:
            ending.callback(process.kill)
        await eventually_async(lambda: told() == ["firing"])
        words = ("letters", "discard", "--queue", "*", "--reason", "known", "--yes")
        await redrive.done(*words)
        await eventually_async(lambda: len(told()) > 1)
        for process in processes:  # each says what it has to say before it ends
            assert await asyncio.to_thread(process.terminate, ENDS_WITHIN)
    assert told() == ["firing", "resolved"]
