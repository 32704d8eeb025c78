"""The `redrive` command, run in this process against a test's broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive.cli import main


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Redrive:
    """Runs `redrive` with a settings file of its own; `settings` is TOML, as a user writes it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], settings: str) -> None:
        self._folder = folder
        self._capsys = capsys
        self.settings = settings

    def __call__(self, *arguments: str, settings: str | None = None) -> Ran:
        file = self._folder / "redrive.toml"
        file.write_text(self.settings if settings is None else settings)
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--config", str(file)])
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        assert "Traceback" not in err
        return Ran(ended.value.code, out, err)
