"""What storing into SQLite leaves in memory: the driver keeps its statements, and with each of them
the values that it had last."""

from __future__ import annotations

from pathlib import Path

import psutil

from tests.services.letters import arrival, letter_store

MB = 2**20
_TRANSACTION = 8_000_000
"""As many bytes as the collector stores at a time."""


async def test_bodies_that_were_stored_do_not_stay_in_memory(tmp_path: Path) -> None:
    process = psutil.Process()
    async with letter_store(f"sqlite:///{tmp_path / 'redrive.db'}") as store:
        await store.letters.add([arrival(bytes(_TRANSACTION))])
        before = process.memory_info().rss
        for count in range(2, 22):  # messages of a batch: any number, each of any size
            await store.letters.add([arrival(bytes(_TRANSACTION // count)) for _ in range(count)])
        grown = process.memory_info().rss - before
    assert grown < 60 * MB, f"{grown / MB:.0f} MB for {20 * _TRANSACTION / MB:.0f} MB stored"
