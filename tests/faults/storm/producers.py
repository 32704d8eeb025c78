"""Producers: each message of the plan is published once, when its time has come.

A message whose confirm does not arrive is in doubt, and is not published again: it may be in its
queue or not, and either is right.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

from redrive.amqp import Confirmed, Connection, Properties, Publish, Publisher, connect, fields
from redrive.amqp.address import parse_addresses
from redrive.errors import BrokerError
from tests.faults.storm.journal import Journal, Published
from tests.faults.storm.messages import EXCHANGE, GHOSTS, Message

PATIENCE: Final = 40.0
"""Seconds after which a confirm is not waited for any more."""
UNCONFIRMED: Final = 10
"""So many at most are in doubt when the broker is lost."""
AGAIN: Final = 0.3
UNWIELDY: Final = 131_072 - 20 - 250
"""Bytes of properties that fit a frame, and do not once the retrier has added its own."""


class Producer:
    """Publishes messages in their order; they are confirmed in any."""

    def __init__(self, urls: str, seed: int, journal: Journal) -> None:
        self._addresses = parse_addresses(urls)
        self._seed = seed
        self._journal = journal
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        self._confirms: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(UNCONFIRMED)

    async def publish(self, messages: Sequence[Message]) -> None:
        """All of them, each at its time or later; returns when each has an outcome."""
        began = self._journal.began
        for message in messages:
            await asyncio.sleep(max(0.0, began + message.at - time.time()))
            await self._room.acquire()
            publisher = await self._ready()
            sending = asyncio.create_task(self._send(publisher, message))
            self._confirms.add(sending)
            sending.add_done_callback(self._confirmed)
        await asyncio.gather(*self._confirms)
        if self._connection is not None:
            self._connection.abort()

    def _confirmed(self, sending: asyncio.Task[None]) -> None:
        self._confirms.discard(sending)
        self._room.release()

    async def _ready(self) -> Publisher:
        """A publisher that works, as far as is known."""
        while True:
            if self._publisher is not None and not self._publisher.closed:
                with contextlib.suppress(BrokerError, TimeoutError):
                    await asyncio.wait_for(self._publisher.ready(), PATIENCE)
                    return self._publisher
            if self._connection is not None:
                self._connection.abort()
            try:
                self._connection = await connect(self._addresses, name="producer")
                self._publisher = await (await self._connection.channel()).publisher()
            except BrokerError:
                await asyncio.sleep(AGAIN)

    async def _send(self, publisher: Publisher, message: Message) -> None:
        at = time.time()
        confirmed = False
        with contextlib.suppress(BrokerError, TimeoutError):
            outcome = await asyncio.wait_for(publisher.send(self._publish_of(message)), PATIENCE)
            confirmed = isinstance(outcome, Confirmed)
        self._journal.published.append(Published(message, at, confirmed))

    def _publish_of(self, message: Message) -> Publish:
        properties = Properties.empty().with_text("message_id", message.identity).persistent()
        properties = properties.with_headers({"storm": fields.longstr(b"\xff\x00" * 3)})
        if message.kind == "mended":
            properties = properties.with_text("content_type", "application/json")
        body = message.body(self._seed)
        if message.queue == GHOSTS:  # as a consumer that sends its retries by itself
            to_nowhere = {"redrive-queue": fields.longstr(GHOSTS)}
            raw = properties.with_headers(to_nowhere).raw
            return Publish("retry-exchange", message.key, raw, body)
        if message.kind == "unwieldy":
            empty = properties.with_headers({"filling": fields.longstr("")})
            filling = "x" * (UNWIELDY - len(empty.raw))
            properties = properties.with_headers({"filling": fields.longstr(filling)})
        return Publish(EXCHANGE, message.key, properties.raw, body)
