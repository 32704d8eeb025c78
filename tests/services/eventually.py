"""Waiting on a condition with a deadline, in place of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

SHORTEST, LONGEST = 0.02, 0.2
LONGEST_AFTER_A_SLOW_LOOK = 1.0
# Only a test that fails waits this long. A machine that others use too stalls for half a minute,
# and what a broker tells by its statistics comes late then.
DEADLINE = 90.0


def eventually(condition: Callable[[], T], *, within: float = DEADLINE, what: str = "") -> T:
    """Call until the answer is true and return it; AssertionError after `within` seconds."""
    began = time.monotonic()
    while True:
        looks = time.monotonic()
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > began + within:
            raise AssertionError(_missed(condition, within, what, answer))
        time.sleep(_pause(began, looks))


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
    began = time.monotonic()
    while True:
        looks = time.monotonic()
        outcome = condition()
        answer = await outcome if isinstance(outcome, Awaitable) else outcome
        if answer:
            return answer
        if time.monotonic() > began + within:
            raise AssertionError(_missed(condition, within, what, answer))
        await asyncio.sleep(_pause(began, looks))


def _pause(began: float, looked: float) -> float:
    """Seconds until the next look: what others wait for must not want for the CPU that looks take.

    The longer a wait has been, the less its end needs to be seen at once; and a look that takes
    long, such as a command, is not repeated at once.
    """
    now = time.monotonic()
    after_any_look = min(max(SHORTEST, (now - began) / 10), LONGEST)
    return max(after_any_look, min(now - looked, LONGEST_AFTER_A_SLOW_LOOK))


def _missed(condition: object, within: float, what: str, answer: object) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"not within {within:g} s: {name} (the last answer was {answer!r})"
