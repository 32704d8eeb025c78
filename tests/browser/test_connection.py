"""A server that goes away and comes back: one truthful word on it, and all goes on by itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from playwright.async_api import Browser, Page, Route, expect

from redrive.domain.lifecycle import State
from tests.acceptance.command_line import CommandLine
from tests.browser.console import Console, People
from tests.browser.process import free_port, started
from tests.services.failing import failing
from tests.services.letters import failed, letter_store

NOBODY = "amqp://guest:guest@127.0.0.1:9/"
AWAY = "The server cannot be reached"


async def says(page: Page, words: str) -> None:
    """What the page says of its connection, and nothing else beside it."""
    mark = page.get_by_role("complementary").get_by_role("status")
    await expect(mark.filter(has_text=words)).to_be_visible()
    live = page.get_by_role("status").filter(has_text="Live")
    await expect(live).to_have_count(1 if words == "Live" else 0)


async def test_a_page_outlives_a_restart_of_the_server_with_what_was_typed(
    browser: Browser, tmp_path: Path
) -> None:
    port = free_port()
    redrive = CommandLine(tmp_path, NOBODY, ("100ms",), more=f"[server]\nport = {port}\n")
    redrive.write_settings()
    url = f"sqlite:///{tmp_path}/redrive.db"
    async with letter_store(url) as store:
        (one,) = await store.letters.add([failed("timed out")])
    process = await started(redrive)
    async with People(browser, f"http://127.0.0.1:{port}") as people:
        page = await people.person(f"/letters/{one.letter.id}")
        other = await people.person("/letters")
        await expect(other.get_by_text("timed out")).to_be_visible()
        await page.get_by_role("button", name="Discard…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Reason").fill("typed before")
        await asyncio.to_thread(process.kill)
        await dialog.get_by_role("button", name="Discard 1 letter").click()
        await expect(dialog.get_by_role("alert")).to_contain_text(AWAY)
        await expect(dialog.get_by_label("Reason")).to_have_value("typed before")
        await says(page, "Server away")
        # A screen whose code was not asked for yet, and one whose code is there.
        await other.get_by_role("link", name="Audit").click()
        await expect(other.get_by_role("main")).to_contain_text(AWAY)
        await says(other, "Server away")
        async with letter_store(url) as store:
            await store.letters.add([failed("while it was away")])
        process = await started(redrive, times=2)
        try:
            await expect(other.get_by_text("Nobody has changed anything yet")).to_be_visible()
            await says(other, "Live")
            await expect(other.get_by_text(AWAY)).to_have_count(0)
            await says(page, "Live")
            await expect(dialog.get_by_role("alert")).to_contain_text("It answers again")
            await dialog.get_by_role("button", name="Discard 1 letter").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("archived")
            await page.get_by_role("link", name="Letters").first.click()
            await expect(page.get_by_text("while it was away")).to_be_visible()
        finally:
            await asyncio.to_thread(process.kill)


async def test_a_page_that_is_just_starting_opens_once_the_server_answers(
    console: Console,
) -> None:
    page = await console.person("/nowhere")
    for missing in ("**/api/v1/session", "**/assets/index*.js"):
        await page.route(missing, lambda route: route.abort())
        await page.route("**/healthz", lambda route: route.abort())
        await page.goto("/letters")
        await expect(page.get_by_text(AWAY)).to_be_visible()
        await page.unroute_all()
        await expect(page.get_by_text("There are no letters")).to_be_visible()
        await says(page, "Live")
        await expect(page.get_by_text(AWAY)).to_have_count(0)


async def test_a_screen_that_found_no_store_is_filled_once_there_is_one(console: Console) -> None:
    starting = {
        "type": "urn:redrive:problem:starting",
        "title": "Starting",
        "status": 503,
        "detail": "The store has not been reached yet.",
        "remedy": "Try again later.",
    }

    async def refuse(route: Route) -> None:
        kind = "application/problem+json"
        await route.fulfill(status=503, content_type=kind, body=json.dumps(starting))

    page = await console.person("/letters")
    await says(page, "Live")
    await page.route("**/api/v1/audit*", refuse)
    await page.get_by_role("link", name="Audit").click()
    await expect(page.get_by_role("main")).to_contain_text("The store has not been reached yet")
    await page.unroute_all()
    await expect(page.get_by_text("Nobody has changed anything yet")).to_be_visible()


async def test_a_page_that_cannot_reach_the_server_does_not_call_itself_live(
    console: Console,
) -> None:
    await console.server.add(failed("timed out"))
    page = await console.person("/letters")
    await expect(page.get_by_text("timed out")).to_be_visible()
    await says(page, "Live")
    # The events that flow already go on: only what is asked anew does not arrive.
    await page.context.set_offline(True)
    await page.get_by_role("link", name="Replays").click()
    await expect(page.get_by_role("main")).to_contain_text(AWAY)
    await says(page, "Server away")
    await page.context.set_offline(False)
    await expect(page.get_by_text("Nothing was replayed yet")).to_be_visible()
    await says(page, "Live")


async def test_a_change_that_was_cut_off_is_not_made_again_by_trying_again(
    console: Console,
) -> None:
    (one,) = await console.server.add(failed("timed out"))
    page = await console.person(f"/letters/{one}")
    await page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog")
    discard = dialog.get_by_role("button", name="Discard 1 letter")
    async with failing(console.server.settings.store.url.reveal(), "UPDATE", "redrive_letter"):
        await discard.click()
        await expect(dialog.get_by_role("alert")).to_contain_text("no such table")
    for _ in range(2):
        async with page.expect_response("**/letters/discard") as answered:
            await discard.click()
        assert (await answered.value).status == 409
        await expect(dialog.get_by_role("alert")).to_contain_text("The first try is still running")
    letter = await console.server.store.letters.get(one)
    assert letter is not None
    assert letter.status is State.PENDING
    # Who has looked, and opens it anew, makes another change.
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Discard…").click()
    await discard.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("archived")
