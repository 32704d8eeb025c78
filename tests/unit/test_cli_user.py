"""`redrive user`: what is refused before anything is opened."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.services.commands import Redrive


@pytest.mark.parametrize("given", ["", "\n", "short\n", "x" * 1001])
def test_a_password_that_nobody_may_have_changes_nothing(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one comes of a variable that is not set: it would lock the last admin out."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    store = tmp_path / "redrive.db"
    redrive = Redrive(tmp_path, capsys, f'[store]\nurl = "sqlite:///{store}"\n')
    ran = redrive("user", "set", "ann", "--role", "admin")
    assert ran.code == 2
    assert "expected a password of 8 to 1000 characters" in ran.err
    assert not store.exists()
