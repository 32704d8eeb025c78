"""pika on asyncio: publishes without waiting, acks in ranges as confirms come in."""

from __future__ import annotations

import asyncio
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from bench.movers import PREFETCH, NotTaken, Order


class _Pipeline:
    """One connection with a channel to consume on and one to publish on."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._confirmed: set[int] = set()
        self._upto = 0  # the broker has confirmed every publish up to this one
        self._acked = 0
        self._ack_scheduled = False
        self._connection = AsyncioConnection(
            pika.URLParameters(order.url),
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_end,
            on_close_callback=self._on_end,
            custom_ioloop=self._loop,
        )

    def close(self) -> None:
        self._ack()
        self._connection.close()

    def _on_end(self, _: Any, error: BaseException) -> None:
        if self.ended.done():
            return
        if isinstance(error, pika.exceptions.ConnectionClosedByClient):
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_sending)

    def _on_sending(self, channel: Any) -> None:
        self._sending = channel
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_answer, callback=self._on_confirming)

    def _on_confirming(self, _: Any) -> None:
        self._connection.channel(on_open_callback=self._on_receiving)

    def _on_receiving(self, channel: Any) -> None:
        self._receiving = channel
        channel.basic_qos(prefetch_count=PREFETCH, callback=self._on_qos)

    def _on_qos(self, _: Any) -> None:
        self._receiving.basic_consume(self._order.source, self._on_message)

    # Delivery tag n is publish n: both channels do nothing else, in this order.

    def _on_message(self, _: Any, __: Any, properties: Any, body: bytes) -> None:
        properties.delivery_mode = 2
        self._sending.basic_publish("", self._order.target, body, properties, mandatory=True)

    def _on_return(self, _: Any, method: Any, __: Any, ___: bytes) -> None:
        self._fail(f"returned: {method.reply_text}")

    def _on_answer(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            self._fail("refused by the broker")
        elif method.multiple:
            self._upto = max(self._upto, method.delivery_tag)
        else:
            self._confirmed.add(method.delivery_tag)
        if not self._ack_scheduled:
            self._ack_scheduled = True
            self._loop.call_soon(self._ack)

    def _ack(self) -> None:
        self._ack_scheduled = False
        while self._upto + 1 in self._confirmed:
            self._upto += 1
            self._confirmed.remove(self._upto)
        if self._upto > self._acked:
            self._acked = self._upto
            self._receiving.basic_ack(self._upto, multiple=True)

    def _fail(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(NotTaken(reason))


async def move(order: Order, stop: asyncio.Event) -> None:
    """Move until told to stop."""
    pipeline = _Pipeline(order)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((pipeline.ended, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not pipeline.ended.done():
        pipeline.close()
    await pipeline.ended
