"""The app on a port: inside the event loop of the process, until it is told to stop.

Guarantees: a port that cannot be had is one clear error, before anything is served. Told to stop,
no new request is taken; streams end at once, requests that are under way have `_GRACE` to end.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from redrive.errors import CannotListen

_GRACE: Final = 6
_WAITING: Final = 512


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; `CannotListen` if it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        address = family[0]
        listening = socket.socket(address[0], socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address[4])
            listening.listen(_WAITING)
        except BaseException:
            listening.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(f"the server cannot listen on {_shown(host, port)}: {reason}") from None
    listening.setblocking(False)
    return listening


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach a socket."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def address_of(listening: socket.socket) -> str:
    """Where a socket can be called: `http://127.0.0.1:8025`."""
    host, port = listening.getsockname()[:2]
    return f"http://{_shown(host, port)}"


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Server(uvicorn.Server):
    """Without signal handlers: the process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """Serves an app on a socket."""

    def __init__(
        self, app: ASGIApp, listening: socket.socket, trusted_proxies: Sequence[str] = ()
    ) -> None:
        self._socket = listening
        _silence()
        self._server = _Server(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(trusted_proxies),
                forwarded_allow_ips=list(trusted_proxies),
                timeout_graceful_shutdown=_GRACE,
            )
        )

    async def run(self) -> None:
        """Serve until `stop`."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Ask for an orderly end."""
        self._server.should_exit = True


def _silence() -> None:
    """Our log is JSON lines. What uvicorn would say beside it is of requests that are no HTTP."""
    theirs = logging.getLogger("uvicorn")
    theirs.propagate = False
    if not theirs.handlers:
        theirs.addHandler(logging.NullHandler())
