"""Tells the service manager how the process does, by the protocol of systemd's `Type=notify`.

`READY=1` once every role works, `STOPPING=1` with the first signal, `WATCHDOG=1` twice in the time
that `WATCHDOG_USEC` gives, from the event loop: a loop that hangs is noticed. Where `NOTIFY_SOCKET`
is not set, nothing is told. A manager that cannot be told is logged once and changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

log = structlog.get_logger()


class ServiceManager:
    """Who started this process and wants to know."""

    def __init__(self, address: str | None, watchdog: timedelta | None = None) -> None:
        self.address = address
        self.watchdog = watchdog
        self._unheard = False

    @classmethod
    def by(cls, environ: Mapping[str, str]) -> ServiceManager:
        """The one that the environment names; a watchdog that waits for another process is not
        ours."""
        address = environ.get("NOTIFY_SOCKET") or None
        microseconds = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if address is None or not ours or not microseconds.isdecimal() or not int(microseconds):
            return cls(address)
        return cls(address, timedelta(microseconds=int(microseconds)))

    def ready(self) -> None:
        self._tell("READY=1\nSTATUS=every role works")

    def waiting(self, what: str) -> None:
        """What `systemctl status` shows until it is ready."""
        self._tell(f"STATUS=waiting for {what}")

    def stopping(self) -> None:
        self._tell("STOPPING=1\nSTATUS=draining")

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While the block runs, say again and again that the loop turns, if anybody watches."""
        telling = asyncio.create_task(self._keep_telling())
        try:
            yield
        finally:
            telling.cancel()

    async def _keep_telling(self) -> None:
        while self.address is not None and self.watchdog is not None:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog.total_seconds() / 2)

    def _tell(self, text: str) -> None:
        if self.address is None:
            return
        # An @ stands for the zero byte with which names begin that are in no folder.
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
                to.setblocking(False)
                to.sendto(text.encode(), name)
        except OSError as error:
            if not self._unheard:
                self._unheard = True
                log.warning("run.manager_not_told", error=error.strerror or str(error))
