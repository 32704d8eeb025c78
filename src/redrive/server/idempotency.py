"""Requests that can be sent twice: with an `Idempotency-Key`, the second gets the first's answer.

Guarantees: of all requests with one key of one caller, one is carried out. The same key with
another request is 422, while the first is under way 409. An answer is kept for a day. What was not
carried out at all (5xx, or refused before it began) may be sent again with the same key.

A route whose changes may be repeated has `IdempotentRoute` as its class. One whose answer has a
secret in it says by `answer_again_with` what the second gets: secrets are not kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from redrive.errors import RedriveError
from redrive.server.callers import caller_of, desk_of
from redrive.server.problems import MEDIA_TYPE, Problem, answer_problem, invalid, problem_of

HEADER: Final = "Idempotency-Key"
REPEATED: Final = "Idempotency-Replayed"
PARAMETER: Final[dict[str, Any]] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "The same key with the same request gets the same answer, and is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}
_CHANGES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_KEPT: Final = "answer_again_with"


def answer_again_with(request: Request, problem: Problem) -> None:
    """Have who sends this request again told this, and not what is answered now."""
    setattr(request.state, _KEPT, answer_problem(problem))


class IdempotentRoute(APIRoute):
    """A route whose requests may carry a key."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        if _CHANGES.intersection(more.get("methods") or ()):
            extra = dict(more.get("openapi_extra") or {})
            extra["parameters"] = [*extra.get("parameters", ()), PARAMETER]
            more["openapi_extra"] = extra
        super().__init__(path, endpoint, **more)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def once(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None or request.method not in _CHANGES:
                return await handle(request)
            if not (
                1 <= len(key) <= 200 and key.isascii() and key.isprintable() and " " not in key
            ):
                raise invalid(f"header.{HEADER}", "expected 1 to 200 visible ASCII characters")
            return await _once(request, key, handle)

        return once


async def _once(
    request: Request, key: str, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    requests, actor = desk_of(request).store.requests, caller_of(request).actor
    known = await requests.begin(actor, key, await _digest(request))
    if known is not None:
        if not known.same:
            raise Problem(
                422,
                "key-used",
                f"this {HEADER} was sent with another request",
                remedy="send a new key with a new request",
            )
        if known.status is None:
            raise Problem(
                409,
                "under-way",
                f"the first request with this {HEADER} has no answer yet",
                remedy="wait for it, and look at what it did",
            )
        media = MEDIA_TYPE if known.status >= 400 else "application/json"
        return Response(known.body or None, known.status, {REPEATED: "true"}, media_type=media)
    done = False
    try:
        answer = await _answer(request, handle)
        if answer.status_code < 500:
            kept = getattr(request.state, _KEPT, answer)
            await requests.end(actor, key, kept.status_code, bytes(kept.body))
            done = True
        return answer
    finally:
        if not done:
            await requests.drop(actor, key)


async def _answer(
    request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """The answer; also where it is that the request is refused."""
    try:
        return await handle(request)
    except Problem as problem:
        if problem.status in (401, 403):
            raise  # another day, with another role, the answer is another
        return answer_problem(problem)
    except RequestValidationError:
        raise
    except RedriveError as error:
        return answer_problem(problem_of(error))


async def _digest(request: Request) -> bytes:
    parts = (request.method, request.url.path, request.url.query)
    whole = hashlib.sha256("\n".join(parts).encode())
    whole.update(b"\n" + await request.body())
    return whole.digest()
