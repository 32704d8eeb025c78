"""How log events look: for people on a terminal, as JSON lines everywhere else.

Logs go to stderr: stdout is for data. Passwords in URLs are masked in every value. A log that
cannot be written (its reader is gone, the disk is full) is given up in silence: it must never stop
the work, nor the way to end it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import orjson
import structlog

from redrive.domain.masking import mask_text


class _Unfailing(io.StringIO):
    """stderr, whatever has become of it."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logs() -> None:
    """Set up structlog for this process."""
    person = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if person
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if person else [structlog.processors.format_exc_info]),
            _mask,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(_Unfailing()),
        cache_logger_on_first_use=True,
    )


def _json(event: object, default: Callable[[Any], Any]) -> str:
    try:
        return orjson.dumps(event, default=default).decode()
    except TypeError:  # a name that was not UTF-8, a number beyond 64 bits
        return json.dumps(event, default=default)


def silence_logs() -> None:
    """Only errors: for commands that show what happens in another way."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(_Unfailing()),
    )


def _mask(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = mask_text(value)
    return event
