"""What every answer carries, and how large a request may be.

Security headers are on every answer: no sniffing of types, no frames, no referrer, and a strict
content security policy, under which a page loads and runs only what comes from here. A request
larger than `MOST_BYTES` is answered 413 as soon as that is known, one of somebody who is not known
already at `MOST_BYTES_OF_NOBODY`: what is read of it is parsed before anybody asks for a password.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.server.problems import Problem, answer_problem, unforeseen

MOST_BYTES: Final = 64 * 2**20
MOST_BYTES_OF_NOBODY: Final = 16 * 2**10
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_NOT_KEPT: Final = "no-store"


class Protection:
    """Middleware: the outermost, so that no answer is without its headers, and no error without
    an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def protected(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", _NOT_KEPT)
            await send(message)

        if announced(scope) > MOST_BYTES:
            await answer_problem(too_large(MOST_BYTES))(scope, receive, protected)
            return
        try:
            await self._app(scope, Measured(receive, MOST_BYTES), protected)
        except Exception as error:
            answer = unforeseen(error)
            if begun:
                raise
            await answer(scope, receive, protected)


def announced(scope: Scope) -> int:
    """How large a request says that it is; 0 if it does not."""
    text = Headers(scope=scope).get("Content-Length", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def too_large(most: int) -> Problem:
    return Problem(413, "too-large", f"expected at most {most:,} bytes")


class Measured:
    """A request's body, counted as it comes in: not every one says before how large it is."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most:
            # Not a problem of ours: whoever reads the body lets only this one through.
            raise HTTPException(413, str(too_large(self._most)))
        return message
