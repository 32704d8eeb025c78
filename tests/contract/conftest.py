"""What the suites of the store share: each runs on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.store.store import Store
from tests.services.letters import letter_store


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store for letters."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/redrive.db"
    else:
        url = request.getfixturevalue("store_database")
    async with letter_store(url) as opened:
        yield opened
