"""A consumer of the SDK in a process of its own: `python -m` with a Scene. Serves `orders`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from redrive import Consumer, Message, Queue
from tests.faults.storm.journal import Consumed, Notes
from tests.faults.storm.messages import EXCHANGE, KEYS, ORDERS, digest_of, kind_of, takes


@dataclass(frozen=True, slots=True)
class Scene:
    """What a consumer's process is told."""

    name: str
    urls: str
    folder: str
    config: str = ""

    @property
    def is_slow(self) -> bool:
        return (Path(self.folder) / "slow").exists()


def refuse(identity: str) -> None:
    """Fail as real handlers do: some errors pass by themselves, others do not."""
    if kind_of(identity) == "revived":
        raise TimeoutError("the bank did not answer")
    if kind_of(identity) == "hopeless":
        raise ConnectionRefusedError("connection refused")
    raise ValueError("no such order")


def run(scene: Scene) -> None:
    consumer = Consumer(scene.urls, config=scene.config, name=scene.name)
    notes = Notes(Path(scene.folder) / f"{scene.name}.notes")
    queue = Queue(ORDERS, exchange=EXCHANGE, routing_key=KEYS[ORDERS], ttl=None)

    @consumer.handler(queue, retries=2, concurrency=5, prefetch=20)
    async def handle(message: Message) -> None:
        identity = message.message_id or ""
        if scene.is_slow:
            await asyncio.sleep(0.3)
        replayed = message.letter is not None
        if not takes(identity, message.body, message.retry_count, replayed=replayed):
            refuse(identity)
        generation = message.headers.get("redrive-generation", 0)
        assert isinstance(generation, int)
        notes.take(
            Consumed(
                identity=identity,
                digest=digest_of(message.body),
                queue=message.queue,
                key=message.routing_key,
                letter=message.letter,
                generation=generation if replayed else 0,
                at=time.time(),
            )
        )

    consumer.run()


if __name__ == "__main__":
    run(Scene(**json.loads(sys.argv[1])))
