"""Running a handler: once, at once again where it may, within its time; and what came of it.

An async handler runs in the task that asks, without a task of its own: most of the cost of a
message would be that task. Its first step is taken at once; only if it waits for something is there
a timer. A handler that never waits cannot be interrupted, by nobody; nor one that swallows the
cancellation by its timeout. Either has failed all the same if its time was up when it returned.

A sync handler runs in a thread. A thread cannot be ended: after its timeout it goes on by itself,
and the message counts as failed and is not tried again at once. Where too many go on, the next one
begins when one of them has ended (`threads.py`); its time begins then, too.

What a handler gives back is looked at: something that can be awaited is work that has not been
done yet, so it is awaited; a `RetryAfter` or `DeadLetter` is taken as raised. Anything else says
nothing.

Nothing that a handler raises escapes, `SystemExit` and `KeyboardInterrupt` included, but a
cancellation of the task from outside. The task is the worker's: a handler that cancels it has
failed, and the worker goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from redrive.consumer.arguments import arguments_of
from redrive.consumer.failures import TimedOut, failure_of, forget_frames
from redrive.consumer.logs import log
from redrive.consumer.message import Message
from redrive.consumer.signals import DeadLetter, RetryAfter
from redrive.consumer.threads import Threads
from redrive.domain import handling
from redrive.domain.durations import format_duration
from redrive.domain.failure import Failure
from redrive.domain.handling import Outcome, Tried, after_failure, after_request

Handler = Callable[..., Any]

_GOES_ON: Final = 2.0
"""Seconds that a handler has to end, once its timeout has cancelled it, before that is told."""
ACKED: Final = handling.Acked()
_Step = tuple[Awaitable[Any] | None, Any, float | None]
"""What a handler's first step left to be awaited, what it gave back, and when its time is up."""
_DONE: Final[_Step] = (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often and how long a handler may try."""

    retries: int | None = 3
    immediate: int = 0
    timeout: timedelta | None = None


def remember_limits(handler: Handler, limits: Limits) -> None:
    """Note a handler's limits on it, for who tests it without a consumer."""
    try:
        handler.__redrive_limits__ = limits  # type: ignore[attr-defined]
    except AttributeError:  # a method of an object takes no notes
        _without_notes[_key(handler)] = (handler, limits)


def limits_of(handler: Handler) -> Limits:
    """The limits that a handler was registered with; those by default if it was not."""
    _, found = _without_notes.get(_key(handler)) or (handler, None)
    if found is None:
        found = getattr(handler, "__redrive_limits__", None)
    return found if isinstance(found, Limits) else Limits()


def _key(handler: Handler) -> tuple[int, int]:
    """A method is made anew each time it is asked for: the same is one of the same object."""
    function = getattr(handler, "__func__", handler)
    return id(function), id(getattr(handler, "__self__", None))


_without_notes: Final[dict[tuple[int, int], tuple[Handler, Limits]]] = {}
"""With the handler, so that no other gets its key."""


class Runner:
    """Runs one handler as its limits say."""

    def __init__(
        self, handler: Handler, limits: Limits, *, tiers: int, threads: Threads | None = None
    ) -> None:
        """`threads` are the handler's, which outlive this; without, it runs one at a time."""
        self._limits = limits
        self._tiers = tiers
        self.on_wait: Callable[[], None] = lambda: None
        """Called when a handler waits for something, so that others may go on."""
        self.ends: Callable[[], bool] = is_being_cancelled
        """Whether a cancellation is meant for who runs the handler, and not the handler's own."""
        self._timeout = limits.timeout.total_seconds() if limits.timeout is not None else None
        self._arguments = arguments_of(handler)
        self.threaded = not _is_async(handler)
        """Whether it may have to wait for room."""
        self._handler = handler
        self._name = getattr(handler, "__name__", type(handler).__name__)
        self._threads = threads or Threads(self._name, concurrency=1)
        self._ignored_its_timeout = False

    async def run(self, message: Message) -> Outcome:
        """Give the handler its message; what should become of that."""
        rest = self.begin(message, asyncio.current_task())
        return ACKED if rest is None else await rest

    def begin(
        self, message: Message, task: asyncio.Task[Any] | None
    ) -> Coroutine[Any, Any, Outcome] | None:
        """Give the handler its message, and take its first step, in the task that asks. None if
        that was all and the message is to be acked; else what to await, at once, for what should
        become of it. So a handler that waits for nothing costs no coroutine but its own."""
        try:
            arguments = (message,) if self._arguments is None else self._arguments(message)
        except BaseException as error:  # as in `_run`  # noqa: BLE001
            return self._run(message, error)
        if self.threaded:
            return self._run(message, self._try(arguments, self._once(arguments)))
        try:
            step = self._step(arguments)
        except BaseException as error:  # as above  # noqa: BLE001
            return self._run(message, self._try(arguments, _fail(error)))
        if step is _DONE and (task is None or not task.cancelling()):
            return None
        return self._run(message, self._try(arguments, self._rest(*step)))

    async def _run(
        self, message: Message, tries: Coroutine[Any, Any, None] | BaseException
    ) -> Outcome:
        try:
            if isinstance(tries, BaseException):
                raise tries  # noqa: TRY301  (no coroutine could raise StopIteration to here)
            await tries
            if is_being_cancelled():
                await self._go_on()
            return ACKED
        except asyncio.CancelledError as error:
            if self.ends():
                raise
            # Something that the handler awaited was cancelled, or the handler by itself.
            problem: BaseException = error
        except BaseException as error:  # whatever a handler raises is its message's
            if isinstance(error, GeneratorExit) and not in_a_loop():
                raise  # nobody's: the loop is gone, and its coroutines are closed
            problem = error
        if is_being_cancelled():
            await self._go_on()
        return self.judge(message, problem)

    @property
    def has_room(self) -> bool:
        """Whether the handler can begin at once."""
        return not self.threaded or self._threads.has_room

    async def room(self) -> None:
        """Wait until it can."""
        if not self.has_room:
            self.on_wait()
            await self._threads.room()

    async def _go_on(self) -> None:
        """Take back the cancellations that a handler left behind."""
        task = asyncio.current_task()
        if task is None or self.ends():
            return
        while task.cancelling():
            task.uncancel()
        try:
            await asyncio.sleep(0)  # one that it did not wait for is still to come
        except asyncio.CancelledError:
            if self.ends():
                raise

    def judge(self, message: Message, problem: BaseException | Failure) -> Outcome:
        """What should become of a message that failed."""
        try:
            return self._judge(message, problem)
        except Exception as error:  # noqa: BLE001
            # A defect of ours, met in one message: that one is dead, the others go on.
            log.exception("consumer.defect", queue=message.queue)
            return handling.DeadLettered(failure_of(error))
        finally:
            if isinstance(problem, BaseException):
                forget_frames(problem)

    async def _try(self, arguments: tuple[Any, ...], once: Coroutine[Any, Any, None]) -> None:
        """The first time, which is given, and at once again where the handler may."""
        left = self._limits.immediate
        while True:
            try:
                return await once
            except (RetryAfter, DeadLetter):
                raise
            except TimedOut:
                if not left or self.threaded:
                    raise
            except Exception as error:
                if not left:
                    raise
                forget_frames(error)
            left -= 1
            once = self._once(arguments)

    async def _once(self, arguments: tuple[Any, ...]) -> None:
        if self.threaded:
            await self.room()
        await self._rest(*self._step(arguments))

    def _step(self, arguments: tuple[Any, ...]) -> _Step:
        """Take the handler's first step."""
        up = None if self._timeout is None else time.monotonic() + self._timeout
        if self.threaded:
            coroutine: Coroutine[Any, Any, Any] = self._threads.call(self._handler, *arguments)
        else:
            coroutine = self._handler(*arguments)
        try:
            waits_for = coroutine.send(None)
        except StopIteration as end:
            given = end.value
            if given is None and (up is None or time.monotonic() <= up):
                return _DONE
            return given if inspect.isawaitable(given) else None, given, up
        return _Rest(coroutine, waits_for), None, up

    async def _rest(self, left: Awaitable[Any] | None, given: Any, up: float | None) -> None:
        """Do what a step has left. Raises `TimedOut` also of a handler that returned once its time
        was up: it may have kept the loop from interrupting it."""
        if left is not None:
            self.on_wait()
            given = await (_in_full(left) if up is None else self._wait(left, up))
        if given is not None:
            _look_at(given)
        if up is not None and time.monotonic() > up:
            raise TimedOut(self._limits.timeout)

    async def _wait(self, left: Awaitable[Any], up: float) -> Any:
        """What a handler gives back when it has done what is left, until its time is up."""
        loop = asyncio.get_running_loop()
        late: asyncio.TimerHandle | None = None
        timer = asyncio.timeout(up - time.monotonic())

        def goes_on() -> None:
            nonlocal late
            if timer.expired():
                late = late or loop.call_later(_GOES_ON, self._note_ignored)

        if isinstance(left, _Rest):
            left.on_going_on = goes_on
        try:
            async with timer:
                given = await _in_full(left)
        except TimeoutError:
            if timer.expired():
                raise TimedOut(self._limits.timeout) from None
            raise
        finally:
            if late is not None:
                late.cancel()
        if timer.expired():  # it swallowed the cancellation
            _look_at(given)
            raise TimedOut(self._limits.timeout)
        return given

    def _note_ignored(self) -> None:
        if self._ignored_its_timeout:  # once, not for every message
            return
        self._ignored_its_timeout = True
        log.warning(
            "consumer.timeout_ignored",
            handler=self._name,
            timeout=format_duration(self._limits.timeout or timedelta()),
            remedy="let asyncio.CancelledError pass: it goes on, and keeps its place",
        )

    def _judge(self, message: Message, problem: BaseException | Failure) -> Outcome:
        tried = self._tried(message)
        if isinstance(problem, Failure):
            return after_failure(tried, problem)
        if isinstance(problem, DeadLetter):
            return handling.DeadLettered(failure_of(problem))
        if isinstance(problem, RetryAfter):
            return after_request(tried, failure_of(problem), problem.delay, counts=problem.counts)
        return after_failure(tried, failure_of(problem))

    def _tried(self, message: Message) -> Tried:
        return Tried(
            attempt=message.retry_count,
            replayed=message.letter is not None,
            retries=self._limits.retries,
            tiers=self._tiers,
        )


class _Rest(Awaitable[Any]):
    """The rest of a coroutine whose first step was taken, to be awaited by the same task."""

    __slots__ = ("_coroutine", "_waits_for", "on_going_on")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for
        self.on_going_on: Callable[[], None] | None = None
        """Called when it was cancelled, and waits for something all the same."""

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    answer = yield waits_for
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:  # a cancellation, handed on  # noqa: BLE001
                    waits_for = coroutine.throw(error)
                    if self.on_going_on is not None:
                        self.on_going_on()
                else:
                    waits_for = coroutine.send(answer)
        except StopIteration as end:
            return end.value


async def _fail(problem: BaseException) -> None:
    raise problem


async def _in_full(given: Any) -> Any:
    """What comes of it when everything that can be awaited was."""
    while inspect.isawaitable(given):
        given = await given
    return given


def _look_at(given: object) -> None:
    """Raise what a handler gave back and should have raised, or has not done."""
    if isinstance(given, (RetryAfter, DeadLetter)):
        raise given
    if isinstance(given, type) and issubclass(given, (RetryAfter, DeadLetter)):
        raise given  # as of a raised class, Python makes the exception, or says what it lacks
    if inspect.isgenerator(given) or inspect.isasyncgen(given):
        raise TypeError("the handler gave back a generator, of which nothing has run")


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def in_a_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_being_cancelled() -> bool:
    """Whether somebody asked this task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
