"""How log events look: for people on a terminal, as JSON lines everywhere else.

Logs go to stderr: stdout is for data. Passwords in URLs are masked in every value, also in lists,
tables and tracebacks; a traceback never shows what variables held. A log that cannot be written
(its reader is gone, the disk is full) is given up in silence: it must never stop the work, nor the
way to end it. What libraries log by themselves becomes an event like our own.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import orjson
import structlog

from redrive.cli.rendering import one_line
from redrive.domain.masking import mask_text

_OF_LOST_CONNECTIONS: Final = "sqlalchemy.pool"
"""Its errors are of connections that are gone already; whoever used one hears of that itself."""


class _Stderr:
    """Lines to stderr, whatever has become of it; one write each, because there are many."""

    def msg(self, line: str) -> None:
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = exception = msg


class _Libraries(logging.Handler):
    """What libraries log by themselves: left to Python, it would be lines that are no JSON, with
    tracebacks and unmasked."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  (its arguments do not fit: that must not end its work)
            text = str(record.msg)
        log = structlog.get_logger().bind(library=record.name, text=text)
        problem = record.exc_info[1] if record.exc_info else None
        if problem is not None:
            log = log.bind(error=f"{type(problem).__name__}: {problem}")
        if record.levelno < logging.ERROR or record.name.startswith(_OF_LOST_CONNECTIONS):
            log.warning("library.said")
        else:
            log.error("library.said", exc_info=problem)


def _to_stderr(*_names: object) -> _Stderr:
    return _Stderr()


def configure_logs() -> None:
    """Set up structlog for this process."""
    _configure(logging.INFO)
    _hear_libraries()


def silence_logs() -> None:
    """Only errors: for commands that show what happens in another way."""
    _configure(logging.ERROR)


def _configure(least: int) -> None:
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
            # Not left to the renderer for people, which would show the variables of every frame.
            structlog.processors.format_exc_info,
            *([_mask, _harmless] if person else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=_to_stderr,
        cache_logger_on_first_use=True,
    )


def _hear_libraries() -> None:
    root = logging.getLogger()
    if not any(isinstance(handler, _Libraries) for handler in root.handlers):
        root.addHandler(_Libraries(logging.WARNING))


def _json(event: dict[str, Any], default: Callable[[Any], Any]) -> str:
    line = _dumped(event, default)
    # All that is masked holds one of these, and JSON leaves both as they are: one look at the line
    # instead of one at each of its values.
    if "://" in line or "=" in line:
        return _dumped(_mask(None, "", event), default)
    return line


def _dumped(event: object, default: Callable[[Any], Any]) -> str:
    try:
        return orjson.dumps(event, default=default).decode()
    except TypeError:  # a name that was not UTF-8, a number beyond 64 bits
        return json.dumps(event, default=default)


def _harmless(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Texts of messages are shown on a terminal, and never obeyed by it."""
    for key, value in event.items():
        if key == "exception":
            event[key] = "\n".join(map(one_line, str(value).splitlines()))
        elif isinstance(value, str):
            event[key] = one_line(value)
    return event


def _mask(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        event[key] = _masked(value)
    return event


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(each) for each in value]
    if isinstance(value, dict):
        return {key: _masked(each) for key, each in value.items()}
    return value
