"""A person at the console, in a real browser, who changes one letter and sends it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page, async_playwright, expect

from tests.browser.chromium import CHROMIUM, FLAGS
from tests.browser.console import People

expect.set_options(timeout=90_000)  # a busy machine is slow, not wrong


@asynccontextmanager
async def person_at(address: str) -> AsyncIterator[Page]:
    """Somebody with a browser, who has not yet gone anywhere. The server may come and go."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            async with People(browser, address) as people:
                yield await people.person("about:blank")
        finally:
            await browser.close()


async def type_a_body(page: Page, text: str) -> None:
    """Open the editor of the letter and replace its text."""
    await page.get_by_role("button", name="Edit…").click()
    await page.get_by_role("textbox", name="New body").click()
    await page.keyboard.press("Control+a")
    await page.keyboard.press("Backspace")
    await page.keyboard.insert_text(text)


async def save_the_edit(page: Page, reason: str) -> None:
    """What is in the editor, after a look at the difference."""
    await page.get_by_role("button", name="Review the change").click()
    await expect(page.get_by_label("Difference")).to_be_visible()
    await page.get_by_label("Reason").fill(reason)
    await page.get_by_role("button", name="Save the edit").click()
    await expect(page.get_by_role("region", name="Edits")).to_contain_text(reason)


async def order_a_replay(page: Page) -> None:
    """To where the letter failed, whatever else this machine does meanwhile."""
    await page.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("ready")
    even_so = dialog.get_by_label("Send them even so")
    if await even_so.count():
        await even_so.check()
    await dialog.get_by_role("button", name="Replay 1 letter").click()
    await expect(page.get_by_text("Replay of 1 letter begun")).to_be_visible()
