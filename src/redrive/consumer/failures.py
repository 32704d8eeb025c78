"""What a handler's exception says: error type, reason and stack, for the headers of its message.

Whatever was raised makes a failure, of a length that leaves room for the rest, also where its own
text cannot be had. The error type does not depend on how the program was started: groups and rules
go by it.
"""

from __future__ import annotations

import sys
import traceback
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final

from redrive.consumer.signals import DeadLetter, RetryAfter
from redrive.domain import handling
from redrive.domain.durations import format_duration
from redrive.domain.failure import Failure

_MAX_STACK: Final = 6_000
_MAX_REASON: Final = 3_000
"""Characters. What Redrive adds to a message has 16 KiB, and neither an error that quotes a whole
document nor a deep stack may take the room of the deaths. Both ends are kept."""
_CAUSE: Final = BaseException.__dict__["__cause__"].__get__
_CONTEXT: Final = BaseException.__dict__["__context__"].__get__
_EXCEPTIONS: Final = BaseExceptionGroup.__dict__["exceptions"].__get__


class TimedOut(Exception):
    """A handler took too long."""

    def __init__(self, timeout: timedelta | None) -> None:
        super().__init__(f"not done within {format_duration(timeout or timedelta())}")


def failure_of(problem: BaseException) -> Failure:
    """Error type, reason and stack of what a handler raised."""
    if isinstance(problem, TimedOut):
        return Failure(error_type=handling.TIMEOUT, reason=str(problem))
    if isinstance(problem, (RetryAfter, DeadLetter)):
        return _failure_by_request(problem)
    said: object = problem
    if isinstance(problem, SystemExit):  # its text would be a number
        said = f"the handler called sys.exit({problem.code!r}), which ends no consumer"
    return Failure(error_type=_name(type(problem)), reason=_in_words(said), stack=stack_of(problem))


def _failure_by_request(problem: RetryAfter | DeadLetter) -> Failure:
    """What the handler said, in whatever type; of an exception, what that says."""
    given, kind = problem.reason, problem.error_type
    error = given if isinstance(given, BaseException) else problem.__cause__
    if kind is None:
        kind = type(given if isinstance(given, BaseException) else problem)
    return Failure(
        error_type=_name(kind) if isinstance(kind, type) else _in_words(kind),
        reason=_in_words(error or "no reason was given" if given in (None, "") else given),
        stack=None if error is None else stack_of(error),
    )


def _in_words(said: object) -> str:
    """What somebody said, of a length that leaves room for the rest."""
    text = said.decode("utf-8", "backslashreplace") if isinstance(said, bytes) else _text(said)
    return _cut(text or _name(type(said)), _MAX_REASON)


def _name(kind: type) -> str:
    if kind is DeadLetter:
        return kind.__name__
    module = _main_module() if kind.__module__ == "__main__" else kind.__module__
    return kind.__qualname__ if module in ("", "builtins") else f"{module}.{kind.__qualname__}"


@cache
def _main_module() -> str:
    """What the module that was started is called when it is imported: groups and rules go by the
    error type, which must not depend on how a service is started. Empty if nobody can import it."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if not isinstance(name, str):  # not by python -m
        file = getattr(main, "__file__", None)
        name = Path(file).stem if isinstance(file, str) else ""
    return "" if name == "__main__" else name


def _text(said: object) -> str:
    try:
        return str(said)
    except BaseException:  # it may be anybody's, and broken  # noqa: BLE001
        return ""


def stack_of(problem: BaseException) -> str:
    """The traceback from the handler on, without the frames of this package above it."""
    trace = _from_the_handler(problem.__traceback__)
    try:
        text = "".join(traceback.format_exception(type(problem), problem, trace))
    except Exception:  # as above  # noqa: BLE001
        return ""
    return _cut(text, _MAX_STACK)


def forget_frames(problem: BaseException) -> None:
    """Let go of what was running when it was raised, its causes included. The frames hold the
    message: of an exception that a program keeps, and raises again and again, the traceback would
    grow with each, and hold them all."""
    left, seen = [problem], set()
    while left:
        error = left.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        # Not as its class has it, which may forbid that it is changed, or call anything its cause.
        BaseException.with_traceback(error, None)
        left += [each for each in (_CAUSE(error), _CONTEXT(error)) if each is not None]
        if issubclass(type(error), BaseExceptionGroup):
            left += _EXCEPTIONS(error)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n… cut here …\n{text[-most // 2 :]}"


def _from_the_handler(trace: TracebackType | None) -> TracebackType | None:
    inner = trace
    while inner is not None and inner.tb_frame.f_globals.get("__package__") == __package__:
        inner = inner.tb_next
    return inner or trace
