"""With a worker behind it: a letter is mended and sent in the console, and comes to its queue."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.acceptance.command_line import CommandLine
from tests.browser.console import People
from tests.browser.process import free_port, started
from tests.browser.replaying import confirm_replay
from tests.services.letters import failed, letter_store
from tests.services.moving import take_all
from tests.services.plugin import Vhost
from tests.services.retrying import declare_origin


async def test_a_letter_that_was_mended_and_replayed_comes_to_its_queue_and_is_seen_to_be_sent(
    browser: Browser, vhost: Vhost, tmp_path: Path
) -> None:
    await declare_origin(vhost.url, "orders", "classic", "order.created")
    port = free_port()
    redrive = CommandLine(tmp_path, vhost.url, ("100ms",), more=f"[server]\nport = {port}\n")
    redrive.write_settings()
    dead = failed("no such currency")
    here = replace(
        dead,
        letter=replace(dead.letter, vhost=vhost.name),
        envelope=replace(dead.envelope, vhost=vhost.name),
    )
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as store:
        (one,) = await store.letters.add([here])
        await store.decisions.archive([one.letter.id], "test")
        await store.decisions.restore([one.letter.id], "test")  # for a person, not for the worker
    process = await started(redrive, "server,worker")
    try:
        async with People(browser, f"http://127.0.0.1:{port}") as people:
            page = await people.person(f"/letters/{one.letter.id}")
            await page.get_by_role("button", name="Edit…").click()
            await page.get_by_role("textbox", name="New body").click()
            await page.keyboard.press("Control+a")
            await page.keyboard.press("Backspace")
            await page.keyboard.insert_text('{"order": 9007199254740993}')
            await page.get_by_role("button", name="Review the change").click()
            await page.get_by_role("button", name="Save the edit").click()
            await page.get_by_role("button", name="Replay…").click()
            dialog = page.get_by_role("dialog")
            await expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("1 letter")
            await confirm_replay(dialog, "Replay 1 letter")
            title = page.get_by_role("heading", level=1)
            await expect(title).to_contain_text("processing")
            await expect(page.get_by_role("region", name="Timeline")).to_contain_text(
                "Attempt 1: sent"
            )
        (message,) = await take_all(vhost.url, "orders")
        assert message.body == b'{"order": 9007199254740993}'
    finally:
        await asyncio.to_thread(process.kill)
