"""Somebody else's consumer: blocking pika in a thread. It knows nothing of Redrive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pika

from tests.services.eventually import DEADLINE, eventually_async


@dataclass(frozen=True)
class Seen:
    """A delivery, as pika shows it."""

    routing_key: str
    message_id: str | None
    headers: dict[str, Any]
    body: bytes


def reject_all(_: Seen) -> bool:
    return False


@dataclass
class PlainConsumer:
    """Acks what `accepts` says and rejects the rest, without requeue."""

    url: str
    queue: str
    accepts: Callable[[Seen], bool] = reject_all
    seen: list[Seen] = field(default_factory=list)
    failure: BaseException | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)

    def serve(self) -> None:
        try:
            connection = pika.BlockingConnection(pika.URLParameters(self.url))
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10)
            for method, properties, body in channel.consume(self.queue, inactivity_timeout=0.05):
                if self._stopping.is_set():
                    break
                if method is None:
                    continue
                found = Seen(
                    method.routing_key, properties.message_id, dict(properties.headers or {}), body
                )
                self.seen.append(found)
                if self.accepts(found):
                    channel.basic_ack(method.delivery_tag)
                else:
                    channel.basic_reject(method.delivery_tag, requeue=False)
            connection.close()
        except BaseException as error:
            self.failure = error
            raise

    async def has_seen(self, count: int, *, within: float = DEADLINE) -> None:
        def enough() -> bool:
            assert self.failure is None, self.failure
            return len(self.seen) >= count

        await eventually_async(enough, within=within, what=f"delivery {count} of {self.queue}")

    @contextmanager
    def running(self) -> Iterator[PlainConsumer]:
        thread = threading.Thread(target=self.serve, name=f"consumer of {self.queue}")
        thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            thread.join(30)
            assert not thread.is_alive()
        assert self.failure is None, self.failure
