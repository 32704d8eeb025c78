"""The end of `run()`: by a signal, in time, and not of what the caller does afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from redrive import Consumer, Message
from redrive.consumer import consumer as module


def test_who_has_run_a_consumer_has_time_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(module, "_GONE_WITHIN", 1.5)
    monkeypatch.setattr(os, "_exit", forced.append)
    consumer = Consumer("amqp://guest:guest@127.0.0.1:1/")

    @consumer.handler("q")
    async def settle(message: Message) -> None: ...

    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    consumer.run()
    time.sleep(2)
    assert not forced
