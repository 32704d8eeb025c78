"""Fixtures of the browser suite: one Chromium a run, and for each test a server with an own store.

The tests share one event loop, for the browser lives in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.browser.chromium import CHROMIUM, FLAGS
from tests.browser.console import Console
from tests.services.plugin import Vhost
from tests.services.serving import serving, settings_for

HERE = Path(__file__).parent
# Two suites at once on two cores: what takes a moment may take several.
expect.set_options(timeout=15_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder runs in the loop of the browser."""
    for item in items:
        if HERE in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium."""
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def console(browser: Browser, vhost: Vhost, tmp_path: Path) -> AsyncIterator[Console]:
    """The console of a server on loopback, where nobody has to log in, with an empty store."""
    settings = settings_for(
        tmp_path,
        vhost.url,
        f"sqlite:///{tmp_path}/redrive.db",
        management_url=vhost.management_url,
    )
    async with serving(settings) as server, Console(browser, server) as opened:
        yield opened
