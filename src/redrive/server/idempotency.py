"""Requests that can be sent twice: with an `Idempotency-Key`, the second gets the first's answer.

Guarantees: of all requests with one key of one caller, one is carried out. The same key with
another request is 422, while the first is under way 409. An answer is kept for a day. What failed,
or was given up as nobody waited for it, before its change began (see `audited`) may be sent again
with the same key. What failed or was cut off later, or whose answer could not be kept, stays under
way: nobody can tell what it did, and a second try could do it again. A token's keys are its own,
whatever its name; and who may not make a change hears nothing of one that was made.

A route whose changes may be repeated has `IdempotentRoute` as its class. One whose answer has a
secret in it says by `answer_again_with` what the second gets: secrets are not kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from redrive.domain.access import Role
from redrive.errors import RedriveError
from redrive.server.auditing import has_begun
from redrive.server.callers import ROLE_MARK, desk_of, require_role, sender_of
from redrive.server.long_reads import GIVEN_UP
from redrive.server.problems import MEDIA_TYPE, Problem, answer_problem, invalid, problem_of

log = structlog.get_logger()

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
        needed = (self.openapi_extra or {}).get(ROLE_MARK)

        async def once(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None or request.method not in _CHANGES:
                return await handle(request)
            if not (
                1 <= len(key) <= 200 and key.isascii() and key.isprintable() and " " not in key
            ):
                raise invalid(f"header.{HEADER}", "expected 1 to 200 visible ASCII characters")
            if needed is not None:  # before a word of what was done, and before the body is read
                require_role(request, Role(needed))
            return await _once(request, key, handle)

        return once


async def _once(
    request: Request, key: str, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    requests, sender = desk_of(request).store.requests, sender_of(request)
    known = await requests.begin(sender, key, await _digest(request))
    if known is not None and not known.same:
        raise Problem(
            422,
            "key-used",
            f"this {HEADER} was sent with another request",
            remedy="send a new key with a new request",
        )
    if known is not None:
        return _again(known.status, known.body)
    try:
        answer = await _answer(request, handle)
    except BaseException:
        await _let_go(request, key)
        raise
    if answer.status_code >= 500 or answer.status_code == GIVEN_UP:
        await _let_go(request, key)
        return answer
    kept = getattr(request.state, _KEPT, answer)
    try:
        await requests.end(sender, key, kept.status_code, bytes(kept.body))
    except RedriveError as error:  # what was done is done, and is answered so
        log.warning("server.answer_not_kept", key=key, error=str(error), remedy=error.remedy)
    return answer


def _again(status: int | None, body: bytes) -> Response:
    """What a request that came before is answered with when it comes again."""
    if status is None:
        raise Problem(
            409,
            "under-way",
            f"the first request with this {HEADER} has no answer: it still runs, or was cut off",
            remedy="look at what it did; with a new key it is done again",
        )
    media = MEDIA_TYPE if status >= 400 else "application/json"
    return Response(body or None, status, {REPEATED: "true"}, media_type=media)


async def _let_go(request: Request, key: str) -> None:
    """Let a request be sent again if its change did not begin."""
    if has_begun(request):
        return
    try:
        await desk_of(request).store.requests.drop(sender_of(request), key)
    except RedriveError as error:
        log.warning("server.key_not_dropped", key=key, error=str(error), remedy=error.remedy)


async def _answer(
    request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """The answer; also where it is that the request is refused."""
    try:
        return await handle(request)
    except Problem as problem:
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
