"""What becomes of a message by what its handler does, without a broker."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import gzip
import os
import subprocess
import sys
import threading
import time
import weakref
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pydantic
import pytest
import structlog

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from redrive import Consumer, DeadLetter, Message, Queue, RetryAfter
from redrive.consumer import consumer as module_of_consumers
from redrive.consumer import running as module
from redrive.consumer.arguments import arguments_of
from redrive.consumer.running import Limits, Runner, remember_limits
from redrive.consumer.threads import Threads
from redrive.domain.handling import Acked, DeadLettered, Delayed, LeftToPolicy, Retried
from redrive.errors import SettingsError
from redrive.testing import Handling, a_message, handle
from tests.services.eventually import eventually_async

TIERS = 3


def runner(handler: object, **limits: object) -> Runner:
    return Runner(handler, Limits(**limits), tiers=TIERS)  # type: ignore[arg-type]


async def fails(message: Message) -> None:
    raise ValueError("no")


async def test_a_handler_that_returns_is_done() -> None:
    async def passes(message: Message) -> None:
        pass

    assert await runner(passes).run(a_message()) == Acked()


@pytest.mark.parametrize(
    ("made", "tier"), [(0, 1), (1, 2), (2, 3), (3, 3)], ids=["first", "second", "third", "fourth"]
)
async def test_each_retry_waits_in_the_next_tier_and_then_in_the_last(made: int, tier: int) -> None:
    outcome = await runner(fails, retries=9).run(a_message(retry_count=made))
    assert isinstance(outcome, Retried)
    assert (outcome.tier, outcome.attempt) == (tier, made + 1)


async def test_the_retries_of_a_handler_used_up_make_a_dead_letter() -> None:
    outcome = await runner(fails, retries=3).run(a_message(retry_count=3))
    assert isinstance(outcome, DeadLettered)
    assert (outcome.failure.error_type, outcome.failure.reason) == ("ValueError", "no")
    assert str(outcome.failure.stack).startswith("Traceback (most recent call last)")
    assert "consumer/running.py" not in str(outcome.failure.stack)


async def test_a_replayed_letter_that_fails_is_dead_at_once_whatever_it_asks_for() -> None:
    async def later(message: Message) -> None:
        raise RetryAfter("1m", counts=False)

    for handler in (fails, later):
        outcome = await runner(handler, retries=3).run(a_message(letter="0192"))
        assert isinstance(outcome, DeadLettered)


async def test_without_a_limit_the_policy_decides() -> None:
    outcome = await runner(fails, retries=None).run(a_message(retry_count=99))
    assert isinstance(outcome, LeftToPolicy)


async def test_a_delay_is_the_handlers_own_and_counts_unless_it_says_otherwise() -> None:
    async def later(message: Message) -> None:
        raise RetryAfter(timedelta(minutes=2), counts=message.body == b"counts")

    counted = await runner(later).run(a_message(b"counts", retry_count=1))
    assert isinstance(counted, Delayed)
    assert (counted.delay, counted.attempt) == (timedelta(minutes=2), 2)
    uncounted = await runner(later).run(a_message(retry_count=3))
    assert isinstance(uncounted, Delayed)
    assert uncounted.attempt == 3


async def test_immediate_tries_end_with_the_first_that_passes() -> None:
    tries = []

    async def third_time(message: Message) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError

    assert await runner(third_time, immediate=5).run(a_message()) == Acked()
    assert len(tries) == 3


async def test_a_handler_that_takes_too_long_is_cancelled_and_has_failed() -> None:
    cancelled = []

    async def slow(message: Message) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    limits = {"retries": 0, "immediate": 1, "timeout": timedelta(milliseconds=20)}
    outcome = await runner(slow, **limits).run(a_message())
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure.error_type == "TIMEOUT"
    assert cancelled == [True, True]


async def blocks(message: Message) -> None:
    time.sleep(0.1)  # noqa: ASYNC251


async def blocks_at_the_end(message: Message) -> None:
    await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251


async def swallows_its_end(message: Message) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(60)


async def gives_work_back_that_swallows_its_end(message: Message) -> object:
    return swallows_its_end(message)


@pytest.mark.parametrize(
    "handler",
    [blocks, blocks_at_the_end, swallows_its_end, gives_work_back_that_swallows_its_end],
)
async def test_a_handler_that_returns_once_its_time_is_up_has_failed(
    handler: Callable[[Message], object], handled: Handling
) -> None:
    limits = Limits(retries=0, timeout=timedelta(milliseconds=20))
    outcome = await Runner(handler, limits, tiers=TIERS).run(a_message())
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure.error_type == "TIMEOUT"
    remember_limits(handler, limits)
    handled(handler).is_dead_lettered(error_type="TIMEOUT")


async def test_what_a_late_handler_asks_for_is_heard() -> None:
    async def late(message: Message) -> None:
        time.sleep(0.1)  # noqa: ASYNC251
        raise DeadLetter("no use", error_type="NO_USE")

    async def late_and_returns_it(message: Message) -> object:
        await swallows_its_end(message)
        return DeadLetter("no use", error_type="NO_USE")

    for handler in (late, late_and_returns_it):
        outcome = await runner(handler, timeout=timedelta(milliseconds=20)).run(a_message())
        assert isinstance(outcome, DeadLettered)
        assert outcome.failure.error_type == "NO_USE"


async def test_a_handler_that_goes_on_after_its_timeout_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_GOES_ON", 0.02)
    told = asyncio.Event()

    async def goes_on(message: Message) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await told.wait()

    runs = runner(goes_on, timeout=timedelta(milliseconds=20))
    with structlog.testing.capture_logs() as logs:
        both = asyncio.gather(runs.run(a_message()), runs.run(a_message()))
        await eventually_async(lambda: bool(logs), what="the warning")
        await asyncio.sleep(0.1)  # the second's would come now
        told.set()
        await both
    assert [(each["event"], each["handler"]) for each in logs] == [
        ("consumer.timeout_ignored", "goes_on")
    ]


async def test_a_handler_that_ends_after_its_timeout_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_GOES_ON", 0.5)

    async def tidies_up(message: Message) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)

    with structlog.testing.capture_logs() as logs:
        await runner(tidies_up, timeout=timedelta(milliseconds=20)).run(a_message())
        await asyncio.sleep(0.6)  # it would come now
    assert not logs


async def test_a_timeout_of_the_handlers_own_is_its_own_error() -> None:
    async def times_out(message: Message) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    limits = {"retries": 0, "timeout": timedelta(seconds=30)}
    outcome = await runner(times_out, **limits).run(a_message())
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure.error_type == "TimeoutError"


async def test_something_cancelled_within_a_handler_is_a_failure_and_not_the_end() -> None:
    async def awaits_what_is_cancelled(message: Message) -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    outcome = await runner(awaits_what_is_cancelled).run(a_message())
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_type == "asyncio.exceptions.CancelledError"


async def test_a_handler_that_is_cancelled_with_its_task_has_not_failed() -> None:
    begun = asyncio.Event()

    async def waits(message: Message) -> None:
        begun.set()
        await asyncio.sleep(60)

    running = asyncio.ensure_future(runner(waits, timeout=timedelta(minutes=1)).run(a_message()))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_sync_handler_runs_in_a_thread_with_the_callers_context() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    tenant.set("t-1")
    seen = []

    def passes(message: Message) -> None:
        seen.append((tenant.get(), threading.current_thread() is threading.main_thread()))

    assert await runner(passes).run(a_message()) == Acked()
    assert seen == [("t-1", False)]


async def test_a_sync_handler_that_took_too_long_is_not_tried_again_beside_itself() -> None:
    begun, end = [], threading.Event()

    def slow(message: Message) -> None:
        begun.append(True)
        end.wait(10)

    limits = {"immediate": 3, "timeout": timedelta(milliseconds=20)}
    outcome = await runner(slow, **limits).run(a_message())
    await eventually_async(lambda: begun, what="its thread")
    end.set()
    assert isinstance(outcome, Retried)
    assert begun == [True]


async def test_a_sync_handler_that_hangs_leaves_no_more_threads_than_its_concurrency() -> None:
    begun, end = [], threading.Event()

    def hangs(message: Message) -> None:
        begun.append(message.body)
        end.wait(60)

    limits = Limits(retries=0, timeout=timedelta(milliseconds=500))
    threads = Threads("hangs", concurrency=2)

    async def run() -> object:  # as sessions do, one after the other
        return await Runner(hangs, limits, tiers=TIERS, threads=threads).run(a_message())

    for _ in range(2):  # two that run, of which both are left behind; and two more
        outcomes = await asyncio.gather(run(), run())
        assert all(isinstance(each, DeadLettered) for each in outcomes)
    with structlog.testing.capture_logs() as logs:
        waiting = [asyncio.create_task(run()) for _ in range(2)]
        await eventually_async(lambda: logs, what="why they wait")
        await asyncio.sleep(0.6)  # their timeout would be over
        assert len(begun) == 4
        assert not any(each.done() for each in waiting)
        end.set()
        assert await asyncio.gather(*waiting) == [Acked(), Acked()]
    assert len(begun) == 6
    (line,) = logs
    assert (line["event"], line["handler"], line["threads"]) == (
        "consumer.threads_left_behind",
        "hangs",
        4,
    )


async def test_a_sync_handler_that_waits_for_room_can_be_ended() -> None:
    end = threading.Event()
    threads = Threads("hangs", concurrency=1)
    limits = Limits(timeout=timedelta(milliseconds=20))
    runs = Runner(lambda _: end.wait(60), limits, tiers=TIERS, threads=threads)
    await asyncio.gather(runs.run(a_message()), runs.run(a_message()))
    waiting = asyncio.create_task(runs.run(a_message()))
    await eventually_async(lambda: threads._waiting, what="one that waits")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    end.set()
    await eventually_async(lambda: runs.has_room, what="room")


async def test_an_exception_that_cannot_even_be_told_is_a_failure() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    async def raises(message: Message) -> None:
        raise Broken

    outcome = await runner(raises).run(a_message())
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_type.endswith("Broken")


# Typed bodies


@dataclass
class Payment:
    id: str
    amount: float = 0.0


class Order(pydantic.BaseModel):
    id: int


@pytest.mark.parametrize(
    ("hint", "body", "given"),
    [
        (Payment, b'{"id": "p", "amount": 2}', Payment("p", 2.0)),
        (Order, b'{"id": 7}', Order(id=7)),
        (list[Order], b'[{"id": 7}]', [Order(id=7)]),
        (dict, b'{"a": 1}', {"a": 1}),
        (bytes, b"\xff", b"\xff"),
        (str, b"text", "text"),
    ],
    ids=["dataclass", "pydantic", "list", "dict", "bytes", "str"],
)
async def test_a_body_is_given_as_the_annotation_says(
    hint: object, body: bytes, given: object
) -> None:
    seen = []

    async def takes(message: Message, body: object) -> None:
        seen.append((message.body, body))

    takes.__annotations__["body"] = hint
    assert await runner(takes).run(a_message(body)) == Acked()
    assert seen == [(body, given)]


@pytest.mark.parametrize("hint", [Payment, Order, str], ids=["dataclass", "pydantic", "str"])
async def test_a_body_that_does_not_fit_is_dead_without_its_values_in_the_reason(
    hint: object,
) -> None:
    async def takes(body: object) -> None:
        raise AssertionError

    takes.__annotations__["body"] = hint
    outcome = await runner(takes, immediate=3).run(a_message(b'{"id": ["secret\xff"]}'))
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure.error_type == "BODY_DOES_NOT_FIT"
    assert "secret" not in outcome.failure.reason


def no_message() -> None: ...
def two_bodies(one: Payment, two: Order) -> None: ...
def of_pika(channel, method, properties, body) -> None: ...  # type: ignore[no-untyped-def]
def by_name(message: Message, *, other: int) -> None: ...
def unreadable(message: threading.Event) -> None: ...


@pytest.mark.parametrize("wrong", [no_message, two_bodies, of_pika, by_name, unreadable])
def test_a_handler_that_could_never_be_called_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(SettingsError, match=r"handler \w+ (takes|needs)"):
        arguments_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("own", ["dlq-queue", "redrive-after-125ms", "redrive-alone-orders"])
def test_a_queue_of_redrives_own_has_no_handler(own: str) -> None:
    with pytest.raises(SettingsError, match=f"the queue '{own}' is Redrive's own"):
        a_consumer().handler(own)(fails)


async def test_an_error_that_quotes_a_whole_document_leaves_room_for_the_stack() -> None:
    async def quotes(message: Message) -> None:
        raise ValueError(f"bad answer: <html>{'y' * 50_000}</html>")

    outcome = await runner(quotes, retries=0).run(a_message())
    assert isinstance(outcome, DeadLettered)
    reason, stack = outcome.failure.reason, outcome.failure.stack
    assert len(reason) < 3_100
    assert (reason[:11], reason[-7:]) == ("bad answer:", "</html>")
    assert stack is not None
    assert "in quotes" in stack
    assert len(stack) < 6_100


class NoException(BaseException):
    """As gevent's Timeout is."""


@pytest.mark.parametrize(
    ("raised", "error_type", "reason"),
    [
        (SystemExit(3), "SystemExit", "the handler called sys.exit(3), which ends no consumer"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
        (NoException("late"), f"{__name__}.NoException", "late"),
        (ExceptionGroup("two", [ValueError("a"), ValueError("b")]), "ExceptionGroup", "two"),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("threaded", [False, True], ids=["async", "sync"])
async def test_nothing_that_a_handler_raises_ends_more_than_its_try(
    raised: BaseException, error_type: str, reason: str, threaded: bool
) -> None:
    def raises(message: Message) -> None:
        raise raised

    async def raises_later(message: Message) -> None:
        await asyncio.sleep(0)
        raise raised

    outcome = await runner(raises if threaded else raises_later).run(a_message())
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_type == error_type
    assert outcome.failure.reason.startswith(reason)
    assert "in raises" in str(outcome.failure.stack)


@pytest.mark.parametrize("raised", [StopIteration, GeneratorExit])
@pytest.mark.parametrize("threaded", [False, True], ids=["async", "sync"])
async def test_what_python_itself_raises_in_coroutines_is_a_failure_too(
    raised: type[BaseException], threaded: bool
) -> None:
    def raises(message: Message) -> None:
        raise raised

    async def raises_at_once(message: Message) -> None:
        raise raised

    outcome = await runner(raises if threaded else raises_at_once).run(a_message())
    assert isinstance(outcome, Retried)
    failure = outcome.failure
    assert raised.__name__ in f"{failure.error_type} {failure.reason}"


class Checked(pydantic.BaseModel):
    items: list[int]

    @pydantic.field_validator("items")
    @classmethod
    def not_empty(cls, items: list[int]) -> list[int]:
        next(iter(items))
        return items


async def test_a_stop_iteration_of_a_validator_is_told_as_that() -> None:
    async def handler(body: Checked) -> None: ...

    outcome = await runner(handler).run(a_message({"items": []}))
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_type == "StopIteration"
    assert "in not_empty" in str(outcome.failure.stack)


def test_a_handler_whose_loop_is_gone_is_closed_quietly() -> None:
    async def waits(message: Message) -> None:
        await asyncio.Event().wait()

    async def begins() -> None:
        running.send(None)

    running = runner(waits).run(a_message())
    asyncio.run(begins())
    running.close()


# What a handler gives back


class _Works:
    """A handler that does its work later than it returns, in every way there is."""

    def __init__(self) -> None:
        self.done = 0

    async def work(self, message: Message) -> None:
        await asyncio.sleep(0)
        self.done += 1

    async def forgets_await(self, message: Message) -> object:
        return self.work(message)

    async def forgets_await_later(self, message: Message) -> object:
        await asyncio.sleep(0)
        return self.work(message)

    async def gives_back_a_task(self, message: Message) -> object:
        return asyncio.ensure_future(self.work(message))

    async def twice_removed(self, message: Message) -> object:
        return self.forgets_await(message)

    def sync(self, message: Message) -> object:
        return self.forgets_await(message)

    async def __call__(self, message: Message) -> object:
        return self.work(message)


@pytest.mark.parametrize(
    "way",
    [
        lambda works: works.forgets_await,
        lambda works: works.forgets_await_later,
        lambda works: works.gives_back_a_task,
        lambda works: works.twice_removed,
        lambda works: works.sync,
        lambda works: works,
        lambda works: partial(_Works.__call__, works),
        lambda works: partial(works.forgets_await),
        lambda works: lambda message: works.sync(message),  # noqa: PLW0108
    ],
    ids=["method", "later", "task", "twice", "sync", "object", "partial", "method's", "lambda"],
)
async def test_work_that_a_handler_gives_back_is_done_before_the_message_is(
    way: Callable[[_Works], Callable[[Message], object]],
) -> None:
    works = _Works()
    assert await runner(way(works)).run(a_message()) == Acked()
    assert works.done == 1


async def test_work_that_a_handler_gives_back_fails_and_takes_too_long_as_its_own() -> None:
    async def forever(message: Message) -> None:
        await asyncio.sleep(60)

    async def gives_back(message: Message) -> object:
        return fails(message) if message.body else forever(message)

    outcome = await runner(gives_back).run(a_message(b"fails"))
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_type == "ValueError"
    outcome = await runner(gives_back, timeout=timedelta(milliseconds=20)).run(a_message())
    assert isinstance(outcome, Retried)
    assert outcome.failure.error_type == "TIMEOUT"


@pytest.mark.parametrize("given", [7, "text", {"ok": False}, False, ValueError("not raised")])
async def test_anything_else_that_a_handler_gives_back_says_nothing(given: object) -> None:
    async def gives_back(message: Message) -> object:
        return given

    assert await runner(gives_back).run(a_message()) == Acked()


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "sync"])
async def test_a_request_that_is_given_back_is_taken_as_raised(threaded: bool) -> None:
    def sync(message: Message) -> object:
        return DeadLetter("no") if message.body else RetryAfter("1m")

    async def not_sync(message: Message) -> object:
        return sync(message)

    handler = sync if threaded else not_sync
    assert isinstance(await runner(handler).run(a_message(b"dead")), DeadLettered)
    assert isinstance(await runner(handler).run(a_message()), Delayed)


def test_a_class_is_no_handler() -> None:
    with pytest.raises(SettingsError, match="handler _Works is a class, which handles nothing"):
        a_consumer().handler("q")(_Works)


# Reasons of the wrong type


def _failed() -> ValueError:
    try:
        raise ValueError("card 7")  # noqa: TRY301
    except ValueError as error:
        return error


class Blocked(DeadLetter):
    def __init__(self) -> None:
        """Without that of its base."""


@pytest.mark.parametrize(
    ("letter", "error_type", "reason", "stack"),
    [
        (DeadLetter("no", error_type="LIMIT"), "LIMIT", "no", None),
        (DeadLetter(_failed()), "ValueError", "card 7", "in _failed"),
        (DeadLetter(_failed(), error_type="LIMIT"), "LIMIT", "card 7", "in _failed"),
        (DeadLetter(KeyError()), "KeyError", "KeyError", "KeyError"),
        (DeadLetter("no", error_type=KeyError), "KeyError", "no", None),
        (DeadLetter("no", error_type=7), "7", "no", None),
        (DeadLetter(None), "DeadLetter", "no reason was given", None),
        (DeadLetter(), "DeadLetter", "no reason was given", None),
        (DeadLetter(b"caf\xc3\xa9 \xff"), "DeadLetter", "café \\xff", None),
        (DeadLetter({"code": 7}), "DeadLetter", "{'code': 7}", None),
        (Blocked(), f"{__name__}.Blocked", "no reason was given", None),
    ],
    ids=repr,
)
async def test_a_reason_of_whatever_type_is_told(
    letter: DeadLetter, error_type: str, reason: str, stack: str | None
) -> None:
    async def raises(message: Message) -> None:
        raise letter

    outcome = await runner(raises).run(a_message())
    assert isinstance(outcome, DeadLettered)
    failure = outcome.failure
    assert (failure.error_type, failure.reason) == (error_type, reason)
    assert stack is None if failure.stack is None else stack in failure.stack  # type: ignore[operator]


async def test_a_letter_without_a_reason_has_that_of_its_cause() -> None:
    async def raises(message: Message) -> None:
        raise DeadLetter from _failed()

    outcome = await runner(raises).run(a_message())
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure.reason == "card 7"
    assert "in _failed" in str(outcome.failure.stack)


async def test_a_delay_for_a_reason_of_whatever_type_is_told() -> None:
    async def raises(message: Message) -> None:
        raise RetryAfter("1m", _failed())

    outcome = await runner(raises).run(a_message())
    assert isinstance(outcome, Delayed)
    assert outcome.failure.error_type == "RetryAfter"
    assert outcome.failure.reason == "card 7"
    assert "in _failed" in str(outcome.failure.stack)


@pytest.mark.parametrize(
    "wrong",
    [(5,), (None,), (b"5s",), ("-5s",), (timedelta(-1),), ("soon",), (float("nan"),)],
    ids=str,
)
async def test_a_delay_that_is_none_is_a_failure_that_says_what_was_expected(
    wrong: tuple[Any],
) -> None:
    async def raises(message: Message) -> None:
        raise RetryAfter(*wrong)

    outcome = await runner(raises).run(a_message())
    assert isinstance(outcome, Retried)
    assert outcome.failure.reason.startswith("RetryAfter: ")
    assert "got" in outcome.failure.reason


def test_whether_a_delay_counts_is_yes_or_no() -> None:
    with pytest.raises(SettingsError, match="counts: expected True or False, got 'no'"):
        RetryAfter("1m", counts="no")  # type: ignore[arg-type]


def test_a_body_that_is_not_json_is_dead_by_the_asking() -> None:
    with pytest.raises(DeadLetter, match="not JSON"):
        a_message(b"{").json()


@pytest.mark.parametrize(
    "started",
    [("shop/bank.py",), ("-m", "bank"), ("-c", "import bank; bank.tell()")],
    ids=["as a file", "by -m", "imported"],
)
def test_an_error_type_does_not_depend_on_how_the_service_is_started(
    started: tuple[str, ...], tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "bank.py").write_text(_BANK)
    told = subprocess.run(
        [sys.executable, *started],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(shop)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "bank.Away ValueError\n"


_BANK = """
from redrive.consumer.failures import failure_of
class Away(Exception): ...
def tell():
    print(failure_of(Away()).error_type, failure_of(ValueError()).error_type)
if __name__ == "__main__":
    tell()
"""


# What is registered


def a_consumer() -> Consumer:
    return Consumer("amqp://guest:guest@127.0.0.1/")


@pytest.mark.parametrize(
    "wrong",
    [
        {"retries": -1},
        {"immediate": 1.5},
        {"concurrency": 0},
        {"prefetch": 0},
        {"prefetch": 65_536},
        {"prefetch": True},
        {"timeout": "0s"},
        {"timeout": "soon"},
        {"timeout": 30},
    ],
    ids=str,
)
def test_a_wrong_limit_is_refused_with_what_was_expected(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="expected"):
        a_consumer().handler("q", **wrong)  # type: ignore[arg-type]


def test_a_decorator_without_its_queue_is_refused_with_what_to_write() -> None:
    with pytest.raises(SettingsError, match="handler fails has no queue") as refused:
        a_consumer().handler(fails)  # type: ignore[arg-type]
    assert '@consumer.handler("its queue") above fails' in str(refused.value.remedy)


@pytest.mark.parametrize("wrong", [5, None, b"q", Queue], ids=str)
def test_what_is_no_queue_is_refused(wrong: Any) -> None:
    with pytest.raises(SettingsError, match="expected the name of a queue or a Queue"):
        a_consumer().handler(wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": 5}, "name: expected text"),
        ({"name": "ä" * 128}, "expected at most 255 bytes, got 256"),
        ({"name": "amq.mine"}, "are the broker's own"),
        ({"exchange": 5}, "exchange: expected text"),
        ({"routing_key": None}, "routing_key: expected text"),
        ({"type": "stream"}, "type: expected 'quorum' or 'classic', got 'stream'"),
        ({"dead_letter_exchange": 5}, "dead_letter_exchange: expected text"),
        ({"dead_letter_exchange": ""}, "expected the name of an exchange, got ''"),
        ({"dead_letter_exchange": "q"}, "expected another name than the queue's, got 'q'"),
        ({"arguments": [1]}, "arguments: expected a mapping"),
        ({"arguments": {"x": 1.5}}, "x: expected text or a whole number"),
        ({"ttl": 5}, "ttl: expected a duration"),
    ],
    ids=str,
)
def test_a_queue_that_cannot_be_is_refused_where_it_is_written(
    wrong: dict[str, Any], told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        Queue(**{"name": "q", **wrong})


def test_a_queue_that_the_broker_named_may_be_consumed() -> None:
    assert Queue("amq.gen-1", declare=False).name == "amq.gen-1"


def test_a_queue_has_one_handler() -> None:
    consumer = a_consumer()
    consumer.handler("q")(fails)
    with pytest.raises(SettingsError, match="would share a queue, 'q'"):
        consumer.handler(Queue("q", exchange="e"))(fails)
    consumer.handler(Queue(exchange="e"))(fails)
    with pytest.raises(SettingsError, match=r"would share a queue, 'e\.fails'"):
        consumer.handler(Queue(exchange="e"))(fails)


def test_a_queue_that_nothing_names_is_refused() -> None:
    with pytest.raises(SettingsError, match="got neither"):
        Queue()
    with pytest.raises(SettingsError, match="no name to a quorum queue"):
        Queue("", exchange="e", type="quorum")


# The plugin


def test_the_plugin_tells_what_became_of_a_message(handled: Handling) -> None:
    @a_consumer().handler("q", retries=3)
    async def settle(payment: Payment) -> None:
        if payment.amount > 100:
            raise DeadLetter("too much", error_type="LIMIT")
        if payment.amount < 0:
            raise RetryAfter("5m")
        if not payment.amount:
            raise ValueError("nothing to pay")

    handled(settle, {"id": "p", "amount": 5}).is_acked()
    handled(settle, {"id": "p", "amount": 500}).is_dead_lettered(error_type="LIMIT", reason="much")
    handled(settle, {"id": "p", "amount": -1}).is_delayed("5m")
    handled(settle, {"id": "p"}).is_retried(error_type="ValueError")
    handled(settle, {"id": "p"}, retry_count=3).is_dead_lettered(error_type="ValueError")
    handled.for_good(settle, {"id": "p"}).is_dead_lettered(tries=4)
    with pytest.raises(AssertionError, match=r"to be acked.*nothing to pay"):
        handled(settle, {"id": "p"}).is_acked()
    with pytest.raises(AssertionError, match="expected 3 tries, but there were 4"):
        handled.for_good(settle, {"id": "p"}).is_dead_lettered(tries=3)
    handled(settle, Payment("p", 5)).is_acked()
    with pytest.raises(AssertionError, match="expected a delay of 1m, but it was Delayed by 5m"):
        handled(settle, {"id": "p", "amount": -1}).is_delayed("1m")


def test_a_whole_message_is_handled_for_good_as_its_body_is(handled: Handling) -> None:
    seen: list[Message] = []

    @a_consumer().handler("q", retries=3)
    async def settle(message: Message) -> None:
        seen.append(message)
        raise ValueError("away")

    whole = a_message("p", routing_key="k", message_id="m", headers={"shop": "s"})
    handled.for_good(settle, whole).is_dead_lettered(tries=4)
    assert [message.retry_count for message in seen] == [0, 1, 2, 3]
    assert seen[0].first_failed_at is None
    assert seen[1].first_failed_at == seen[3].first_failed_at is not None
    for message in seen:
        assert (message.body, message.routing_key, message.message_id) == (b"p", "k", "m")
        assert message.headers["shop"] == "s"
    handled.for_good(settle, a_message(retry_count=2)).is_dead_lettered(tries=2)
    handled.for_good(settle, retry_count=2).is_dead_lettered(tries=2)


def test_options_beside_a_whole_message_are_refused(handled: Handling) -> None:
    with pytest.raises(TypeError, match=r"^retry_count: not beside a whole message; give that"):
        handled(fails, a_message(), retry_count=2)
    with pytest.raises(TypeError, match="routing_key, letter: not beside"):
        handled.for_good(fails, a_message(), routing_key="k", letter="l")


async def test_the_plugin_works_beside_a_running_loop(handled: Handling) -> None:
    handled(fails).is_retried(reason="no")


def _generates(message: Message) -> Iterator[None]:
    yield


async def _generates_async(message: Message) -> AsyncIterator[None]:
    yield


class _Generates:
    def __call__(self, message: Message) -> Iterator[None]:
        yield

    def method(self, message: Message) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    "handler",
    [_generates, _generates_async, _Generates(), _Generates().method, partial(_generates)],
    ids=["sync", "async", "object", "method", "partial"],
)
def test_a_generator_is_no_handler(handler: Callable[[Message], object]) -> None:
    with pytest.raises(SettingsError, match="is a generator"):
        Consumer("amqp://nowhere/").handler("q")(handler)


async def test_a_handler_that_gives_back_a_generator_has_failed() -> None:
    outcome = await runner(lambda message: iter(_generates(message)), retries=0).run(a_message())
    assert isinstance(outcome, DeadLettered)
    assert "nothing has run" in outcome.failure.reason


class _Settles:
    def settle(self, message: Message) -> None:
        raise ValueError

    def other(self, message: Message) -> None:
        raise ValueError


def test_a_method_is_tested_within_the_limits_that_it_was_registered_with() -> None:
    one, another, handled = _Settles(), _Settles(), Handling()
    Consumer("amqp://nowhere/").handler("q", retries=0)(one.settle)
    handled(one.settle).is_dead_lettered(error_type="ValueError")
    handled(one.other).is_retried()
    handled(another.settle).is_retried()


@pytest.mark.parametrize("number", [2**64 + 1, -(2**70), 10**100 + 1, 2**63, 7])
async def test_json_keeps_every_digit(number: int) -> None:
    assert a_message(f'{{"amount": [{number}, 0.5]}}').json() == {"amount": [number, 0.5]}


@pytest.mark.parametrize("body", [b"[NaN, 1234567890123456789012]", b"[" + b"9" * 5_000 + b"]"])
async def test_what_is_no_json_or_no_number_is_dead(body: bytes) -> None:
    def reads(message: Message) -> None:
        message.json()

    outcome = await runner(reads).run(a_message(body))
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure.error_type == "BODY_DOES_NOT_FIT"


@pytest.mark.parametrize("delay", ["100000000h", timedelta.max, timedelta(days=367)])
async def test_a_delay_of_more_than_a_year_is_a_failure_that_says_so(
    delay: str | timedelta,
) -> None:
    async def later(message: Message) -> None:
        raise RetryAfter(delay)

    outcome = await runner(later, retries=0).run(a_message())
    assert isinstance(outcome, DeadLettered)
    assert outcome.failure.reason.startswith("RetryAfter: expected a year at most, got ")


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_request_that_is_given_back_as_a_class_is_taken_as_raised(threaded: bool) -> None:
    async def gives(message: Message) -> object:
        return DeadLetter if message.body == b"dead" else RetryAfter

    def gives_in_a_thread(message: Message) -> object:
        return DeadLetter if message.body == b"dead" else RetryAfter

    runs = runner(gives_in_a_thread if threaded else gives)
    dead, failed = await runs.run(a_message(b"dead")), await runs.run(a_message())
    assert isinstance(dead, DeadLettered)
    assert dead.failure.error_type == "DeadLetter"
    assert isinstance(failed, Retried)
    assert "'delay'" in failed.failure.reason


@pytest.mark.parametrize(
    ("given", "widths"),
    [
        ({}, (20, 200)),
        ({"concurrency": 300}, (300, 300)),
        ({"prefetch": 1}, (1, 1)),
        ({"concurrency": 1}, (1, 200)),
        ({"concurrency": 5, "prefetch": 5}, (5, 5)),
    ],
    ids=str,
)
def test_no_more_are_handled_at_a_time_than_are_handed_out(
    given: dict[str, int], widths: tuple[int, int]
) -> None:
    assert module_of_consumers._widths(given.get("concurrency"), given.get("prefetch")) == widths


def test_more_at_a_time_than_are_handed_out_is_refused() -> None:
    with pytest.raises(SettingsError, match="50 at a time, but with prefetch=10"):
        a_consumer().handler("q", concurrency=50, prefetch=10)


async def test_in_a_loop_of_ones_own_a_handler_is_tested_alike() -> None:
    async def settle(message: Message) -> None:
        if message.retry_count:
            raise DeadLetter("no use", error_type="NO_USE")

    (await handle(settle, {"id": "p"})).is_acked()
    (await handle(settle, a_message(retry_count=1))).is_dead_lettered(error_type="NO_USE")
    (await handle(settle, {"id": "p"}, retry_count=1)).is_dead_lettered(reason="no use")


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstd.compress),
        ("gzip, zstd", lambda body: zstd.compress(gzip.compress(body))),
        ("utf-8", bytes),
        ("gzip", bytes),  # somebody undid it, and left the label
        ("application/json", bytes),
    ],
)
async def test_a_content_encoding_is_undone_for_who_asks_for_more_than_bytes(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = b'{"id": "p-1"}'
    seen: list[object] = []

    async def typed(order: dict[str, str], message: Message) -> None:
        seen.append(order)
        assert message.json() == order
        assert (message.content, message.body) == (body, pack(body))
        assert message.content_encoding == encoding

    async def as_text(text: str) -> None:
        seen.append(text)

    async def as_bytes(raw: bytes) -> None:
        seen.append(raw)

    for handler in (typed, as_text, as_bytes):
        (await handle(handler, pack(body), content_encoding=encoding)).is_acked()
    assert seen == [{"id": "p-1"}, body.decode(), pack(body)]


async def test_a_body_that_is_too_large_without_its_encoding_is_dead_and_the_reason_says_so() -> (
    None
):
    async def typed(order: dict[str, str]) -> None: ...
    async def by_hand(message: Message) -> None:
        message.json()

    async def as_text(text: str) -> None: ...

    bomb = gzip.compress(bytes(17 * 2**20))
    for handler in (typed, by_hand, as_text):
        found = await handle(handler, bomb, content_encoding="gzip")
        found.is_dead_lettered(error_type="BODY_DOES_NOT_FIT", reason="larger than 16 MiB")


async def test_no_limit_but_its_own_stops_a_handler_that_asks_for_delays_without_retries() -> None:
    async def later(message: Message) -> None:
        raise RetryAfter("1m")

    outcome = await runner(later, retries=None).run(a_message(retry_count=1_000))
    assert isinstance(outcome, Delayed)
    assert outcome.attempt == 1_001


# What is kept of a failed message


class Watched(Message):
    """A message of which can be told whether anybody has it."""

    __slots__ = ("__weakref__",)


def watched() -> tuple[Message, Callable[[], bool]]:
    message = Watched(a_message()._delivery, "q", "/")
    kept = weakref.ref(message)
    return message, lambda: kept() is None


@pytest.fixture
def no_garbage_is_collected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


BUSY = RetryAfter("5s", "the bank is away")
WRONG = ValueError("no")


@dataclass(frozen=True)
class Frozen(Exception):
    """That `__traceback__` cannot be assigned to."""

    code: int


class Odd(ExceptionGroup[Exception]):
    """That calls its cause what is no exception, and tells no others."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        return "what the server said"

    @property
    def __context__(self) -> Any:  # type: ignore[override]
        raise RuntimeError

    @property
    def exceptions(self) -> Any:
        return ("none",)


async def gives_what_is_shared(message: Message) -> object:
    return BUSY


async def raises_what_is_shared(message: Message) -> None:
    await asyncio.sleep(0)
    raise BUSY


def raises_in_a_thread(message: Message) -> None:
    raise WRONG


async def raises_after_another(message: Message) -> None:
    try:
        raise WRONG
    except ValueError:
        raise BUSY from Frozen(1)


async def raises_in_a_group(message: Message) -> None:
    raise ExceptionGroup("both", [WRONG, Frozen(2)])


async def raises_what_is_odd(message: Message) -> None:
    raise Odd("odd", [WRONG])


async def raises_anew(message: Message) -> None:
    raise Frozen(3)


@pytest.mark.parametrize(
    "handler",
    [
        gives_what_is_shared,
        raises_what_is_shared,
        raises_in_a_thread,
        raises_after_another,
        raises_in_a_group,
        raises_what_is_odd,
        raises_anew,
    ],
)
async def test_nothing_holds_a_failed_message_once_it_is_judged(
    handler: object, no_garbage_is_collected: None
) -> None:
    run, stacks = runner(handler).run, set()
    for _ in range(3):
        message, let_go = watched()
        outcome = await run(message)
        assert isinstance(outcome, (Retried, Delayed))
        stacks.add(outcome.failure.stack)
        del message
        await eventually_async(let_go, within=10, what="the message let go")
    assert len(stacks) == 1  # it does not grow


async def test_nothing_holds_a_message_that_failed_and_was_handled_at_once_again(
    no_garbage_is_collected: None,
) -> None:
    tries = []

    async def second_time(message: Message) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise WRONG

    message, let_go = watched()
    assert await runner(second_time, immediate=1).run(message) == Acked()
    del message
    await eventually_async(let_go, within=10, what="the message let go")


async def test_nothing_holds_a_message_whose_thread_fails_once_nobody_waits_for_it(
    no_garbage_is_collected: None,
) -> None:
    end = threading.Event()

    def fails_late(message: Message) -> None:
        end.wait(60)
        raise WRONG

    message, let_go = watched()
    outcome = await runner(fails_late, timeout=timedelta(milliseconds=20)).run(message)
    assert isinstance(outcome, Retried)
    del message
    end.set()
    await eventually_async(let_go, within=10, what="the message let go")
