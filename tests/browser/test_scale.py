"""A million letters: the list opens within a second, and scrolling stays smooth."""

from __future__ import annotations

import time

import pytest
from playwright.async_api import expect

from bench.reading import fill
from tests.browser.console import Console
from tests.services.scale import messages, seconds

_FRAMES = """async (frame) => {
  let longest = 0, before = performance.now();
  for (let step = 0; step < 60; step += 1) {
    frame.scrollBy(0, 400);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    longest = Math.max(longest, now - before);
    before = now;
  }
  return longest;
}"""


@pytest.mark.soak
async def test_the_list_opens_at_once_however_many_letters_there_are(console: Console) -> None:
    await fill(console.server.store, 0, messages(1_000_000))
    page = await console.person("/letters?status=resolved")
    await expect(page.get_by_role("heading", name="No letter matches")).to_be_visible()
    began = time.monotonic()
    await page.goto("/letters")
    await expect(page.get_by_role("row").nth(5)).to_be_visible()
    assert time.monotonic() - began < seconds(1, quick=5)
    frame = page.get_by_role("table", name="Letters").locator("..")
    longest: float = await frame.evaluate(_FRAMES)
    assert longest < seconds(200, quick=2000)
    assert await page.get_by_role("row").count() < 80
