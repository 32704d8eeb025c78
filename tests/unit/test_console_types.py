"""The console's types of the API are those of the API."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TYPES = ROOT / "console" / "src" / "api" / "schema.d.ts"


def test_the_types_are_generated_from_the_openapi_document_of_this_server(tmp_path: Path) -> None:
    fresh = tmp_path / "schema.d.ts"
    subprocess.run(["scripts/console", "types", str(fresh)], cwd=ROOT, check=True)
    assert fresh.read_text() == TYPES.read_text(), "run `scripts/console types`"


def test_the_lock_of_the_console_names_no_package_host() -> None:
    lock = (ROOT / "console" / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "registry" not in lock
