"""Keeping a session with the broker alive: connect, work, lose it, wait, connect again.

A session is a coroutine function that opens its own connections, works on them and closes them.
When one is lost it raises; everything it had unsettled is void by then. Because the next session
starts from nothing, no owner can mistake an old delivery or an unconfirmed publish for a live one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from redrive.domain.backoff import Backoff
from redrive.errors import BrokerError

Session = Callable[[], Awaitable[None]]
OnLost = Callable[[BrokerError, timedelta], None]

_STEADY: Final = 30.0
"""Seconds after which a session counts as a success: the next loss is the first one again."""
_GRACE: Final = 9.0
"""Seconds that a session has to end by itself once it should stop; SIGTERM promises ten."""


async def supervise(
    session: Session,
    *,
    on_lost: OnLost,
    stopping: asyncio.Event,
    backoff: Backoff | None = None,
) -> None:
    """Run `session` until it returns by itself; after a `BrokerError`, wait and run it anew.

    `on_lost` hears the error and how long the wait will be. Once `stopping` is set, the session
    should drain and return; one that takes too long is cancelled. Any other exception is a defect
    and goes to the caller.
    """
    backoff = backoff or Backoff()
    loop = asyncio.get_running_loop()
    failures = 0
    while not stopping.is_set():
        began = loop.time()
        try:
            await run_until_stopped(session, stopping, grace=_GRACE)
            return
        except BrokerError as error:
            failures = 1 if loop.time() - began > _STEADY else failures + 1
            delay = backoff.delay(failures, random.random())  # noqa: S311  # spreads load, no secret
            on_lost(error, delay)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), delay.total_seconds())


async def run_until_stopped(session: Session, stopping: asyncio.Event, *, grace: float) -> bool:
    """Run `session` to its end; one that takes longer than `grace` seconds once `stopping` is set
    is cancelled. Whether it ended by itself."""
    running = asyncio.ensure_future(session())
    watching = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await asyncio.wait((running,), timeout=grace)
    finally:
        watching.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))
    if running.cancelled():
        return False
    running.result()
    return True
