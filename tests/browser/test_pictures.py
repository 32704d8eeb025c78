"""Pictures of the console, light and dark. `REDRIVE_PICTURES=1` writes those of the docs to
docs/images; without it they are taken all the same, into a folder that goes away.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.console import ROOT, THEMES, Console, Theme
from tests.browser.lively import alerts_fire

IMAGES = ROOT / "docs" / "images"
LARGEST = 400_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where pictures go."""
    if not os.environ.get("REDRIVE_PICTURES"):
        return tmp_path
    IMAGES.mkdir(exist_ok=True)
    return IMAGES


async def is_well(route: Route) -> None:
    """The machine that takes pictures may be busy; the pictures are not of that."""
    answer = await route.fetch()
    health: dict[str, Any] = await answer.json()
    await route.fulfill(response=answer, json={**health, "unmet": [], "busy": []})


async def taken(page: Page, file: Path) -> None:
    """Once letters of the text's own font are there and nothing moves any more."""
    await page.evaluate("document.fonts.ready")
    shot = await page.screenshot(path=file, animations="disabled", caret="hide")
    assert 10_000 < len(shot) < LARGEST, file


@pytest.mark.parametrize("theme", THEMES)
async def test_the_documentation_has_pictures(shop: Console, folder: Path, theme: Theme) -> None:
    await alerts_fire(shop.server)
    page = await shop.person("/nowhere", theme=theme)
    await page.set_viewport_size({"width": 1360, "height": 1480})
    await page.route("**/api/v1/health", is_well)
    await page.goto("/")
    await expect(page.get_by_role("img", name="Last 24 hours:")).to_be_visible()
    await expect(page.get_by_role("progressbar")).to_be_visible()
    await expect(page.get_by_text("reachable")).to_be_visible()
    await expect(page.get_by_role("heading", name="BreakerOpen")).to_be_visible()
    await taken(page, folder / f"overview-{theme}.png")
    await page.set_viewport_size({"width": 1360, "height": 880})
    await page.goto("/groups")
    await expect(page.get_by_role("img", name="148 letters in the last 24 hours")).to_be_visible()
    await taken(page, folder / f"groups-{theme}.png")
    await page.get_by_role("link", name="VALIDATION_ERROR").click()
    await page.get_by_role("table", name="Newest letters").get_by_role("link").first.click()
    await expect(page.get_by_text('"DKK"').first).to_be_visible()
    await taken(page, folder / f"letter-{theme}.png")
    await page.goto("/replays")
    await page.get_by_role("link", name="ConnectionRefusedError").click()
    await expect(page.get_by_text("3 refused: there is no such queue")).to_be_visible()
    refused = page.get_by_role("table", name="Letters of the replay").get_by_role("link")
    await expect(refused).to_have_count(3)
    await taken(page, folder / f"replay-{theme}.png")
    await page.goto("/topology")
    await expect(page.get_by_role("img", name="Messages go from your queues")).to_be_visible()
    await taken(page, folder / f"topology-{theme}.png")
