"""The SDK's log: where it goes, and that a line which cannot be written ends nothing."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from redrive.consumer.logs import Log

SAYS = """
import sys, structlog
from redrive.consumer.logs import log
{set_up}
log.info("consumer.ready", queue="\\u2603")
try:
    raise ValueError("no")
except ValueError:
    log.exception("consumer.defect")
print("goes on")
"""


def said(set_up: str = "", stderr: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SAYS.format(set_up=set_up)],
        check=False,
        timeout=60,
        text=True,
        env={"PYTHONIOENCODING": "ascii"},
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def test_lines_go_to_stderr_where_the_program_has_not_configured_structlog() -> None:
    ended = said()
    assert ended.stdout == "goes on\n"
    for each in ("consumer.ready", "\\u2603", "consumer.defect", "ValueError: no"):
        assert each in ended.stderr


def test_lines_go_where_the_program_has_configured_structlog_to() -> None:
    ended = said("structlog.configure(processors=[lambda *of: str(of[2]['event'])])")
    assert ended.stdout == "consumer.ready\nconsumer.defect\ngoes on\n"
    assert not ended.stderr


def test_what_cannot_be_written_in_the_programs_charset_ends_nothing_and_is_told_once() -> None:
    ended = said("structlog.configure()")
    assert ended.returncode == 0
    assert ended.stdout.endswith("goes on\n")
    assert ended.stderr.count("could not be logged") == 1


def test_a_full_disk_ends_nothing() -> None:
    with Path("/dev/full").open("w") as full:
        ended = said(stderr=full)
    assert ended.stdout == "goes on\n"


def test_a_reader_that_is_gone_ends_nothing() -> None:
    set_up = (
        "import os; ends = os.pipe(); os.dup2(ends[1], 2); os.close(ends[1]); os.close(ends[0])"
    )
    ended = said(set_up)
    assert ended.stdout == "goes on\n"


def test_a_processor_that_raises_ends_nothing_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("a defect of the program's")

    structlog.configure(processors=[broken])
    monkeypatch.setattr(sys, "stderr", stderr := io.StringIO())
    log = Log()
    for say in (log.info, log.warning, log.error, log.exception):
        say("consumer.ready", queue="q")
    assert stderr.getvalue().count("a defect of the program's") == 1
