"""`run()`: what is said while there is no broker; its end, in time, and not the caller's."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest
import structlog

from redrive import Consumer, Message
from redrive.consumer import consumer as module
from redrive.consumer import telling
from redrive.errors import SettingsError
from tests.services.consuming import eventually, serving
from tests.services.eventually import eventually as eventually_in_thread


def test_who_has_run_a_consumer_has_time_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(module, "_GONE_WITHIN", 3.0)
    monkeypatch.setattr(os, "_exit", forced.append)
    consumer = Consumer("amqp://guest:guest@127.0.0.1:1/")

    @consumer.handler("q")
    async def settle(message: Message) -> None: ...

    def signal_it() -> None:
        eventually_in_thread(lambda: signal.getsignal(signal.SIGTERM) is not before)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=signal_it).start()
    consumer.run()
    time.sleep(3.5)
    assert not forced


def test_who_has_run_a_consumer_that_was_signalled_twice_can_be_interrupted_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer("amqp://guest:guest@127.0.0.1:1/")

    async def serve(stopping: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await stopping.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await eventually(third_ends_the_process, "the second signal obeyed")

    def third_ends_the_process() -> bool:
        return signal.getsignal(signal.SIGINT) is signal.SIG_DFL

    monkeypatch.setattr(consumer, "serve", serve)
    consumer.run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_a_problem_that_lasts_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_AGAIN_AFTER", 0.5)
    consumer = Consumer("amqp://guest:guest@127.0.0.1:1/")

    @consumer.handler("q")
    async def settle(message: Message) -> None: ...

    with structlog.testing.capture_logs() as logs:
        async with serving(consumer):
            await eventually(lambda: len(logs) == 2, "the second line")
    assert {each["event"] for each in logs} == {"consumer.lost"}
    # With waits of 0.2, 0.4, 0.8 seconds at most, there were more tries than lines.
    assert logs[1]["retry_in_s"] > 0.2


async def test_who_has_a_loop_is_told_to_serve_in_it() -> None:
    consumer = Consumer("amqp://guest:guest@127.0.0.1:1/")
    with pytest.raises(SettingsError, match="one is running here") as refused:
        consumer.run()
    assert "await consumer.serve(stopping)" in refused.value.remedy


def test_who_has_a_thread_is_told_to_serve_in_a_loop_of_its_own() -> None:
    consumer, told = Consumer("amqp://guest:guest@127.0.0.1:1/"), []

    @consumer.handler("q")
    async def settle(message: Message) -> None: ...

    def run() -> None:
        try:
            consumer.run()
        except SettingsError as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert "await consumer.serve(stopping)" in told[0].remedy


def test_a_wrong_address_is_told_as_what_was_given_to_the_consumer() -> None:
    with pytest.raises(SettingsError, match="from the address given to Consumer") as refused:
        Consumer("http://x")
    assert "--" not in str(refused.value)
