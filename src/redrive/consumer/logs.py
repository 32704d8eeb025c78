"""The SDK's log, which decides about no message.

A line that cannot be written (its reader is gone, the disk is full, a processor of the program's
own raises) is given up, whatever the logger raised; the first of a process is told on stderr.

Where a program has configured structlog, lines go by its configuration. Elsewhere they go to
stderr: stdout is the program's.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import structlog


class _Stderr:
    """Lines to what stderr is now; one write each, or those of threads would mix."""

    def msg(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = exception = msg


class Log:
    """Writes events, or does not; it never raises."""

    def __init__(self) -> None:
        self._program = structlog.get_logger()
        self._own: Any = None
        self._told = False

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """With the traceback of the exception that is being handled."""
        self._write("exception", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        try:
            getattr(self._logger(), level)(event, **fields)
        except Exception as error:  # noqa: BLE001  (as said above: whatever it is)
            self._tell(event, error)

    def _logger(self) -> Any:
        if structlog.is_configured():
            return self._program
        self._own = self._own or _to_stderr()
        return self._own

    def _tell(self, event: str, error: Exception) -> None:
        if self._told:
            return
        self._told = True
        with contextlib.suppress(Exception):
            _Stderr().msg(
                f"redrive: {event} could not be logged, nor what else meets this: {error!r}"
            )


def _to_stderr() -> Any:
    """As structlog looks by itself, without the variables of every frame."""
    colours = "NO_COLOR" not in os.environ and sys.stderr is not None and sys.stderr.isatty()
    return structlog.wrap_logger(
        _Stderr(),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.dev.set_exc_info,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=colours, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )


log = Log()
