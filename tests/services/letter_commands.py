"""`redrive letters` and its neighbours, run in this process on a store of letters."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from redrive.cli import main
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival, Kept
from redrive.store.store import Store
from tests.services.letters import letter_store


class LetterCommands:
    """Runs the command in this process, on one store."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self.folder = folder
        self.url = f"sqlite:///{folder / 'redrive.db'}"

    def __call__(self, *arguments: str, store: str = "") -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--store-url", store or self.url])
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    def json(self, *arguments: str) -> Any:
        code, out, _ = self(*arguments, "--output", "json")
        assert code == 0
        return json.loads(out)

    def with_store(self, work: Callable[[Store], Coroutine[Any, Any, Any]], url: str = "") -> Any:
        async def run() -> Any:
            async with letter_store(url or self.url) as store:
                return await work(store)

        return asyncio.run(run())

    def add(self, *arrivals: Arrival) -> list[str]:
        async def work(store: Store) -> list[str]:
            return [one.letter.id for one in await store.letters.add(arrivals)]

        ids: list[str] = self.with_store(work)
        return ids

    def kept(self, url: str = "") -> Sequence[Kept]:
        async def work(store: Store) -> list[Kept]:
            return [kept async for kept in store.letters.stream(Filters())]

        kept: Sequence[Kept] = self.with_store(work, url)
        return kept


def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those that a test makes, in an empty folder."""
    for name in os.environ:
        if name.startswith("REDRIVE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
