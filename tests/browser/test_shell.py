"""The frame of every screen: navigation, themes, shortcuts, the phone."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.console import Console, scrolls_sideways
from tests.services.letters import failed


async def test_the_console_opens_with_its_first_screen_and_is_live(console: Console) -> None:
    page = await console.person()
    await expect(page.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    await expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    await console.server.add(failed("no such currency"))
    await page.goto("/letters")
    await expect(page.get_by_text("no such currency")).to_be_visible()


async def test_the_theme_follows_the_system_until_one_is_chosen(console: Console) -> None:
    page = await console.person("/letters", theme="dark")
    ground = page.locator("body")
    await expect(ground).to_have_css("background-color", "rgb(14, 17, 22)")
    await page.get_by_role("button", name="Theme: system").click()
    await expect(ground).to_have_css("background-color", "rgb(246, 247, 249)")
    await page.reload()
    await expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    await expect(ground).to_have_css("background-color", "rgb(246, 247, 249)")


async def test_the_shortcuts_of_a_screen_are_listed_and_work(console: Console) -> None:
    page = await console.person("/nowhere")
    await expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    await page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(help_.get_by_text("Go to Letters")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(help_).to_have_count(0)
    await page.keyboard.type("gl")
    await expect(page.get_by_role("heading", name="Letters", exact=True)).to_be_visible()


async def test_at_phone_width_the_menu_is_behind_a_button_and_nothing_scrolls_sideways(
    console: Console,
) -> None:
    await console.server.add(failed("a reason of many words, longer than a phone is wide" * 4))
    page = await console.person("/letters", phone=True)
    await expect(page.get_by_text("a reason of many words")).to_be_visible()
    assert not await scrolls_sideways(page)
    await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("link", name="Letters").click()
    await expect(page.get_by_role("dialog", name="Menu")).to_have_count(0)
