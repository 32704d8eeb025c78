"""What the suites of the store share: each runs on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.store.store import Store
from tests.services.letters import letter_store


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store of a test is."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/redrive.db"
    url: str = request.getfixturevalue("store_database")
    return url


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An empty store for letters."""
    async with letter_store(store_url) as opened:
        yield opened
