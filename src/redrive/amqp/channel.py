"""A channel: calls to the broker, and a place for one consumer and one publisher.

Calls are answered in order, so one is under way at a time. When the broker closes the channel,
the waiting call, the consumer and the publisher all get the same typed error with the broker's
own text; the connection lives on.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from pamqp import base, commands
from pamqp.common import Arguments

from redrive.amqp import frames
from redrive.amqp.budget import Budget
from redrive.amqp.confirms import Publish, Returned
from redrive.amqp.consumer import Consumer
from redrive.amqp.delivery import Delivery
from redrive.amqp.frames import request
from redrive.amqp.publisher import Publisher
from redrive.errors import (
    AccessRefused,
    BrokerError,
    ChannelClosed,
    ConsumerCancelled,
    MalformedData,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)

if TYPE_CHECKING:
    from redrive.amqp.connection import Connection
    from redrive.amqp.wire import Wire

_ERRORS: Final[dict[int, type[ChannelClosed]]] = {
    403: AccessRefused,
    404: NotFound,
    405: ResourceLocked,
    406: PreconditionFailed,
}
_ANSWERS_WITHIN: Final = 60.0
_NO_CONSUMER: Final = b"\xff"  # no method begins so
_UNBOUNDED: Final = 1 << 62
_Reply = TypeVar("_Reply", bound=base.Frame)
_consumer_numbers = itertools.count(1)


class _Content:
    """A message whose header and body frames are still arriving."""

    __slots__ = ("chunks", "consumer", "envelope", "missing", "properties", "returned")

    def __init__(
        self,
        envelope: tuple[int, bool, str, str],
        *,
        consumer: Consumer | None = None,
        returned: Returned | None = None,
    ) -> None:
        self.envelope = envelope  # tag, redelivered, exchange, routing key
        self.consumer = consumer
        self.returned = returned
        self.properties = b""
        self.missing = -1  # body bytes to come; -1 until the header frame told
        self.chunks: list[bytes] = []


class Channel:
    """One channel of a connection. Made by `Connection.channel`."""

    def __init__(self, connection: Connection, wire: Wire, number: int) -> None:
        self.connection = connection
        self.wire = wire
        self.number = number
        self.error: BrokerError | None = None
        self._call_lock = asyncio.Lock()
        # Of the calls that the broker has not answered yet, also those that were given up.
        self._replies: deque[asyncio.Future[base.Frame | Delivery]] = deque()
        self.consumer: Consumer | None = None
        self.delivers = _NO_CONSUMER
        self._publisher: Publisher | None = None
        self._transacts = False
        self._commits: deque[int] = deque()  # what each that is not answered will have committed
        self.committed = 0
        """How many deliveries the broker is known to have had an answer to, by transactions."""
        self._content: _Content | None = None

    # Queues and exchanges

    async def declare_queue(
        self,
        queue: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
    ) -> str:
        """Declare a queue; its name, which the broker chose if `queue` is empty."""
        ok = await self.call(
            request(
                commands.Queue.Declare,
                queue=queue,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
            ),
            commands.Queue.DeclareOk,
        )
        return str(ok.queue)

    async def inspect_queue(self, queue: str, *, patiently: bool = False) -> tuple[int, int]:
        """Ready messages and consumers of a queue that must exist (a passive declare).

        `patiently`: see `call`.
        """
        ok = await self.call(
            request(commands.Queue.Declare, queue=queue, passive=True),
            commands.Queue.DeclareOk,
            patiently=patiently,
        )
        return int(ok.message_count or 0), int(ok.consumer_count or 0)

    async def delete_queue(
        self, queue: str, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue; how many messages were in it."""
        ok = await self.call(
            request(commands.Queue.Delete, queue=queue, if_unused=if_unused, if_empty=if_empty),
            commands.Queue.DeleteOk,
        )
        return int(ok.message_count or 0)

    async def purge_queue(self, queue: str) -> int:
        """Drop a queue's ready messages; how many there were."""
        ok = await self.call(request(commands.Queue.Purge, queue=queue), commands.Queue.PurgeOk)
        return int(ok.message_count or 0)

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        await self.call(
            request(
                commands.Queue.Bind,
                queue=queue,
                exchange=exchange,
                routing_key=routing_key,
                arguments=arguments,
            ),
            commands.Queue.BindOk,
        )

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        await self.call(
            request(
                commands.Queue.Unbind,
                queue=queue,
                exchange=exchange,
                routing_key=routing_key,
                arguments=arguments,
            ),
            commands.Queue.UnbindOk,
        )

    async def declare_exchange(
        self,
        exchange: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        await self.call(
            request(
                commands.Exchange.Declare,
                exchange=exchange,
                exchange_type=kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            ),
            commands.Exchange.DeclareOk,
        )

    async def inspect_exchange(self, exchange: str) -> None:
        """Raise `NotFound` unless the exchange exists (a passive declare)."""
        await self.call(
            request(commands.Exchange.Declare, exchange=exchange, passive=True),
            commands.Exchange.DeclareOk,
        )

    async def delete_exchange(self, exchange: str, *, if_unused: bool = False) -> None:
        await self.call(
            request(commands.Exchange.Delete, exchange=exchange, if_unused=if_unused),
            commands.Exchange.DeleteOk,
        )

    # Messages

    async def consume(  # noqa: PLR0913  (each is an option)
        self,
        queue: str,
        *,
        prefetch: int,
        budget: Budget | None = None,
        exclusive: bool = False,
        for_channel: bool = False,
        arguments: Arguments | None = None,
        patiently: bool = False,
    ) -> Consumer:
        """Consume a queue, at most `prefetch` messages unsettled at a time, and no more bytes than
        the budget has.

        `for_channel` makes it the channel's prefetch, which only classic queues know.
        """
        if self.consumer is not None:
            raise BrokerError("a channel has one consumer", remedy="open another channel")
        await self.call(
            request(commands.Basic.Qos, prefetch_count=prefetch, global_=for_channel),
            commands.Basic.QosOk,
            patiently=patiently,
        )
        if self.error is not None:  # closed since the answer: nobody would tell the consumer
            raise self.error
        tag = f"redrive-{next(_consumer_numbers)}"
        self.delivers = frames.DELIVER.to_bytes(4) + frames.shortstr(tag)
        self.consumer = Consumer(
            self, queue, tag, prefetch=prefetch, budget=budget or Budget(_UNBOUNDED)
        )
        await self.call(
            request(
                commands.Basic.Consume,
                queue=queue,
                consumer_tag=tag,
                exclusive=exclusive,
                arguments=arguments,
            ),
            commands.Basic.ConsumeOk,
            patiently=patiently,
        )
        return self.consumer

    async def cancel(self, consumer_tag: str, *, patiently: bool = False) -> None:
        await self.call(
            request(commands.Basic.Cancel, consumer_tag=consumer_tag),
            commands.Basic.CancelOk,
            patiently=patiently,
        )

    async def transact(self) -> None:
        """Let the consumer to come settle in transactions: what it answers between two commits goes
        to the queue as one, not each by itself."""
        await self.call(request(commands.Tx.Select), commands.Tx.SelectOk)
        self._transacts = True

    def commit(self) -> None:
        """Put into force what was settled, on a channel that transacts. Nobody waits for it: where
        it fails, the broker closes the channel, and what it held is void, as any ack would be.

        An ack by itself has no answer: written to a connection that is lost, it may or may not have
        been read. Of a commit's answer `committed` knows. Tried on 3.10.8, by stopping the broker
        in the middle of a sweep: exactly those acks were lost whose commit had no answer. A broker
        that is killed may also forget answered ones: it writes acks down late.
        """
        if self._transacts:
            if self.consumer is not None:
                self._commits.append(self.consumer.answered)
            self.wire.write(frames.encode_method(commands.Tx.Commit(), self.number))

    async def publisher(self) -> Publisher:
        """Turn on confirms and give the channel's publisher."""
        if self._publisher is None:
            await self.call(request(commands.Confirm.Select), commands.Confirm.SelectOk)
            self._publisher = Publisher(self)
        return self._publisher

    async def get(self, queue: str) -> Delivery | None:
        """Take one message off a queue, unacked; None if there is none."""
        if self.consumer is not None:
            raise BrokerError(
                "a channel that consumes cannot get: its delivery tags would have gaps",
                remedy="open another channel",
            )
        reply = await self._call(request(commands.Basic.Get, queue=queue))
        if isinstance(reply, Delivery):
            return reply
        if isinstance(reply, commands.Basic.GetEmpty):
            return None
        raise BrokerError(f"the broker answered basic.get with {reply.name}")

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Ack a delivery that came from `get`. A consumer acks its own."""
        self._settle(frames.ack(self.number, tag, multiple=multiple))

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool) -> None:
        self._settle(frames.nack(self.number, tag, multiple=multiple, requeue=requeue))

    def reject(self, tag: int, *, requeue: bool) -> None:
        self._settle(frames.reject(self.number, tag, requeue=requeue))

    def flush(self) -> None:
        """Write what is queued before the turn of the loop ends: should the process end in the next
        moment, it is on its way."""
        self.wire.flush()

    def _settle(self, frame: bytes) -> None:
        # The number of a closed channel may be another's by now, and so would be the ack.
        if self.error is not None:
            raise self.error
        self.wire.write(frame)

    async def open(self, *, patiently: bool = False) -> None:
        await self.call(
            request(commands.Channel.Open), commands.Channel.OpenOk, patiently=patiently
        )

    async def close(self) -> None:
        """Close the channel: unsettled deliveries go back to their queues."""
        if self.error is not None:
            return
        closed = BrokerError("the channel was closed by its owner")
        if self.consumer is not None:
            self.consumer.end(closed)
        await self.call(
            request(
                commands.Channel.Close, reply_code=200, reply_text="bye", class_id=0, method_id=0
            ),
            commands.Channel.CloseOk,
        )
        self.wire.channels.pop(self.number, None)
        self.on_closed(closed)

    # Calls

    async def call(
        self, method: base.Frame, expected: type[_Reply], *, patiently: bool = False
    ) -> _Reply:
        """Send a method and wait for the broker's answer to it.

        That lies behind deliveries that are on their way, of all channels, and they are read for
        its sake whatever their budget. `patiently`: they are not, and it may take long.
        """
        reply = await self._call(method, patiently=patiently)
        if not isinstance(reply, expected):
            raise BrokerError(f"the broker answered {method.name} with {reply!r}")
        return reply

    async def _call(self, method: base.Frame, *, patiently: bool = False) -> base.Frame | Delivery:
        async with self._call_lock:
            if self.error is not None:
                raise self.error
            reply: asyncio.Future[base.Frame | Delivery]
            reply = asyncio.get_running_loop().create_future()
            if not patiently:
                self.wire.call_began()
            try:
                self.wire.write(frames.encode_method(method, self.number))
                self._replies.append(reply)
                while True:
                    await asyncio.wait((reply,), timeout=_ANSWERS_WITHIN)
                    if reply.done():
                        return reply.result()
                    if not (patiently and self.wire.is_held_back):
                        break
                raise BrokerError(
                    f"the broker did not answer {method.name} within {_ANSWERS_WITHIN:g} s",
                    remedy="a quorum queue without a leader looks like this: check the cluster",
                )
            finally:
                if not reply.cancel() and not reply.cancelled():
                    reply.exception()  # whoever is cancelled as the channel closes asks for none
                if not patiently:
                    self.wire.call_ended()

    def _answer(self, answer: base.Frame | Delivery) -> None:
        if not self._replies:
            return
        # The oldest call's, whether or not somebody still waits for it: one that was given up may
        # be answered before its task has run and knows that it was.
        reply = self._replies.popleft()
        if not reply.done():
            reply.set_result(answer)

    # The wire's side

    def on_answer(self, tag: int, *, multiple: bool, confirmed: bool) -> None:
        if self._publisher is None:
            raise MalformedData("a confirm on a channel that does not publish")
        self._publisher.on_answer(tag, multiple=multiple, confirmed=confirmed)

    def expect_delivery(self, envelope: tuple[int, bool, str, str]) -> None:
        self._content = _Content(envelope, consumer=self.consumer)

    def on_method(self, index: int, payload: bytes) -> None:
        if index == frames.NACK:
            tag, flags = int.from_bytes(payload[4:12]), payload[12]
            self.on_answer(tag, multiple=bool(flags & 1), confirmed=False)
        elif index == frames.RETURN:
            code, reason, exchange, routing_key = frames.decode_return(payload)
            envelope = (0, False, exchange, routing_key)
            self._content = _Content(envelope, returned=Returned(code, reason))
        elif index == frames.GET_OK:
            tag, redelivered, exchange, routing_key, _ = frames.decode_get_ok(payload)
            self._content = _Content((tag, redelivered, exchange, routing_key))
        elif index == frames.DELIVER:
            raise MalformedData("a delivery for a consumer that is not there")
        elif index == frames.COMMIT_OK:
            if self._commits:  # no call's answer: see `commit`
                self.committed = self._commits.popleft()
        elif index == frames.CHANNEL_CLOSE:
            self.wire.write(frames.encode_method(request(commands.Channel.CloseOk), self.number))
            self.wire.channels.pop(self.number, None)
            code, reason = frames.decode_close(payload)
            self.on_closed(_ERRORS.get(code, ChannelClosed)(code, reason))
        elif index == commands.Basic.Cancel.index:
            if self.consumer is not None:
                cancelled = ConsumerCancelled("the broker cancelled the consumer")
                self.consumer.end(cancelled, closed=False)
        elif index == commands.Channel.Flow.index:
            flow = frames.decode_method(payload)
            assert isinstance(flow, commands.Channel.Flow)
            self.wire.write(
                frames.encode_method(
                    request(commands.Channel.FlowOk, active=flow.active), self.number
                )
            )
        else:
            self._answer(frames.decode_method(payload))

    def on_content_frame(self, kind: int, payload: bytes, touched: list[Consumer]) -> None:
        content = self._content
        if content is None:
            raise MalformedData("a content frame without a method before it")
        if kind == frames.HEADER and content.missing < 0:
            if len(payload) < frames.CONTENT_HEADER_OVERHEAD:
                raise MalformedData("a header frame is cut off")
            content.missing = int.from_bytes(payload[4:12])
            content.properties = payload[frames.CONTENT_HEADER_OVERHEAD :]
        elif kind == frames.BODY and 0 <= len(payload) <= content.missing:
            content.chunks.append(payload)
            content.missing -= len(payload)
        else:
            raise MalformedData(f"an unexpected frame of type {kind} within a message")
        if content.missing == 0:
            self._content = None
            self._on_content(content, touched)

    def _on_content(self, content: _Content, touched: list[Consumer]) -> None:
        delivery = Delivery(*content.envelope, content.properties, b"".join(content.chunks))
        if content.consumer is not None:
            if content.consumer.deliver([delivery]):
                touched.append(content.consumer)
        elif content.returned is None:
            self._answer(delivery)
        elif self._publisher is not None:
            given_back = Publish(
                delivery.exchange, delivery.routing_key, delivery.properties, delivery.body
            )
            self._publisher.on_return(content.returned, given_back)

    def on_closed(self, error: BrokerError) -> None:
        """The channel is gone: tell everyone who waits on it."""
        if self.error is not None:
            return
        self.error = error
        for reply in self._replies:
            if not reply.done():
                reply.set_exception(error)
        if self.consumer is not None:
            self.consumer.end(error)
        if self._publisher is not None:
            self._publisher.end(error)
