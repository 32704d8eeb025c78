"""A return path that asks no broker."""

from __future__ import annotations

from collections.abc import Callable

from redrive.amqp import Connection
from redrive.work.return_path import ReturnPath, Unreachable


class StubPath(ReturnPath):
    """Answers as told, and notes what it was asked."""

    def __init__(self, answer: Callable[[], bool] = lambda: True) -> None:
        super().__init__("redrive-return", no_broker)
        self._answer = answer
        self.asked: list[str] = []
        self.exchanges = True
        self.gone: set[str] = set()

    async def restore(self, queue: str) -> bool:
        self.asked.append(queue)
        return self._answer()

    async def look(self, queue: str) -> Unreachable | None:
        return Unreachable(f"its queue {queue!r} is gone") if queue in self.gone else None

    async def has_exchange(self, exchange: str) -> bool:
        self.asked.append(exchange)
        return self.exchanges


async def no_broker(_name: str) -> Connection:
    raise AssertionError("nobody should connect")
