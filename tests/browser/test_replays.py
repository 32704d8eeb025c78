"""Replays: made from a filter with a dry run, followed live, paused, resumed, cancelled."""

from __future__ import annotations

import re

from playwright.async_api import expect

from redrive.domain.filters import Filters
from redrive.domain.replay import ReplayState
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.browser.lively import goes_on, replay_of
from tests.browser.replaying import confirm_replay
from tests.services.letters import failed


async def test_a_replay_is_followed_live_with_its_failures(console: Console) -> None:
    await console.server.add(*(failed("timed out") for _ in range(6)))
    job = await replay_of(console.server, Filters(), batch_size=3)
    page = await console.person("/replays")
    await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuetext", "0 of 6")
    await page.get_by_role("link", name="every open letter").click()
    await expect(page.get_by_text("It waits for a worker")).to_be_visible()
    await expect(page.get_by_text("No letter of it has failed")).to_be_visible()
    await goes_on(console.server, job, refused=1)
    await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuetext", "3 of 6")
    await expect(page.get_by_text("1 refused: there is no such queue")).to_be_visible()
    table = page.get_by_role("table", name="Letters of the replay")
    await expect(table.get_by_text("refused", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Sent", exact=True).click()
    await expect(table.get_by_role("link", name="TIMEOUT_ERROR")).to_have_count(2)
    await goes_on(console.server, job)
    await expect(page.get_by_text("done", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)


async def test_a_replay_is_paused_resumed_and_cancelled(console: Console) -> None:
    await console.server.add(failed("timed out"), failed("timed out"))
    job = await replay_of(console.server, Filters())
    page = await console.person(f"/replays/{job.id}")
    other = await console.person("/replays")
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await page.keyboard.press("p")
    await expect(page.get_by_text("paused", exact=True)).to_be_visible()
    # Somebody else sees it without reloading, and has it go on.
    await other.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel this replay")
    await expect(dialog.get_by_text("about 2 letters stay as they are")).to_be_visible()
    await dialog.get_by_label("Reason").fill("the fix is not out yet")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("The fix is not out yet.")).to_be_visible()
    found = await console.server.store.replays.get(job.id)
    assert found is not None
    assert found.state is ReplayState.CANCELLED


async def test_a_replay_is_made_from_a_filter_after_a_dry_run(console: Console) -> None:
    await console.server.add(failed("timed out", queue="billing"), failed("no such currency"))
    page = await console.person("/replays")
    await expect(page.get_by_text("Nothing was replayed yet")).to_be_visible()
    await page.keyboard.press("n")
    await expect(page.get_by_text("2 letters match.")).to_be_visible()
    await page.get_by_label("Queue").fill("bil*")
    await expect(page.get_by_text("1 letter matches.")).to_be_visible()
    await expect(page).to_have_url(re.compile(r"queue=bil(\*|%2A)"))
    await page.get_by_role("button", name="Dry run").click()
    dialog = page.get_by_role("dialog", name="Replay 1 letter")
    await expect(dialog.get_by_text("there is no such queue")).to_be_visible()
    assert await accessibility_faults(page) == []
    await confirm_replay(dialog, "Replay 1 letter")
    await expect(page.get_by_role("heading", name="Replay of 1 letter")).to_be_visible()


async def test_a_filter_that_cannot_be_meant_is_told_and_stays(console: Console) -> None:
    page = await console.person("/replays/new?minAge=soon")
    await expect(page.get_by_role("alert")).to_contain_text("expected a duration")
    await expect(page.get_by_label("At least so old")).to_have_value("soon")
    await expect(page.get_by_role("button", name="Dry run")).to_be_disabled()


async def test_replays_can_be_read_by_everybody(shop: Console) -> None:
    page = await shop.person("/replays")
    await expect(page.get_by_role("progressbar")).to_have_count(2)
    assert await accessibility_faults(page) == []
    await page.get_by_role("link", name="ConnectionRefusedError").click()
    await expect(page.get_by_text("3 refused: there is no such queue")).to_be_visible()
    assert await accessibility_faults(page) == []


async def test_at_phone_width_replays_do_not_scroll_sideways(shop: Console) -> None:
    page = await shop.person("/replays", phone=True)
    await expect(page.get_by_role("progressbar")).to_have_count(2)
    assert not await scrolls_sideways(page)
    await page.get_by_role("link", name="ConnectionRefusedError").click()
    await expect(page.get_by_text("3 refused: there is no such queue")).to_be_visible()
    assert not await scrolls_sideways(page)
    await page.goto("/replays/new")
    await expect(page.get_by_role("button", name="Dry run")).to_be_visible()
    assert not await scrolls_sideways(page)
    await page.goto("/replays/nowhere")
    await expect(page.get_by_text("There is no such replay")).to_be_visible()
