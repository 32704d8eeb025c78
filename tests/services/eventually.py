"""Waiting on a condition with a deadline, in place of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

STEP = 0.02
# Only a test that fails waits this long. A machine that others use too stalls for half a minute,
# and what a broker tells by its statistics comes late then.
DEADLINE = 90.0


def eventually(condition: Callable[[], T], *, within: float = DEADLINE, what: str = "") -> T:
    """Call until the answer is true and return it; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(_missed(condition, within, what, answer))
        time.sleep(STEP)


@overload
async def eventually_async(
    condition: Callable[[], Awaitable[T]], *, within: float = ..., what: str = ...
) -> T: ...
@overload
async def eventually_async(
    condition: Callable[[], T], *, within: float = ..., what: str = ...
) -> T: ...
async def eventually_async(
    condition: Callable[[], Any], *, within: float = DEADLINE, what: str = ""
) -> Any:
    """The same under an event loop; the condition may be a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        outcome = condition()
        answer = await outcome if isinstance(outcome, Awaitable) else outcome
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(_missed(condition, within, what, answer))
        await asyncio.sleep(STEP)


def _missed(condition: object, within: float, what: str, answer: object) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"not within {within:g} s: {name} (the last answer was {answer!r})"
