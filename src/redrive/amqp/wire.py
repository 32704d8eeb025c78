"""The byte stream of one connection: frames in, frames out, heartbeats, back-pressure.

Incoming bytes are cut into frames here and handed to the channel they belong to; deliveries, the
hot path, are assembled in runs: one after the other, as long as all their frames are there.
Outgoing frames are collected during one turn of the event loop and written together.

Bytes that are no AMQP end the connection with `MalformedData`; a peer that falls silent for two
heartbeat intervals ends it with `ConnectionLost`. Whatever ends it, every channel is told once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from redrive.amqp import frames
from redrive.amqp.delivery import Delivery
from redrive.amqp.fields import text
from redrive.errors import BrokerError, ConnectionLost, MalformedData

if TYPE_CHECKING:
    from redrive.amqp.channel import Channel
    from redrive.amqp.connection import Connection
    from redrive.amqp.consumer import Consumer

_HEAD: Final = frames.HEAD.unpack_from
_CONTENT_HEAD: Final = struct.Struct(
    ">BHIIQ"
).unpack_from  # frame head, class and weight, body size
# Of a whole delivery: kind and channel, size, and of the header frame the body's size.
_RUN_CONTENT_HEAD: Final = struct.Struct(">3sI4xQ").unpack_from
_RUN_BODY_HEAD: Final = struct.Struct(">B3sI").unpack_from  # after the header frame's end
_TAG: Final = struct.Struct(">QB").unpack_from
_METHOD_INDEX: Final = struct.Struct(">I").unpack_from
_HANDSHAKE_FRAME_MAX: Final = 1 << 20
_WRITE_HIGH_WATER: Final = 1 << 20
_BROKERS_ADDITIONS: Final = 1 << 20
"""Bytes by which a header frame may exceed frame-max: brokers add x-death and delivery counts to a
message whose properties filled a frame, and send it all the same. It must not stop the line."""
_ROUTES: Final = 4096
"""How many decoded (exchange, routing key) pairs are kept; routing keys may be unique."""


@cache
def _run_head(length: int) -> Callable[[bytes, int], tuple[bytes, int, bytes, int, int]]:
    """Reads the beginning of a delivery: kind and channel, size, the method with its consumer tag
    (of `length` bytes together), delivery tag, redelivered."""
    return struct.Struct(f">3sI{length}sQB").unpack_from


class Wire(asyncio.Protocol):
    """One connection's stream. `Connection` is its owner and speaks for it to the outside."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._routes: dict[bytes, tuple[str, str]] = {}
        self._out: list[bytes] = []
        self._flush_scheduled = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._over_budget: set[Consumer] = set()
        self._waiting_calls = 0
        self._reading = True
        self._heard = True
        self._wrote = False
        self._silent_ticks = 0
        self._heartbeat: asyncio.TimerHandle | None = None
        self.channels: dict[int, Channel] = {}
        self.frame_max = _HANDSHAKE_FRAME_MAX
        self.error: BrokerError | None = None
        self.disconnected = asyncio.Event()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop does not subclass it
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        self.write(frames.PROTOCOL_HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        self.disconnected.set()
        self.fail(ConnectionLost(f"the connection to the broker was lost: {exc or 'closed by it'}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._rest:
            data = self._rest + data
        touched: list[Consumer] = []
        try:
            position = self._read_frames(data, touched)
        except (IndexError, struct.error):
            self.fail(_lost(MalformedData("a frame's content is cut off")))
            return
        except MalformedData as error:
            self.fail(_lost(error))
            return
        self._rest = data[position:]
        for consumer in touched:
            consumer.wake()

    # Reading

    def _read_frames(self, data: bytes, touched: list[Consumer]) -> int:
        """Handle every whole frame in `data`; where the first incomplete one begins."""
        position, end = 0, len(data)
        channels = self.channels
        while end - position >= 8:
            kind, number, size = _HEAD(data, position)
            stop: int = position + 7 + size
            if stop >= end:
                self._check_size(data, position, size)
                break
            if data[stop] != 0xCE:
                self._check_size(data, position, size)
                raise MalformedData("a frame does not end where it says")
            channel = channels.get(number)
            if kind == frames.METHOD:
                if channel is not None and data.startswith(channel.delivers, position + 7):
                    after = self._read_run(data, position, channel, touched)
                    if after == position:
                        after = self._read_delivery(data, position, stop, channel, touched)
                    position = after
                    continue
                index = _METHOD_INDEX(data, position + 7)[0]
                if index == frames.ACK and channel is not None:
                    tag, multiple = _TAG(data, position + 11)
                    channel.on_answer(tag, multiple=bool(multiple), confirmed=True)
                else:
                    self._on_method(number, index, data[position + 7 : stop])
            elif kind != frames.HEARTBEAT and channel is not None:
                channel.on_content_frame(kind, data[position + 7 : stop], touched)
            position = stop + 1
        return position

    def _check_size(self, data: bytes, position: int, size: int) -> None:
        if data.startswith(b"AMQP", position):
            version = ".".join(str(byte) for byte in data[position + 5 : position + 8])
            raise MalformedData(f"the peer speaks AMQP {version}, not 0-9-1")
        if size + 8 > self.frame_max + _BROKERS_ADDITIONS:
            raise MalformedData(f"a frame of {size} bytes exceeds the agreed {self.frame_max}")

    def _read_run(
        self, data: bytes, position: int, channel: Channel, touched: list[Consumer]
    ) -> int:
        """Read deliveries as long as they follow each other whole; where the next frame begins.

        Flat, because nearly all that a Mover reads passes here. It takes only what is as it mostly
        is: what is cut off, has no body or several frames of it, or makes no sense, is left where
        it begins, for those who look closer.
        """
        number, delivers = channel.number.to_bytes(2), channel.delivers
        method, header, body = b"\x01" + number, b"\x02" + number, b"\x03" + number
        read_head = _run_head(len(delivers))
        to_route = 16 + len(delivers)
        get_route = self._routes.get
        run: list[Delivery] = []
        try:
            while True:
                kind, size, name, tag, redelivered = read_head(data, position)
                stop = position + 7 + size
                if kind != method or name != delivers or data[stop] != 0xCE:
                    break
                raw_route = data[position + to_route : stop]
                route = get_route(raw_route) or self._decode_route(raw_route)
                kind, size, body_size = _RUN_CONTENT_HEAD(data, stop + 1)
                head_stop = stop + 8 + size
                body_stop = head_stop + 8 + body_size
                if (
                    kind != header
                    or size < 12
                    or _RUN_BODY_HEAD(data, head_stop) != (0xCE, body, body_size)
                    or data[body_stop] != 0xCE
                ):
                    break
                run.append(
                    Delivery(
                        tag,
                        redelivered != 0,
                        route[0],
                        route[1],
                        data[stop + 20 : head_stop],
                        data[head_stop + 8 : body_stop],
                    )
                )
                position = body_stop + 1
        except (IndexError, struct.error, MalformedData):
            pass  # cut off, or nonsense
        if run and channel.consumer is not None and channel.consumer.deliver(run):
            touched.append(channel.consumer)
        return position

    def _decode_route(self, raw: bytes) -> tuple[str, str]:
        """Exchange and routing key from the end of a delivery's method frame."""
        key = 1 + raw[0]
        if key + 1 + raw[key] != len(raw):
            raise MalformedData("a delivery's fields do not fill its frame")
        if len(self._routes) >= _ROUTES:
            self._routes.clear()
        route = self._routes[raw] = (text(raw[1:key]), text(raw[key + 1 :]))
        return route

    def _read_delivery(
        self, data: bytes, position: int, stop: int, channel: Channel, touched: list[Consumer]
    ) -> int:
        """Read a basic.deliver and, where they are all here, its header and body frames."""
        consumer = channel.consumer
        if consumer is None:
            raise MalformedData("a delivery for a consumer that is not there")
        at = position + 7 + len(channel.delivers)
        tag, redelivered = _TAG(data, at)
        envelope = (tag, redelivered != 0, *self._decode_route(data[at + 9 : stop]))

        end, head, number = len(data), stop + 1, channel.number
        if end - head < 20:
            channel.expect_delivery(envelope)
            return head
        kind, owner, size, _, body_size = _CONTENT_HEAD(data, head)
        head_stop: int = head + 7 + size
        body = head_stop + 1
        if head_stop >= end or data[head_stop] != 0xCE or (kind, owner) != (2, number) or size < 12:
            channel.expect_delivery(envelope)
            return head
        if body_size == 0:
            next_frame, content = body, b""
        else:
            body_stop = body + 7 + body_size
            # All of it in one frame, and all of that here: the rule for all but large messages.
            if body_stop >= end or _HEAD(data, body) != (3, number, body_size):
                channel.expect_delivery(envelope)
                return head
            if data[body_stop] != 0xCE:
                raise MalformedData("a frame does not end where it says")
            next_frame, content = body_stop + 1, data[body + 7 : body_stop]
        if consumer.deliver([Delivery(*envelope, data[head + 19 : head_stop], content)]):
            touched.append(consumer)
        return next_frame

    def _on_method(self, number: int, index: int, payload: bytes) -> None:
        if number == 0:
            self._connection.on_method(index, payload)
        elif (channel := self.channels.get(number)) is not None:
            channel.on_method(index, payload)

    # Writing

    def write(self, data: bytes) -> None:
        """Queue bytes; everything of one turn of the loop goes out together."""
        self._out.append(data)
        if not self._flush_scheduled:
            self._flush_after_this_turn()

    def write_all(self, pieces: Iterable[bytes]) -> None:
        """Queue the pieces of frames, in their order."""
        self._out += pieces
        if not self._flush_scheduled:
            self._flush_after_this_turn()

    def _flush_after_this_turn(self) -> None:
        self._flush_scheduled = True
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._flush_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand what is queued to the system now; what the socket does not take, when it does."""
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._wrote = True
            try:
                self._transport.write(b"".join(out) if len(out) > 1 else out[0])
            except RuntimeError as error:
                # A connect that is given up just when it succeeds: uvloop has closed the socket,
                # and says so neither by `is_closing` nor by `connection_lost`.
                self.fail(ConnectionLost(f"the connection to the broker was lost: {error}"))

    async def writable(self) -> None:
        """Wait until the socket takes bytes again."""
        while not self._writable.is_set():
            if self.error is not None:
                raise self.error
            await self._writable.wait()
        if self.error is not None:
            raise self.error

    # Back-pressure on what we read

    def over_budget(self, consumer: Consumer, *, over: bool) -> None:
        """Stop or resume reading: the only brake that bounds memory by bytes."""
        if over:
            self._over_budget.add(consumer)
        else:
            self._over_budget.discard(consumer)
        self._adjust_reading()

    @property
    def is_held_back(self) -> bool:
        """Whether nothing is read, for the sake of a budget."""
        return not self._reading

    def call_began(self) -> None:
        """An answer is awaited, which may lie behind deliveries: read on, whatever the budget."""
        self._waiting_calls += 1
        self._adjust_reading()

    def call_ended(self) -> None:
        self._waiting_calls -= 1
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        wanted = not self._over_budget or self._waiting_calls > 0
        if wanted == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Heartbeats

    def start_heartbeats(self, interval: float) -> None:
        """Send one whenever we were silent for half the interval, and expect the same."""
        if interval > 0:
            self._heartbeat = self._loop.call_later(interval / 2, self._on_heartbeat, interval)

    def _on_heartbeat(self, interval: float) -> None:
        if not self._wrote:
            self.write(frames.HEARTBEAT_FRAME)
        self._wrote = False
        # While reading is paused we are the ones who do not listen.
        self._silent_ticks = 0 if self._heard or not self._reading else self._silent_ticks + 1
        self._heard = False
        if self._silent_ticks >= 4:
            self.fail(ConnectionLost(f"the broker was silent for {2 * interval:g} s"))
            return
        self._heartbeat = self._loop.call_later(interval / 2, self._on_heartbeat, interval)

    # The end

    def fail(self, error: BrokerError) -> None:
        """Give the connection up: nothing more is read or written, every channel learns why."""
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def end(self, error: BrokerError) -> None:
        """The connection was closed in good order: what is queued still goes out."""
        self.flush()
        self._end(error)
        if self._transport is not None:
            self._transport.close()

    def _end(self, error: BrokerError) -> None:
        if self.error is not None:
            return
        self.error = error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._writable.set()
        for channel in list(self.channels.values()):
            channel.on_closed(error)
        self.channels.clear()
        self._connection.on_lost(error)


def _lost(error: MalformedData) -> ConnectionLost:
    return ConnectionLost(f"the broker sent what cannot be read: {error}")
