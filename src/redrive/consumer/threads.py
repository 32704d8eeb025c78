"""Running a sync function in a thread of its own, which nobody has to wait for at the end.

A pool's threads are joined when the process ends, so one handler that hangs would keep a consumer
alive for ever after SIGTERM. These threads are daemons. How many run at a time is bounded by who
asks: a worker waits for its handler.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in a thread, with this task's context, and wait for its answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(settle: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            settle(value)

    def call() -> None:
        settle: Callable[[Any], None] = answer.set_result
        try:
            value = context.run(function, *arguments)
        except (StopIteration, GeneratorExit) as error:  # a future does not take it
            told = RuntimeError(f"{type(error).__name__}: {error}")
            settle, value = answer.set_exception, told
        except BaseException as error:  # it is the caller's  # noqa: BLE001
            settle, value = answer.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, settle, value)

    threading.Thread(target=call, name="redrive handler", daemon=True).start()
    return await answer
