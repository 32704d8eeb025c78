"""What the suites of the server share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.plugin import Vhost
from tests.services.serving import Server, serving, settings_for


@pytest.fixture
async def server(vhost: Vhost, tmp_path: Path) -> AsyncIterator[Server]:
    """A server on loopback, where nobody has to log in, with an empty SQLite store."""
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db")
    async with serving(settings) as up:
        yield up


@pytest.fixture(params=["sqlite", "postgresql"])
async def server_on_each(
    request: pytest.FixtureRequest, vhost: Vhost, tmp_path: Path
) -> AsyncIterator[Server]:
    """The same on each engine."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/redrive.db"
    else:
        url = request.getfixturevalue("store_database")
    async with serving(settings_for(tmp_path, vhost.url, url)) as up:
        yield up
