"""kill -9 of retention at every step: each letter is in the store, in a sound file, or in both.

Letters are counted by identity, and compared whole.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.domain.filters import Filters
from redrive.domain.letter import Kept
from redrive.domain.lifecycle import State
from redrive.store.store import Store
from redrive.work.cold_storage import ColdStorage
from redrive.work.retention import file_of
from tests.faults.retention_process import AT_ONCE, Scene, Step
from tests.services import scale
from tests.services.eventually import eventually_async
from tests.services.letters import books_are_exact, letter_store
from tests.services.retiring import letter_in

EACH = 3 * AT_ONCE


async def ran(scene: Scene, log: Path) -> int | None:
    process = scene.start(log)
    try:
        await eventually_async(lambda: not process.alive, within=60, what="retention's end")
    finally:
        process.kill()
    return process.exit_code


async def stored(store: Store) -> dict[str, Kept]:
    return {kept.letter.id: kept async for kept in store.letters.stream(Filters())}


def filed(storage: ColdStorage) -> dict[str, Kept]:
    """What is in files that were finished."""
    sound = [name for name in storage.names() if storage.check(name).sound]
    return {kept.letter.id: kept for name in sound for kept in storage.read_back(name)}


@pytest.mark.parametrize(
    ("engine", "step"),
    [
        pytest.param(engine, step, id=f"{engine}-{step.name.lower()}")
        for engine in ("sqlite", "postgresql")
        for step in Step
        # What is done to files only does not depend on the engine.
        if scale.FULL or engine == "sqlite" or step in (Step.CHANGED, Step.COMMITTED)
    ],
)
async def test_retention_killed_at_any_step_loses_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str, step: Step
) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    if engine == "postgresql":
        url = request.getfixturevalue("database")
    storage, log = ColdStorage(tmp_path / "archive"), tmp_path / "log"
    async with letter_store(url) as store:
        for number in range(EACH):
            for state in (State.FAILED, State.ARCHIVED):
                await letter_in(store, state, b"\xff%d" % number, edits=[b"\xfe"])
        before = await stored(store)

        scene = Scene(url=url, folder=str(storage.folder), step=step, nth=2)
        assert await ran(scene, log) == -9, log.read_text()
        there, kept = await stored(store), filed(storage)
        assert there.keys() | kept.keys() == before.keys()
        for letter_id, letter in before.items():
            changed = there.get(letter_id) != letter
            assert not changed or kept[letter_id] == letter, "changed, and not as it was in a file"
        assert await books_are_exact(store)

        assert await ran(Scene(url=url, folder=str(storage.folder)), log) == 0, log.read_text()
        there, kept = await stored(store), filed(storage)
        assert kept == before
        assert {letter.letter.status for letter in there.values()} == {State.ARCHIVED}
        assert len(there) == EACH, "what failed is archived, what was archived is gone"
        assert all(file_of(letter) in storage.names() for letter in there.values())
        assert not list(storage.folder.rglob("*.part"))
        assert all(storage.check(name).sound for name in storage.names())
        assert await books_are_exact(store)
