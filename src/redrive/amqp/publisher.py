"""A publisher: pipelined publishes on a confirming channel, each with an outcome.

`publish` never waits; `ready` does, while the socket is full or the broker has blocked publishers.
Outcomes come in batches from `next_outcomes`, or one by one from `send`.

When the channel or connection ends, `next_outcomes` and `send` raise its error, and what is still
in `unanswered` is in doubt: it may or may not have reached a queue.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from redrive.amqp import frames
from redrive.amqp.confirms import Outcome, Publish, Returned, Settled, Unconfirmed
from redrive.errors import BrokerError, Unpublishable

if TYPE_CHECKING:
    from redrive.amqp.channel import Channel

_ROUTES: Final = 4096
"""How many encoded (exchange, routing key) pairs are kept; routing keys may be unique."""

_CONTENT_HEAD: Final = struct.Struct(">BHIIQ").pack  # frame head, class and weight, body size
_BODY_HEAD: Final = struct.Struct(">BBHI").pack  # the header frame's end, frame head
_BASIC: Final = 60 << 16
"""The class of every message, and no weight."""


class Publisher:
    """Publishes on one channel, always mandatory. Made by `Channel.publisher`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._unconfirmed = Unconfirmed()
        self._settled: list[Settled] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: BrokerError | None = None
        self._routes: dict[tuple[str, str], bytes] = {}
        self._awaited = 0  # publishes whose outcome someone waits for by itself

    # The wire's side

    def on_answer(self, tag: int, *, multiple: bool, confirmed: bool) -> None:
        settled = self._unconfirmed.answered(tag, multiple=multiple, confirmed=confirmed)
        if self._awaited:
            settled = self._answer(settled)
        self._settled += settled
        if self._settled and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _answer(self, settled: list[Settled]) -> list[Settled]:
        """Tell those who wait for one outcome; the rest."""
        others: list[Settled] = []
        for item in settled:
            publish, outcome = item
            if publish.answer is None:
                others.append(item)
                continue
            self._awaited -= 1
            if not publish.answer.done():
                publish.answer.set_result(outcome)
        return others

    def on_return(self, outcome: Returned, given_back: Publish) -> None:
        self._unconfirmed.returned(outcome, given_back)

    def end(self, error: BrokerError) -> None:
        self._error = error
        for publish in self._unconfirmed.publishes():
            if publish.answer is not None and not publish.answer.done():
                publish.answer.set_exception(error)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The owner's side

    @property
    def unanswered(self) -> list[Publish]:
        """The publishes that the broker has not answered, oldest first."""
        return self._unconfirmed.publishes()

    @property
    def closed(self) -> bool:
        return self._error is not None

    async def ready(self) -> None:
        """Wait until publishing makes sense: not blocked by the broker, room in the socket."""
        await self._channel.connection.unblocked()
        await self._channel.wire.writable()

    def publish(self, publish: Publish) -> None:
        """Send a message. Raises `Unpublishable` for one that would end the connection."""
        for _, error in self.publish_all((publish,)):
            raise error

    def publish_all(self, publishes: Iterable[Publish]) -> list[tuple[Publish, Unpublishable]]:
        """Send messages, in their order. Those that would end the connection come back unsent."""
        if self._error is not None:
            raise self._error
        wire, number, get_route = self._channel.wire, self._channel.number, self._routes.get
        most_properties = wire.frame_max - frames.PROPERTIES_OVERHEAD
        most_body = wire.frame_max - frames.FRAME_OVERHEAD
        pieces: list[bytes] = []
        sent: list[Publish] = []
        refused: list[tuple[Publish, Unpublishable]] = []
        try:
            for publish in publishes:
                properties, body = publish.properties, publish.body
                room, size = len(properties), len(body)
                route = (publish.exchange, publish.routing_key)
                method = get_route(route)
                if (
                    method is not None
                    and room <= most_properties
                    and 0 < size <= most_body
                    and type(body) is bytes  # or all that goes out with it could not be joined
                ):
                    # The rule: a known way, one body frame. As pieces, since they are joined once
                    # with all that goes out; `frames.message` would join them here as well.
                    pieces += (
                        method,
                        _CONTENT_HEAD(frames.HEADER, number, 12 + room, _BASIC, size),
                        properties,
                        _BODY_HEAD(frames.END, frames.BODY, number, size),
                        body,
                        frames.END_BYTE,
                    )
                else:
                    try:
                        pieces.append(self._encoded(publish, route))
                    except Unpublishable as error:
                        refused.append((publish, error))
                        continue
                sent.append(publish)
        finally:
            # Whatever happens, what goes out is what an answer is expected for.
            wire.write_all(pieces)
            self._unconfirmed.add_all(sent)
        return refused

    def _encoded(self, publish: Publish, route: tuple[str, str]) -> bytes:
        frame_max = self._channel.wire.frame_max
        method = self._routes.get(route) or self._encode_route(route)
        frames.refuse_oversized(publish.properties, frame_max)
        return frames.message(
            method, self._channel.number, publish.properties, publish.body, frame_max
        )

    def _encode_route(self, route: tuple[str, str]) -> bytes:
        if len(self._routes) >= _ROUTES:
            self._routes.clear()
        method = frames.publish_method(self._channel.number, *route)
        self._routes[route] = method
        return method

    async def send(self, publish: Publish) -> Outcome:
        """Publish one message and wait for its outcome."""
        await self.ready()
        publish.answer = asyncio.get_running_loop().create_future()
        self.publish(publish)
        self._awaited += 1
        return await publish.answer

    async def next_outcomes(self) -> list[Settled]:
        """Wait for outcomes and take all that are there."""
        while not self._settled:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        settled, self._settled = self._settled, []
        return settled
