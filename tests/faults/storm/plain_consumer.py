"""Somebody else's consumer in a process of its own: blocking pika, which knows nothing of Redrive.

It acks what it takes and rejects the rest, and connects again whenever it has lost the broker.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from tests.faults.storm.journal import Consumed, Notes
from tests.faults.storm.messages import INVOICES, PARCELS, digest_of, takes
from tests.faults.storm.sdk_consumer import Scene

AGAIN = 0.3
"""Seconds after which a lost broker is tried again."""
LOST = (AMQPError, AMQPConnectorException, OSError)
"""What pika says of a broker that is not there. The second is no AMQPError: it comes when a
connection is taken and then nobody answers."""


class Told(BaseException):
    """SIGTERM."""


def tries_of(headers: dict[str, Any], queue: str) -> int:
    """How often it failed in this queue before: by Redrive's count, else by the broker's."""
    deaths = headers.get("x-death") or []
    counted = sum(int(death["count"]) for death in deaths if death.get("queue") == queue)
    return max(int(headers.get("redrive-attempt") or 0), counted)


class PlainConsumer:
    """Serves `invoices` and `parcels`."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._notes = Notes(Path(scene.folder) / f"{scene.name}.notes")

    def serve(self) -> None:
        urls = self._scene.urls.split(",")
        random.shuffle(urls)
        for url in itertools.cycle(urls):
            with contextlib.suppress(*LOST):
                self._session(url)
            time.sleep(AGAIN)

    def _session(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        parameters.socket_timeout = parameters.stack_timeout = 3
        parameters.blocked_connection_timeout = None
        try:
            connection = pika.BlockingConnection(parameters)
        except ValueError:  # pika's, of a connection that was cut as soon as it was taken
            return
        try:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10)
            for queue in (INVOICES, PARCELS):
                channel.basic_consume(queue, self._handler_of(queue))
            channel.add_on_cancel_callback(lambda _: connection.close())
            while connection.is_open and channel.is_open:
                connection.process_data_events(time_limit=0.5)
        finally:
            with contextlib.suppress(*LOST):
                connection.close()

    def _handler_of(self, queue: str) -> Any:
        def handle(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            if self._scene.is_slow:
                time.sleep(0.3)
            headers = dict(properties.headers or {})
            letter, identity = headers.get("redrive-letter"), properties.message_id or ""
            tries = tries_of(headers, queue)
            if not takes(identity, body, tries, replayed=letter is not None):
                channel.basic_reject(method.delivery_tag, requeue=False)
                return
            self._notes.take(
                Consumed(
                    identity=identity,
                    digest=digest_of(body),
                    queue=queue,
                    key=method.routing_key,
                    letter=letter,
                    generation=int(headers.get("redrive-generation") or 0) if letter else 0,
                    at=time.time(),
                )
            )
            channel.basic_ack(method.delivery_tag)

        return handle


def stop(*_: object) -> None:
    raise Told


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    with contextlib.suppress(Told):
        PlainConsumer(Scene(**json.loads(sys.argv[1]))).serve()
