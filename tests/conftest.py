"""The fixtures that every suite may use; most live in tests/services/plugin.py."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

pytest_plugins = ["tests.services.plugin"]

# A busy machine is slow, not wrong: pytest's own timeout is what catches a hang.
settings.register_profile("redrive", deadline=None)
settings.load_profile("redrive")

# A shell without job control has what it starts in the background ignore Ctrl-C, and all that this
# starts in turn: a command that a test interrupts would go on for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# structlog's own set-up shows the variables of every frame: a minute for an error deep in a server.
_PLAIN = [
    structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    if isinstance(each, structlog.dev.ConsoleRenderer)
    else each
    for each in structlog.get_config()["processors"]
]
structlog.configure(processors=_PLAIN)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay until the end of the run: nobody need look for garbage among them."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture(autouse=True)
def _logs_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that is run in the test's own process sets the logs up for itself only.

    A logger that was used while caching was on keeps that set-up for ever, and would be deaf to
    whoever captures the logs of a later test.
    """
    configure = structlog.configure

    def without_caching(**options: Any) -> None:
        configure(**{**options, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", without_caching)
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    structlog.reset_defaults()
    configure(processors=_PLAIN)
