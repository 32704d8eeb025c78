"""Retention in a process of its own that kills itself at a named step: `python -m` with a Scene."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from redrive.broker.processes import GuardedProcess
from redrive.store import retention as store_retention
from redrive.store.engine import Database
from redrive.store.store import open_letter_store
from redrive.work import cold_storage
from redrive.work.cold_storage import ColdStorage
from redrive.work.retention import Retention
from tests.faults.collector_process import ROOT, die
from tests.services.retiring import PERIODS

AT_ONCE = 2
"""Letters in a file, so that a few letters make several."""


class Step(StrEnum):
    """Where it ends."""

    COMPRESSED = "lines written, file not synced"
    SYNCED = "file synced, without its name"
    NAMED = "file named, without a manifest"
    WRITTEN = "file and manifest written, not read back"
    READ_BACK = "file read back, letters not changed"
    CHANGED = "letters changed, not committed"
    COMMITTED = "letters changed and committed"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What the process does, and when it ends."""

    url: str
    folder: str
    step: str = ""
    nth: int = 0
    """It ends the nth time that it reaches the step."""

    def start(self, log: Path) -> GuardedProcess:
        argv = [sys.executable, "-m", "tests.faults.retention_process", json.dumps(asdict(self))]
        return GuardedProcess(argv, env=dict(os.environ), cwd=ROOT, output=log)


_CALLS: dict[Step, tuple[Any, str, bool]] = {
    Step.COMPRESSED: (cold_storage, "write_lines", True),
    Step.SYNCED: (cold_storage, "_free", False),
    Step.NAMED: (cold_storage, "manifest_text", False),
    Step.WRITTEN: (ColdStorage, "write", True),
    Step.READ_BACK: (ColdStorage, "read_back", True),
    Step.CHANGED: (Database, "_require_its_file", True),
    Step.COMMITTED: (Retention, "_note_deleted", False),
}
"""What is called at each step, and whether the step is after the call."""


def set_trap(step: Step, nth: int) -> None:
    place, name, after = _CALLS[step]
    real: Callable[..., Any] = getattr(place, name)
    calls = itertools.count(1)

    def trapped(*given: Any, **named: Any) -> Any:
        last = next(calls) == nth
        if last and not after:
            die()
        answer = real(*given, **named)
        if last:
            die()
        return answer

    setattr(place, name, trapped)


async def retire(url: str, folder: Path) -> None:
    """All that is due a hundred years after."""
    store_retention.AT_ONCE = AT_ONCE  # type: ignore[misc]
    store = await open_letter_store(url)
    try:
        store.clock.ahead = timedelta(days=36500)
        await Retention(store.expiry, ColdStorage(folder), PERIODS).round()
    finally:
        await store.close()


def main() -> None:
    scene = Scene(**json.loads(sys.argv[1]))
    if scene.step:
        set_trap(Step(scene.step), scene.nth)
    asyncio.run(retire(scene.url, Path(scene.folder)))


if __name__ == "__main__":
    main()
