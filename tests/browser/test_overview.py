"""The start screen: numbers, rates, health, breakers, replays; live, and for everybody."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from playwright.async_api import Browser, expect

from redrive.domain.filters import Filters
from redrive.work.conditions import BLOCKED
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.browser.lively import breaker_opens, goes_on, replay_of
from tests.services.letters import failed
from tests.services.plugin import OwnNode
from tests.services.serving import serving, settings_for

HEALTH = "**/api/v1/health"


async def test_the_overview_tells_what_is_where_and_leads_there(shop: Console) -> None:
    page = await shop.person()
    states = page.get_by_role("list", name="Letters by state")
    await expect(states.get_by_role("link", name="pending")).to_contain_text("337")
    await expect(page.get_by_role("region", name="Error types")).to_contain_text("RateLimited")
    await expect(page.get_by_role("list", name="System")).to_contain_text("reachable")
    await expect(page.get_by_role("region", name="Time in the DLQ")).to_contain_text("Median")
    groups = page.get_by_role("region", name="Largest groups")
    await expect(groups.get_by_role("img", name="148 letters in the last 24 hours")).to_be_visible()
    await (
        page.get_by_role("region", name="Queues").get_by_role("link", name="mail.outgoing").click()
    )
    await expect(page).to_have_url(re.compile(r"/letters\?queue=mail.outgoing&status=pending"))


async def test_the_range_of_the_rates_is_in_the_address(shop: Console) -> None:
    page = await shop.person("/?range=30d")
    chart = page.get_by_role("img", name="Last 30 days: 46")
    await expect(chart).to_be_visible()
    await page.get_by_role("button", name="1h", exact=True).click()
    await expect(page).to_have_url(f"{shop.server.address}/?range=1h")
    await expect(page.get_by_role("img", name="Last hour:")).to_be_visible()
    await page.keyboard.press("r")
    await expect(page.get_by_role("img", name="Last 6 hours:")).to_be_visible()
    await page.get_by_role("img", name="Last 6 hours:").focus()
    legend = page.get_by_role("region", name="Arrivals and resolutions").get_by_text("Last 6 hours")
    await expect(legend).to_be_visible()
    await page.keyboard.press("ArrowRight")
    await expect(legend).to_have_count(0)  # it tells of the first bucket now


async def test_the_overview_can_be_read_by_everybody(shop: Console) -> None:
    page = await shop.person()
    await expect(page.get_by_role("progressbar")).to_be_visible()
    await expect(page.get_by_role("img", name="Last 24 hours:")).to_be_visible()
    assert await accessibility_faults(page) == []


async def test_at_phone_width_the_overview_does_not_scroll_sideways(shop: Console) -> None:
    page = await shop.person(phone=True)
    await expect(page.get_by_role("progressbar")).to_be_visible()
    assert not await scrolls_sideways(page)


async def test_an_empty_overview_says_what_to_expect_and_comes_to_life(console: Console) -> None:
    page = await console.person()
    await expect(page.get_by_text("No letter waits for anybody.")).to_be_visible()
    await expect(page.get_by_text("No replay is in progress")).to_be_visible()
    await expect(page.get_by_text("Every destination is open to letters")).to_be_visible()
    assert await accessibility_faults(page) == []
    await console.server.add(failed("timed out"))
    await expect(page.get_by_text("1 open letter.")).to_be_visible()
    await expect(page.get_by_role("link", name="TIMEOUT_ERROR").first).to_be_visible()
    job = await replay_of(console.server, Filters())
    await expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuetext", "0 of 1")
    await goes_on(console.server, job)
    await expect(page.get_by_text("No replay is in progress")).to_be_visible()


async def test_a_long_name_does_not_push_its_number_out_of_sight(console: Console) -> None:
    await console.server.add(failed("no", error_type="com.example.payments.gateway." * 4 + "No"))
    page = await console.person()
    card = page.get_by_role("region", name="Error types")
    await expect(card.get_by_role("link")).to_contain_text("1")
    number = await card.get_by_text("1", exact=True).bounding_box()
    place = await card.bounding_box()
    assert number is not None
    assert place is not None
    assert number["x"] + number["width"] <= place["x"] + place["width"]


async def test_a_breaker_is_held_and_released_by_an_operator(console: Console) -> None:
    await breaker_opens(console.server, "payments")
    page = await console.person()
    other = await console.person()
    breakers = page.get_by_role("region", name="Breakers")
    await expect(breakers.get_by_text("7 failures in a row")).to_be_visible()
    await breakers.get_by_role("button", name="Let all pass").click()
    await expect(breakers.get_by_text("held closed")).to_be_visible()
    # Somebody else sees it without reloading.
    await expect(other.get_by_text("held closed")).to_be_visible()
    await breakers.get_by_role("button", name="Release").click()
    await expect(breakers.get_by_text("7 failures in a row")).to_be_visible()
    await breakers.get_by_role("button", name="Hold a queue").click()
    dialog = page.get_by_role("dialog", name="Hold a queue")
    await dialog.get_by_label("Queue").fill("mail")
    await page.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    await expect(breakers.get_by_text("held open")).to_be_visible()


async def test_what_is_not_known_of_the_system_is_said_to_be_not_known(console: Console) -> None:
    page = await console.person("/letters", hasty=True)
    system = page.get_by_role("list", name="System")
    unknown = system.get_by_text("not known")
    await page.route(HEALTH, lambda route: route.fulfill(status=500, body="no"))
    await page.get_by_role("link", name="Overview").click()
    await expect(unknown).to_have_count(4)
    assert await accessibility_faults(page) == []
    await page.unroute_all()
    await expect(system).to_contain_text("Broker reachable")
    await expect(unknown).to_have_count(0)
    # What was read before may be no longer so.
    await page.route(HEALTH, lambda route: route.fulfill(status=500, body="no"))
    await expect(unknown).to_have_count(4)
    await page.unroute_all()
    await expect(unknown).to_have_count(0)
    await page.context.set_offline(True)
    await expect(unknown).to_have_count(4)
    await page.context.set_offline(False)
    await expect(system).to_contain_text("Broker reachable")


async def test_a_broker_that_blocks_or_is_away_is_told_on_top(
    browser: Browser, own_node: OwnNode, tmp_path: Path
) -> None:
    node = own_node()
    await asyncio.to_thread(node.ctl, "set_vm_memory_high_watermark", "0.000001")
    settings = settings_for(
        tmp_path,
        node.url("/"),
        f"sqlite:///{tmp_path}/redrive.db",
        management_url=node.management_url,
    )
    async with serving(settings) as server, Console(browser, server) as console:
        page = await console.person(hasty=True)
        system = page.get_by_role("list", name="System")
        await expect(page.get_by_text("connection.blocked")).to_be_visible()
        await expect(system).to_contain_text("blocked")
        assert await accessibility_faults(page) == []
        async with server.client() as client:
            health = (await client.get("/api/v1/health")).json()
        assert health["blocked"] is True
        assert [each for each in health["unmet"] if each not in health["busy"]] == [BLOCKED]
        node.kill()
        gone = page.get_by_text("The broker cannot be reached")
        await expect(gone).to_be_visible()
        await expect(system).to_contain_text("away")
