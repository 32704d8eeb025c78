"""Fixtures of the browser suite: one Chromium a run, and for each test a server with an own store.

The tests share one event loop, for the browser lives in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from redrive.broker.private import PrivateNode
from tests.browser import lively
from tests.browser.chromium import CHROMIUM, FLAGS
from tests.browser.console import Console
from tests.services.plugin import Vhost
from tests.services.serving import serving, settings_for

HERE = Path(__file__).parent
# Two suites at once on two cores: what takes a moment may take several.
expect.set_options(timeout=90_000)


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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shop(
    browser: Browser, rabbitmq: PrivateNode, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Console]:
    """The console of a busy day. Shared by the run: for tests that look, or that change what no
    other looks at."""
    folder = tmp_path_factory.mktemp("shop")
    rabbitmq.create_vhost("shop")
    settings = settings_for(
        folder,
        rabbitmq.url("shop"),
        f"sqlite:///{folder}/redrive.db",
        '[[policy]]\nname = "order.*"\nmax_retries = 3\n',
        management_url=rabbitmq.management_url,
    )
    async with serving(settings) as server:
        await lively.busy_day(server)
        await lively.topology(server, holds=[("dlq-queue", 3), ("retry-queue", 6)])
        await lively.drift_apart(server)
        async with Console(browser, server) as opened:
            yield opened
    rabbitmq.delete_vhost("shop")
