"""The login: as a page, and over the screen of somebody whose session has ended."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from playwright.async_api import Page, Route, expect

from redrive.domain.access import Role
from tests.browser.console import Console, accessibility_faults, scrolls_sideways
from tests.services.letters import failed

PASSWORD = "correct horse"


async def log_in(page: Page, password: str = PASSWORD) -> None:
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()


async def test_somebody_logs_in_and_out_and_a_wrong_password_leaves_the_name(
    console: Console,
) -> None:
    await console.server.user("ann", PASSWORD, Role.OPERATOR)
    await console.server.add(failed("timed out"))
    page = await console.person("/letters?queue=orders")
    await log_in(page, "wrong")
    await expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong")
    await expect(page.get_by_label("Name")).to_have_value("ann")
    await log_in(page)
    await expect(page.get_by_text("timed out")).to_be_visible()
    assert "queue=orders" in page.url
    await expect(page.get_by_text("operator")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("timed out")).to_be_visible()
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("button", name="Log in")).to_be_visible()
    await page.goto("/letters")
    await expect(page.get_by_role("button", name="Log in")).to_be_visible()
    await expect(page.get_by_text("timed out")).to_have_count(0)


async def test_a_session_that_ends_leaves_what_is_being_written(console: Console) -> None:
    await console.server.user("ann", PASSWORD, Role.OPERATOR)
    (one,) = await console.server.add(failed("timed out"))
    page = await console.person(f"/letters/{one}")
    await log_in(page)
    await page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog", name="Discard 1 letter")
    await dialog.get_by_label("Reason").fill("a long story")
    # Whoever is set anew has to log in again.
    await console.server.user("ann", PASSWORD, Role.OPERATOR)
    await dialog.get_by_role("button", name="Discard 1 letter").click()
    again = page.get_by_role("dialog", name="Log in again")
    await expect(again).to_be_visible()
    await log_in(page)
    await expect(again).to_have_count(0)
    await expect(dialog.get_by_label("Reason")).to_have_value("a long story")
    await dialog.get_by_role("button", name="Discard 1 letter").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile("archived"))


async def test_a_login_in_between_leaves_the_number_that_is_about_to_be_confirmed(
    console: Console,
) -> None:
    await console.server.user("ann", PASSWORD, Role.OPERATOR)
    two = [failed("timed out"), failed("timed out")]
    await console.server.add(*two)
    page = await console.person(f"/groups/{two[0].letter.fingerprint}")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    await log_in(page)
    await page.get_by_role("button", name="Discard").click()
    dialog = page.get_by_role("dialog", name="Discard 2 letters")
    await expect(dialog.get_by_role("button", name="Discard 2 letters")).to_be_enabled()
    # Whoever is set anew has to log in again.
    await console.server.user("ann", PASSWORD, Role.OPERATOR)
    await dialog.get_by_role("button", name="Discard 2 letters").click()
    await expect(page.get_by_role("dialog", name="Log in again")).to_be_visible()
    await console.server.add(failed("timed out"))
    await log_in(page)
    await expect(page.get_by_text("3 letters", exact=True)).to_be_visible()
    assert asked.count("/api/v1/letters/count") == 1
    await dialog.get_by_role("button", name="Discard 2 letters").click()
    await expect(page.get_by_role("button", name="Show 3 letters instead")).to_be_visible()


async def test_a_login_in_another_window_costs_this_one_a_second_try_and_nothing_typed(
    console: Console,
) -> None:
    await console.server.user("ann", PASSWORD, Role.OPERATOR)
    (one,) = await console.server.add(failed("timed out"))
    other = await console.person(f"/letters/{one}")
    await log_in(other)
    await expect(other.get_by_text("operator", exact=True)).to_be_visible()
    page = await console.another_window(other.context)
    # Where a proxy holds the live events back, nothing tells this window of the login by itself.
    await page.route("**/api/v1/events", lambda _: None)
    await page.goto(f"/letters/{one}")
    await page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog", name="Discard 1 letter")
    await dialog.get_by_label("Reason").fill("a long story")
    logged_in = asyncio.Event()

    async def not_meanwhile(route: Route) -> None:
        await logged_in.wait()
        await route.continue_()

    await page.route(re.compile(r"/api/v1/(?!events)"), not_meanwhile)
    # Whoever is set anew has to log in again.
    await console.server.user("ann", PASSWORD, Role.ADMIN)
    await other.reload()
    await log_in(other)
    await expect(other.get_by_text("admin", exact=True)).to_be_visible()
    logged_in.set()
    await dialog.get_by_role("button", name="Discard 1 letter").click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_text("admin", exact=True)).to_be_visible()
    await expect(dialog.get_by_label("Reason")).to_have_value("a long story")
    await dialog.get_by_role("button", name="Discard 1 letter").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile("archived"))


async def test_the_login_can_be_used_by_everybody(console: Console) -> None:
    await console.server.user("ann", PASSWORD, Role.VIEWER)
    page = await console.person("/", phone=True)
    await expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert await accessibility_faults(page) == []
    assert not await scrolls_sideways(page)
