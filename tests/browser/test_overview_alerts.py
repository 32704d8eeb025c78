"""Alerts on the start screen: what fires stands first, is silenced and heard; for everybody."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.async_api import Locator, Page, expect

from redrive.domain.access import Role
from redrive.domain.alerting import DEFAULT_RULES
from redrive.domain.breaker import Position
from redrive.settings.alerts import AlertSinkSettings
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.services.alerting import MINUTE, Desk, desk
from tests.services.letters import failed
from tests.services.sending import later

PASSWORD = "correct horse"
NOBODY_THERE = {"name": "pager", "kind": "webhook", "url": "http://127.0.0.1:9/"}


# Nobody collects in these tests, so this one would always be about to fire.
COLLECTED = [rule for rule in DEFAULT_RULES if rule.name != "CollectorStopped"]


def judges(console: Console) -> Desk:
    """Judges alerts, a minute ago at first: there is time to pass until now."""
    later(console.server.store, timedelta(seconds=-60))
    return desk(console.server.store, COLLECTED)


async def hold(console: Console, position: Position) -> None:
    await console.server.store.breakers.force("/", "orders", position)


async def breaker_and_old_letter(console: Console, alerts: Desk) -> None:
    """Two alerts fire."""
    await console.server.add(failed("timed out"))
    await hold(console, Position.OPEN)
    await alerts.judge()


def firing(page: Page, name: str) -> Locator:
    """The line of an alert that fires."""
    alerts = page.get_by_role("region", name="Alerts", exact=True)
    heading = page.get_by_role("heading", name=name)
    return alerts.get_by_role("listitem").filter(has=heading)


async def test_an_alert_that_begins_to_fire_stands_first_without_reloading(
    console: Console,
) -> None:
    alerts = judges(console)
    await alerts.judge()
    page = await console.person(hasty=True)
    await expect(page.get_by_text("No alert fires. 10 alerts are quiet.")).to_be_visible()
    await expect(page.get_by_role("region", name="Alerts", exact=True)).to_have_count(0)
    navigation = page.get_by_role("navigation", name="Screens")
    await expect(navigation.get_by_role("link", name="Overview", exact=True)).to_be_visible()
    await breaker_and_old_letter(console, alerts)
    await expect(firing(page, "OldestPendingTooOld")).to_be_visible()
    await expect(page.get_by_role("main").get_by_role("region").first).to_have_accessible_name(
        "Alerts"
    )
    breaker = firing(page, "BreakerOpen")
    await expect(breaker).to_contain_text("warning")
    await expect(breaker).to_contain_text("so nothing is sent there for now")
    await expect(breaker).to_contain_text("open_breakers > 0")
    await expect(breaker).to_contain_text("1 breaker")
    await expect(breaker.get_by_text(re.compile(r"^\dm ago$|^\d\ds ago$"))).to_be_visible()
    await expect(page.get_by_text("1 alert may fire soon. 6 alerts are quiet.")).to_be_visible()
    marked = navigation.get_by_role("link", name="Overview (3 alerts fire)")
    await expect(marked).to_be_visible()
    await expect(page.get_by_role("status").filter(has_text="3 alerts fire.")).to_have_count(1)
    # It leads to what it is about, and the mark stays beside the way back.
    group = firing(page, "NewFailureGroup")
    await expect(group).to_contain_text("1 group")
    await group.get_by_role("link", name="Groups, last seen first").click()
    await expect(page).to_have_url(re.compile(r"/groups\?order=newest"))
    await marked.click()
    await hold(console, Position.CLOSED)
    await alerts.judge()
    await expect(breaker).to_have_count(0)
    await expect(page.get_by_text("1 alert may fire soon. 7 alerts are quiet.")).to_be_visible()


async def test_an_operator_silences_an_alert_by_keyboard_and_hears_it_again(
    console: Console,
) -> None:
    await breaker_and_old_letter(console, judges(console))
    page = await console.person()
    other = await console.person()
    await page.get_by_role("button", name="Silence… BreakerOpen").focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Silence BreakerOpen")
    await dialog.get_by_label("For").select_option("8 hours")
    await dialog.get_by_label("Reason").fill("its consumer is deployed anew")
    await page.keyboard.press("Enter")
    await expect(dialog).to_have_count(0)
    lines = page.get_by_role("region", name="Alerts", exact=True).get_by_role("listitem")
    await expect(lines.last).to_contain_text("its consumer is deployed anew")
    await expect(page.get_by_text("2 fire, 1 of them silenced")).to_be_visible()
    hear = page.get_by_role("button", name="Hear again BreakerOpen")
    await expect(hear).to_be_focused()
    # Somebody else sees it too, and is told of one only.
    await expect(firing(other, "BreakerOpen")).to_contain_text("Silenced")
    await expect(other.get_by_role("link", name="Overview (1 alert fires)").first).to_be_visible()
    (silence,) = (await console.server.store.alerts.silences()).values()
    assert silence.until - silence.created_at == timedelta(hours=8)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Silence… BreakerOpen")).to_be_focused()
    await expect(firing(other, "BreakerOpen")).not_to_contain_text("Silenced")
    assert await console.server.store.alerts.silences() == {}


async def test_a_viewer_sees_alerts_and_is_offered_no_silence(console: Console) -> None:
    await console.server.user("ann", PASSWORD, Role.VIEWER)
    alerts = judges(console)
    await breaker_and_old_letter(console, alerts)
    await alerts.store.alerts.silence("BreakerOpen", MINUTE * 90, "a deploy", "bob")
    page = await console.person()
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await expect(firing(page, "BreakerOpen")).to_contain_text(
        "Silenced by bob, ends in 1h: a deploy"
    )
    await page.get_by_text("8 alerts are quiet.", exact=True).click()
    await expect(page.get_by_role("heading", name="LedgerBroken")).to_be_visible()
    await expect(page.get_by_role("button", name=re.compile("Silence|Hear again"))).to_have_count(0)


async def test_what_nobody_judges_or_takes_is_not_called_quiet(console: Console) -> None:
    page = await console.person(hasty=True)
    await expect(page.get_by_text("Nobody has judged alerts yet")).to_be_visible()
    pager = AlertSinkSettings.model_validate(NOBODY_THERE)
    later(console.server.store, timedelta(hours=-1))
    alerts = desk(console.server.store, COLLECTED, [pager])
    await breaker_and_old_letter(console, alerts)
    await alerts.tell()
    await expect(firing(page, "BreakerOpen")).to_be_visible()
    await expect(page.get_by_text("Nobody judges alerts; the last time was")).to_be_visible()
    sink = page.get_by_role("status").filter(has_text="pager has not taken 2 messages about alerts")
    await expect(sink).to_contain_text("Connection refused")
    later(console.server.store, timedelta(minutes=59))
    await desk(console.server.store, DEFAULT_RULES).judge()
    await expect(page.get_by_text("1 alert may fire soon. 7 alerts are quiet.")).to_be_visible()
    await page.locator("summary").focus()
    await page.keyboard.press("Enter")
    others = page.get_by_role("list", name="Alerts that do not fire").get_by_role("listitem")
    await expect(others.first).to_contain_text("CollectorStopped")
    alerts.sinks.close()


async def test_alerts_can_be_read_and_silenced_by_everybody(console: Console) -> None:
    alerts = judges(console)
    await breaker_and_old_letter(console, alerts)
    await alerts.store.alerts.silence("BreakerOpen", MINUTE * 90, "a deploy " * 20, "bob")
    page = await console.person(phone=True)
    await expect(page.get_by_role("link", name="Overview (1 alert fires)")).to_be_visible()
    await page.locator("summary").click()
    await expect(page.get_by_role("heading", name="LedgerBroken")).to_be_visible()
    assert not await scrolls_sideways(page)
    assert await accessibility_faults(page) == []
    await page.set_viewport_size({"width": 1280, "height": 800})
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Silence… OldestPendingTooOld").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await accessibility_faults(page) == []
