"""How log events look: for people on a terminal, as JSON lines everywhere else.

Logs go to stderr: stdout is for data. Passwords in URLs are masked in every value.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from redrive.domain.masking import mask_text


def configure_logs() -> None:
    """Set up structlog for this process."""
    person = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if person else structlog.processors.JSONRenderer()
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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def silence_logs() -> None:
    """Only errors: for commands that show what happens in another way."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _mask(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = mask_text(value)
    return event
