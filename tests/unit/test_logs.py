"""Logs: masked, and never in the way."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import structlog

from redrive.cli.logs import _Libraries, configure_logs, silence_logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_password_in_any_value_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs()
    structlog.get_logger().warning("lost", error="no answer from amqp://app:s3cret@mq/")
    event = json.loads(written.getvalue())
    assert event["error"] == "no answer from amqp://app:****@mq/"
    assert (event["event"], event["level"]) == ("lost", "warning")


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("token=s3cret", "token=****"),
        ("caf\udce9 amqp://app:s3cret@mq/", "caf\udce9 amqp://app:****@mq/"),
        ('é\n"amqp://app:s3cret@mq/', 'é\n"amqp://app:****@mq/'),
        ("nothing: to hide", "nothing: to hide"),
    ],
)
def test_what_is_masked_does_not_depend_on_how_a_line_is_written(
    monkeypatch: pytest.MonkeyPatch, value: str, masked: str
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs()
    structlog.get_logger().warning("lost", error=value, tries=3)
    event = json.loads(written.getvalue())
    assert (event["error"], event["tries"], event["level"]) == (masked, 3, "warning")


def lost_connection(logger: str) -> None:
    """As SQLAlchemy says it when PostgreSQL was killed under a connection of the pool."""
    url = "postgresql://app:s3cret@db/letters"
    problem = ConnectionError(f"{url}: the server closed the connection unexpectedly")
    logging.getLogger(logger).error("Exception during reset of %s", url, exc_info=problem)


def test_what_a_library_logs_is_an_event_like_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs()
    configure_logs()  # which does not make it two
    lost_connection("sqlalchemy.pool.impl.AsyncAdaptedQueuePool")
    event = json.loads(written.getvalue())
    assert (event["event"], event["level"]) == ("library.said", "warning")
    assert event["text"] == "Exception during reset of postgresql://app:****@db/letters"
    assert event["error"].startswith(
        "ConnectionError: postgresql://app:****@db/letters: the server"
    )
    assert "exception" not in event


def test_an_error_of_a_library_that_nobody_else_hears_of_keeps_its_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs()
    lost_connection("asyncio")
    event = json.loads(written.getvalue())
    assert event["level"] == "error"
    assert event["exception"].startswith("ConnectionError: ")
    assert "s3cret" not in written.getvalue()


@pytest.mark.parametrize("command", ["run", "letters list"])
def test_a_command_shows_nothing_of_what_libraries_log(command: str) -> None:
    script = (
        "import logging, sys\n"
        "from redrive.cli import _run\n"
        "_run(sys.argv[1].split() + ['--config', '/nowhere'])\n"
        "logging.getLogger('sqlalchemy.pool').error('Traceback of a library')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, command], capture_output=True, text=True, check=True
    )
    assert "library" not in done.stderr
    assert done.stderr.startswith("redrive: ")


@pytest.mark.parametrize("value", ["caf\udce9", 1 << 70, {"a": b"bytes"}])
def test_whatever_the_value_the_line_is_written(
    monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs()
    structlog.get_logger().warning("odd", value=value)
    assert json.loads(written.getvalue())["event"] == "odd"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", ["\x1b]0;PWNED\x07", "a\u202eb", "\x9b31m", "a\nb"])
def test_a_terminal_does_not_obey_what_a_message_says(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    written = _Terminal()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs()
    structlog.get_logger().info("letter.collected", error_type=text)
    line = written.getvalue().rstrip("\n").replace("\x1b[", "")  # the colours are ours
    assert line.isprintable(), line


@pytest.mark.parametrize("set_up", [configure_logs, silence_logs])
@pytest.mark.parametrize("stderr", [io.StringIO, _Terminal])
def test_a_traceback_is_masked_and_shows_no_variables(
    monkeypatch: pytest.MonkeyPatch, stderr: type[io.StringIO], set_up: Callable[[], None]
) -> None:
    written = stderr()
    monkeypatch.setattr(sys, "stderr", written)
    set_up()
    parts = ("s3", "cret")  # a variable's value, which stands nowhere in the code
    password = "".join(parts)

    def fail() -> None:
        raise ValueError(f"cannot use amqp://app:{password}@mq/\n\x1b]0;PWNED\x07")

    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("defect", tried=[{"url": f"amqp://app:{password}@mq/"}])
    text = written.getvalue()
    assert "amqp://app:****@mq/" in text
    assert "ValueError" in text
    assert "test_a_traceback_is_masked" in text
    assert "s3cret" not in text
    assert "\x1b]" not in text


def test_a_library_whose_words_do_not_fit_its_arguments_is_heard_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs()
    warning = logging.WARNING  # by hand: pytest listens too, and minds
    said = logging.LogRecord("careless", warning, "its.py", 1, "%d of them", ("many",), None)
    (listens,) = [each for each in logging.getLogger().handlers if isinstance(each, _Libraries)]
    listens.handle(said)
    assert json.loads(written.getvalue())["text"] == "%d of them"


LOGS_INTO_NOTHING = """
import structlog
from redrive.cli.logs import configure_logs, silence_logs
configure_logs()
for _ in range(3):
    structlog.get_logger().warning("lost")
print("went on")
"""


@pytest.mark.parametrize("nothing", ["a reader that is gone", "a full disk"])
def test_a_log_that_cannot_be_written_does_not_stop_the_work(nothing: str) -> None:
    if nothing == "a full disk":
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, target = os.pipe()
        os.close(reader)
    with os.fdopen(target, "wb") as stderr:
        run = subprocess.run(
            [sys.executable, "-c", LOGS_INTO_NOTHING],
            stdout=subprocess.PIPE,
            stderr=stderr,
            check=False,
            text=True,
        )
    assert run.stdout == "went on\n"
