"""Errors as the API tells them: one shape, RFC 9457, with what to do about it.

Guarantees: whatever goes wrong, the answer is `application/problem+json` with `type`, `title`,
`status`, `detail` and `remedy`, and neither a traceback nor a password in it. What the caller did
wrong is 4xx; 5xx is for a broker or store that is away, and for defects. Which host or file that is
learns only who is logged in.
"""

from __future__ import annotations

import http
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from redrive.domain.masking import mask_text
from redrive.errors import (
    BrokerError,
    CountChanged,
    CursorRefused,
    EditRefused,
    LastOneRefused,
    NotedMeanwhile,
    OrderRefused,
    PolicyRefused,
    RedriveError,
    StoreError,
    StoreRefused,
    TransitionRefused,
)
from redrive.server.answers import render
from redrive.server.faults import fault, faults_of

log = structlog.get_logger()

_KIND: Final = "urn:redrive:problem:"
MEDIA_TYPE: Final = "application/problem+json"
_STATUS: Final[tuple[tuple[type[RedriveError], int, str], ...]] = (
    (CountChanged, 409, "count-changed"),
    (NotedMeanwhile, 409, "noted-meanwhile"),
    (LastOneRefused, 409, "refused"),
    (OrderRefused, 409, "refused"),
    (TransitionRefused, 409, "refused"),
    (CursorRefused, 422, "invalid"),
    (EditRefused, 422, "edit-refused"),
    (PolicyRefused, 422, "invalid"),
    (StoreRefused, 422, "invalid"),
    (StoreError, 503, "store-unavailable"),
    (BrokerError, 503, "broker-unavailable"),
)


class Problem(Exception):
    """Ends a request with a problem."""

    def __init__(
        self, status: int, kind: str, detail: str, *, remedy: str = "", **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.remedy = remedy
        self.more = more
        self.headers: Mapping[str, str] = {}


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(description="Which part of the request: `query.limit`, `body.reason`.")
    name: str = Field(description="What people call it, as in the console: `Max retries`.")
    what: str = Field(description="What was expected of it, in words for people.")


class ProblemDocument(BaseModel):
    """What is wrong, and what to do (RFC 9457)."""

    model_config = ConfigDict(title="Problem")

    type: str = Field(description="Names the kind of problem; it does not change.")
    title: str
    status: int
    detail: str
    remedy: str = Field(description="What to do about it; may be empty.")
    errors: list[Fault] = Field(default=[], description="Of a request that is not valid.")
    letters: int | None = Field(default=None, description="How many match now: `count-changed`.")
    edit: int | None = Field(
        default=None, description="The edit that stands, 0 for the original: `edited-meanwhile`."
    )
    diff: list[str] = Field(
        default=[], description="What changed since the edit that was named: `edited-meanwhile`."
    )


def answer_problem(problem: Problem) -> Response:
    """The answer that a problem is."""
    document = {
        "type": _KIND + problem.kind,
        "title": http.HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": mask_text(problem.detail),
        "remedy": problem.remedy,
        **problem.more,
    }
    return Response(render(document), problem.status, dict(problem.headers), media_type=MEDIA_TYPE)


def problem_of(error: RedriveError) -> Problem:
    """An error of Redrive's as the API tells it."""
    more = {"letters": error.found} if isinstance(error, CountChanged) else {}
    for kind, status, name in _STATUS:
        if isinstance(error, kind):
            return Problem(status, name, str(error), remedy=error.remedy, **more)
    return Problem(500, "failed", str(error), remedy=error.remedy)


def status_of(error: Exception) -> int:
    """The status that an error is answered with."""
    if isinstance(error, Problem):
        return error.status
    return problem_of(error).status if isinstance(error, RedriveError) else 500


def problem_for_anybody(error: RedriveError) -> Problem:
    """The same for who is not logged in: what is wrong here is in the log, and not for them."""
    problem = problem_of(error)
    if problem.status < 500:
        return problem
    log.warning("server.failed", error=str(error), remedy=error.remedy)
    return Problem(
        problem.status,
        problem.kind,
        "the server cannot do its work now",
        remedy="try again later; the server's log says what is wrong",
    )


def not_found(what: str) -> Problem:
    """There is no such thing."""
    return Problem(404, "not-found", f"there is no {what}, or no longer")


def invalid(where: str, what: str) -> Problem:
    """One thing is wrong with a request."""
    return _of_faults([fault(where.split("."), what)])


def tell_problems(app: FastAPI, is_known: Callable[[Request], bool]) -> None:
    """Have every error of an app answered so. `is_known`: whether the caller is somebody."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, RedriveError)
        if not is_known(request):
            return answer_problem(problem_for_anybody(error))
        problem = problem_of(error)
        if problem.status >= 500:
            log.warning("server.failed", error=str(error), remedy=error.remedy)
        return answer_problem(problem)

    async def told(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return answer_problem(error)

    async def not_valid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer_problem(_of_faults(faults_of(error.errors())))

    async def of_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        known = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}
        problem = Problem(
            error.status_code, known.get(error.status_code, "invalid"), str(error.detail)
        )
        problem.headers = error.headers or {}
        return answer_problem(problem)

    app.add_exception_handler(RedriveError, ours)
    app.add_exception_handler(Problem, told)
    app.add_exception_handler(RequestValidationError, not_valid)
    app.add_exception_handler(HTTPException, of_http)


def unforeseen(error: Exception) -> Response:
    """A defect of ours: in the log with all there is, in the answer without."""
    log.error("server.defect", error=f"{type(error).__name__}: {error}", exc_info=error)
    return answer_problem(
        Problem(
            500,
            "defect",
            "something unforeseen happened",
            remedy="please report it; the log has more",
        )
    )


def _of_faults(faults: Sequence[dict[str, str]]) -> Problem:
    first = f"{faults[0]['name']}: {faults[0]['what']}" if faults else "it cannot be read"
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return Problem(422, "invalid", first + more, errors=list(faults))
