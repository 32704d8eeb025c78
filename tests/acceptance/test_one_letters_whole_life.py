"""One letter's whole life (DESIGN.md); grown by every issue.

A plain pika consumer that only rejects → tiers → dead letter queue → letter → seen in the API and
the console → body edited → replayed → consumed → resolved. Redrive is killed with -9 before the
first delivery, while the message waits in a tier, while it is on its way back, while the collector
has it in hand, after it is stored, after it is left to a person, while somebody has typed a new
body, after that is saved, while a replay has not sent it, after a replay is ordered, after it is
sent, and while its verdict is awaited. The page in the browser stays open all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from playwright.async_api import Page, expect

from redrive.amqp import Delivery, Properties, Publish
from redrive.broker.processes import GuardedProcess, free_ports
from redrive.domain import headers
from redrive.domain.deaths import read_deaths
from tests.acceptance.at_the_console import order_a_replay, person_at, save_the_edit, type_a_body
from tests.acceptance.command_line import CommandLine
from tests.acceptance.plain_consumer import PlainConsumer, Seen
from tests.services.eventually import eventually_async
from tests.services.moving import channel_to, empty, holds, publish
from tests.services.plugin import Vhost
from tests.services.retrying import DEAD, declare_origin

QUEUE, KEY = "payments", "payment.charge"
BODY = b'{"amount": 9007199254740993, "note": "\xc3\xa9"}'
MENDED = b'{"amount": 9007199254740993, "note": "e"}'
TIERS = ("5s", "4s", "1s")  # the first two are seen while it waits, also by a busy machine
WORKER = '[worker]\npoll = "1s"\nlease = "2s"\nverdict_after = "3s"\n'
READ_BY_THE_RETRIER = ("retry-queue", "retry-queue-1", "retry-queue-2", "retry-queue-3")


@pytest.mark.timeout(500)  # a dozen processes, one after the other
async def test_one_letters_whole_life(vhost: Vhost, tmp_path: Path) -> None:
    url = vhost.url
    (port,) = free_ports(1)
    redrive = CommandLine(tmp_path, url, TIERS, more=f"{WORKER}[server]\nport = {port}\n")
    redrive.write_settings()
    await redrive.done("topology", "apply")
    await redrive.done("topology", "check")
    await redrive.done("policy", "set", KEY, "--max-retries", "3")
    listed = json.loads(await redrive.done("policy", "list", "--output", "json"))
    assert [(each["name"], each["maxRetries"]) for each in listed["items"]] == [(KEY, 3)]
    await declare_origin(url, QUEUE, "quorum", KEY)

    with PlainConsumer(url, QUEUE).running() as consumer:
        # Killed before the first delivery: what failed waits for it.
        async with redrive.running(admin_url=url, queues=READ_BY_THE_RETRIER) as running:
            await running.kill()
        properties = Properties.empty().persistent().with_text("message_id", "charge-1")
        await publish(url, [Publish("work", KEY, properties.raw, BODY)])
        await consumer.has_seen(1)
        await holds(url, "retry-queue", 1)

        # Killed while the message waits in its first tier: the broker goes on without it.
        async with redrive.running(admin_url=url, queues=READ_BY_THE_RETRIER) as running:
            await holds(url, "queue.delay.1", 1)
            await running.kill()
        await holds(url, "retry-queue-1", 1)
        assert len(consumer.seen) == 1

        # Killed while it returns: delivered to a process that is stopped, and then dies.
        async with redrive.running(admin_url=url, queues=READ_BY_THE_RETRIER) as running:
            await consumer.has_seen(2)
            await holds(url, "queue.delay.2", 1)
            running.pause()
            await empty(url, "queue.delay.2")
            await running.kill()
        await holds(url, "retry-queue-2", 1)
        assert len(consumer.seen) == 2

        async with redrive.running(admin_url=url, queues=READ_BY_THE_RETRIER):
            await holds(url, DEAD, 1)

    assert [(each.routing_key, each.body) for each in consumer.seen] == [(KEY, BODY)] * 4
    attempts = [each.headers.get(headers.ATTEMPT) for each in consumer.seen]
    assert attempts == [None, 1, 2, 3]
    (dead,) = await look_at(url, DEAD)
    has_its_whole_history(dead)
    letter = await becomes_a_letter(redrive, url, dead)
    await is_left_to_a_person(redrive, url, letter)
    async with person_at(f"http://127.0.0.1:{port}") as page:
        await is_seen_and_mended(redrive, letter, page)
        await is_replayed(redrive, url, letter, page)
    await redrive.done("stats", "--ledger")
    for queue in (QUEUE, DEAD, *READ_BY_THE_RETRIER):
        async with channel_to(url) as channel:
            assert await channel.inspect_queue(queue) == (0, 0)


async def look_at(url: str, queue: str) -> list[Delivery]:
    """What is in a queue, which keeps it: it is in the hands of a consumer that goes away."""
    async with channel_to(url) as channel:
        found = await channel.get(queue)
        assert found is not None
        return [found]


async def becomes_a_letter(redrive: CommandLine, url: str, dead: Delivery) -> str:
    # Killed with the message in hand: its store is locked by another, so it cannot commit. Until
    # then the message is in ours, or the collector would have stored it before the lock.
    async with AsyncExitStack() as hands:
        channel = await hands.enter_async_context(channel_to(url))
        assert await channel.get(DEAD) is not None
        # Not by its consumers: a quorum queue counts whoever holds a message that was got.
        async with redrive.running(admin_url=url, queues=[], roles="collector") as running:
            await redrive.has_logged("collector.ready", DEAD)
            async with store_is_locked(redrive.folder / "redrive.db"):
                await hands.aclose()
                await empty(url, DEAD)
                await running.kill()
    await holds(url, DEAD, 1)

    # Killed as soon as it is stored: acked or not, it is one letter or a marked second one.
    async with redrive.running(admin_url=url, queues=[DEAD], roles="collector") as running:
        await redrive.has_logged("letter.collected", "payment")
        await running.kill()
    async with redrive.running(admin_url=url, queues=[DEAD], roles="retrier,collector"):
        await empty(url, DEAD)

    listed = json.loads(await redrive.done("letters", "list", "--output", "json"))
    letters = [each for each in listed["items"] if not each["possibleDuplicate"]]
    (letter,) = letters
    found = await shown(redrive, letter["id"])
    assert found["origin"] == {
        "vhost": letter["origin"]["vhost"],
        "queue": QUEUE,
        "exchange": "work",
        "routingKey": KEY,
    }
    assert found["body"]["data"].encode() == dead.body == BODY
    assert found["originalMessage"] == json.loads(BODY)
    assert (found["status"], found["errorType"], found["retryCount"]) == (
        "dlq_pending",
        "REJECTED",
        3,
    )
    assert [death["queue"] for death in found["deaths"]] == [QUEUE] * 4
    groups = json.loads(await redrive.done("groups", "list", "--output", "json"))
    assert [group["fingerprint"] for group in groups["items"]] == [letter["fingerprint"]]
    await redrive.done("stats", "--ledger")
    for copy in listed["items"]:
        if copy["possibleDuplicate"]:
            await redrive.done("letters", "discard", copy["id"], "--reason", "a copy", "--yes")
    return str(letter["id"])


async def shown(redrive: CommandLine, letter: str) -> Any:
    return json.loads(await redrive.done("letters", "show", letter, "--output", "json"))


async def has_status(redrive: CommandLine, letter: str, status: str) -> Any:
    def is_so() -> bool:
        found = redrive.asked("SELECT status FROM redrive_letter WHERE id = ?", UUID(letter).bytes)
        return found == [(status,)]

    await eventually_async(is_so, what=f"{letter} is {status}")
    found = await shown(redrive, letter)
    assert found["status"] == status
    return found


async def is_left_to_a_person(redrive: CommandLine, url: str, letter: str) -> None:
    # Killed as soon as it has decided: a consumer that only rejects told nothing.
    async with redrive.running(admin_url=url, queues=[], roles="worker") as running:
        await has_status(redrive, letter, "dlq_manual")
        await running.kill()


async def is_seen_and_mended(redrive: CommandLine, letter: str, page: Page) -> None:
    async with redrive.serving() as (address, running):
        async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=30) as client:
            answer = (await client.get(f"/api/v1/letters/{letter}")).json()
        assert answer["body"]["data"].encode() == BODY
        await page.goto("/letters?status=manual")
        row = page.get_by_role("row").filter(has_text=QUEUE)
        await expect(row).to_contain_text("REJECTED")
        await page.goto(f"/letters/{letter}")
        await type_a_body(page, MENDED.decode())
        # Killed before what was typed is saved: the page says so, and keeps it.
        await running.kill()
        await page.get_by_role("button", name="Review the change").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    async with redrive.serving() as (_, running):
        await save_the_edit(page, "a typo")
        await running.kill()


def has_open(process: GuardedProcess, name: str) -> bool:
    """Whether a process has a file of that name open."""
    for each in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            if name in str(each.readlink()):
                return True
    return False


async def is_replayed(redrive: CommandLine, url: str, letter: str, page: Page) -> None:
    # Killed before it is sent: the store is locked, so the job cannot claim it.
    async with store_is_locked(redrive.folder / "redrive.db"):
        replaying = redrive.start("replay", letter, "--ignore-health")
        await eventually_async(
            lambda: has_open(replaying, "redrive.db"), what="the replay at its store"
        )
        await asyncio.to_thread(replaying.kill)
    assert (await shown(redrive, letter))["status"] == "dlq_manual"

    # Killed as soon as it is ordered: the order stays, and another process sends it.
    async with redrive.serving() as (_, running):
        await order_a_replay(page)
        await running.kill()
    async with redrive.running(admin_url=url, queues=[], roles="worker") as running:
        await was_sent(redrive, letter)
        await running.kill()

    def accepts_mended(seen: Seen) -> bool:
        return seen.body == MENDED

    with PlainConsumer(url, QUEUE, accepts_mended).running() as consumer:
        await consumer.has_seen(1)
        # Killed while its verdict is awaited.
        async with redrive.running(admin_url=url, queues=[], roles="janitor") as running:
            await clock_has_started(redrive, letter)
            await running.kill()
        async with redrive.serving("server,worker,janitor"):
            found = await has_status(redrive, letter, "dlq_resolved")
            await expect(page.get_by_role("heading", level=1)).to_contain_text("resolved")
    (seen,) = consumer.seen
    assert (seen.routing_key, seen.body) == (KEY, MENDED)
    assert seen.headers[headers.LETTER] == letter
    assert found["resolution"] == "silence"
    assert found["body"]["data"].encode() == BODY  # the original is kept
    assert [edit["reason"] for edit in found["edits"]] == ["a typo"]


async def was_sent(redrive: CommandLine, letter: str) -> None:
    def sent() -> bool:
        query = "SELECT result FROM redrive_attempt WHERE letter_id = ?"
        return redrive.asked(query, UUID(letter).bytes) == [("sent",)]

    await eventually_async(sent, what="the letter sent, once")
    attempts = (await shown(redrive, letter))["replayAttempts"]
    assert [attempt["result"] for attempt in attempts] == ["sent"]


async def clock_has_started(redrive: CommandLine, letter: str) -> None:
    def started() -> bool:
        query = "SELECT verdict_due_at, status FROM redrive_letter WHERE id = ?"
        ((due, status),) = redrive.asked(query, UUID(letter).bytes) or [(None, "")]
        return due is not None or status == "dlq_resolved"

    await eventually_async(started, what="the destination seen idle")


@asynccontextmanager
async def store_is_locked(path: Path) -> AsyncIterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def has_its_whole_history(dead: Delivery) -> None:
    assert dead.body == BODY
    found = Properties.read(dead.properties)
    assert found.get("message_id") == "charge-1"
    deaths = read_deaths(found.header(headers.DEATHS))
    assert [(death.queue, death.reason) for death in deaths] == [(QUEUE, "rejected")] * 4
    assert [death.at for death in deaths] == sorted(death.at for death in deaths if death.at)
    assert found.header(headers.QUEUE) == QUEUE
    assert found.header(headers.EXCHANGE) == "work"
    assert found.header(headers.ROUTING_KEY) == KEY
    assert found.header(headers.ATTEMPT) == 3
    assert found.header(headers.FIRST_FAILED_AT) == deaths[0].at
    assert found.header(headers.ERROR_TYPE) == "REJECTED"
    assert "gave up after 3 retries" in str(found.header(headers.ERROR_REASON))
    # It was in the hands of a process that died: this copy might have been a second one.
    assert found.header(headers.REDELIVERED) is True
