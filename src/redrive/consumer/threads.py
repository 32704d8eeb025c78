"""The threads that a sync handler runs in, which nobody has to wait for at the end.

A pool's threads are joined when the process ends, so one handler that hangs would keep a consumer
alive for ever after SIGTERM. These threads are daemons.

A thread cannot be ended: after a timeout, or the loss of the broker, it is left behind and goes on.
As many may be left behind as the handler may run at a time, no more: were there no bound, a library
that hangs would use up the threads of the process, and no sync handler could run any more. Who
wants one more waits until one of them has ended, and the log says so, again each minute.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from redrive.consumer.failures import forget_frames
from redrive.consumer.logs import log
from redrive.consumer.telling import Told

_LOOK_EVERY: Final = 60.0
"""Seconds after which who waits for a thread to end looks, and tells of it, again."""


class Threads:
    """The threads of one handler, through every session of its consumer."""

    def __init__(self, handler: str, concurrency: int) -> None:
        self._handler = handler
        self._most = 2 * concurrency
        self._alive: set[threading.Thread] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._told = Told()

    @property
    def has_room(self) -> bool:
        """Whether one more may begin."""
        return len(self._alive) < self._most

    async def room(self) -> None:
        """Wait until one more may begin."""
        while not self.has_room:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(ended)
            try:
                if not self.has_room:  # or one has ended before it knew of this
                    self._tell()
                    await asyncio.wait((ended,), timeout=_LOOK_EVERY)
            finally:
                self._waiting.discard(ended)

    def _tell(self) -> None:
        if self._told.is_news(self._handler):
            log.warning(
                "consumer.threads_left_behind",
                handler=self._handler,
                threads=len(self._alive),
                remedy="give what it calls a timeout of its own: messages wait until one ends",
            )

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function in a thread, with this task's context, and wait for its answer. There
        has to be room."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def tell(settle: Callable[[Any], None], value: Any) -> None:
            if not answer.done():
                settle(value)
            elif isinstance(value, BaseException):
                forget_frames(value)  # nobody judges it

        def call() -> None:
            settle: Callable[[Any], None] = answer.set_result
            try:
                value = context.run(function, *arguments)
            except (StopIteration, GeneratorExit) as error:  # a future does not take it
                told = RuntimeError(f"{type(error).__name__}: {error}")
                settle, value = answer.set_exception, told
            except BaseException as error:  # it is the caller's  # noqa: BLE001
                settle, value = answer.set_exception, error
            self._ended(thread)
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell, settle, value)

        thread = threading.Thread(target=call, name="redrive handler", daemon=True)
        self._alive.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system has no more
            self._alive.discard(thread)
            raise
        return await answer

    def _ended(self, thread: threading.Thread) -> None:
        """Called in that thread. First it is gone and then the others are told, in this order: who
        begins to wait meanwhile sees the room."""
        self._alive.discard(thread)
        for each in tuple(self._waiting):
            with suppress(RuntimeError):  # the loop of who waits is closed
                each.get_loop().call_soon_threadsafe(_wake, each)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
