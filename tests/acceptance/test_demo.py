"""`redrive demo` without a terminal ends by itself, and well."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.acceptance.command_line import REDRIVE


def test_every_message_of_the_demo_ends_where_it_should(tmp_path: Path) -> None:
    ended = subprocess.run(
        [REDRIVE, "demo", "--output", "json"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(ended.stdout)
    assert told
    assert all(each["asExpected"] for each in told)
    assert "try 1: rejected" in ended.stderr
    assert "console at http://127.0.0.1:" in ended.stderr
    assert not list(tmp_path.iterdir()), "it touches nothing outside its own folder"
