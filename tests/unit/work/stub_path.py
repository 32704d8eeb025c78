"""A return path that asks no broker."""

from __future__ import annotations

from collections.abc import Callable

from redrive.amqp import Connection
from redrive.work.return_path import ReturnPath, Unreachable


class StubPath(ReturnPath):
    """Answers as told, and notes what it was asked."""

    def __init__(self, answer: Callable[[], bool] = lambda: True) -> None:
        super().__init__("redrive-return", no_broker)
        self._says = answer
        self.asked: list[str] = []
        self.exchanges = True
        self.seen: dict[str, Unreachable] = {}

    async def restore(self, queue: str) -> bool:
        self.asked.append(queue)
        return self._says()

    async def look(self, queue: str) -> Unreachable | None:
        return self.seen.get(queue)

    async def has_exchange(self, exchange: str) -> bool:
        self.asked.append(exchange)
        return self.exchanges


async def no_broker(_name: str) -> Connection:
    raise AssertionError("nobody should connect")
