"""`redrive demo` without a terminal ends by itself, and well, and prints what the README shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.command_line import REDRIVE
from tests.services.pages import ROOT, blocks_in

LEFT_OUT = "…"
TIMEOUT = 280
"""Three nodes start one after another, on a machine that others use too."""


def played(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A demo that ended well, in this folder as its home."""
    ended = subprocess.run(
        [REDRIVE, "demo", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def lines_of(text: str) -> list[str]:
    """The lines in any order, without the time that each begins with, and the spaces that it ends
    with."""
    return sorted(re.sub(r"^ +\d+\.\ds ", "", line.rstrip()) for line in text.splitlines())


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_every_message_of_the_demo_ends_where_it_should(tmp_path: Path, nodes: str) -> None:
    ended = played(tmp_path, "--cluster", nodes, "--output", "json")
    told = json.loads(ended.stdout)
    assert told
    assert all(each["asExpected"] for each in told)
    assert ended.stderr.count("amqp://") == int(nodes), "the broker's URL names each of its nodes"
    assert "try 1: rejected" in ended.stderr
    assert "console at http://127.0.0.1:" in ended.stderr
    assert not list(tmp_path.iterdir()), "it touches nothing outside its own folder"


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    (shown,) = (text for kind, text in blocks_in(ROOT / "README.md") if kind == "text")
    happening, result = shown.split(f"\n{LEFT_OUT}\n")
    ended = played(tmp_path)
    # Before: where broker and console are, on other ports each time. After: the payment gateway.
    begins = ended.stderr.index("tiers ")
    told = ended.stderr[begins : ended.stderr.index("the payment gateway", begins)]
    assert lines_of(happening) == lines_of(told)
    assert lines_of(result) == lines_of(ended.stdout)
