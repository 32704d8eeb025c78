"""The byte stream: any cut gives the same messages, any nonsense ends in one typed error."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from redrive.amqp import (
    Budget,
    Channel,
    Consumer,
    Delivery,
    Outcome,
    Publish,
    Publisher,
    Refused,
    Returned,
    connect,
    frames,
    parse_addresses,
)
from redrive.errors import (
    BrokerError,
    ChannelClosed,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    NotFound,
    Unpublishable,
)
from tests.services.eventually import eventually_async
from tests.strategies import damaged, sections
from tests.stub_transport import Stub, content, deliver, frame, give_back, method

SIZES = st.sampled_from([0, 1, 2, 50, 4088, 4089, 9000])
CUTS = st.lists(st.integers(1, 3000), max_size=40)


@dataclass(frozen=True)
class Said:
    """Something a broker says: a delivery, a return and its ack, a nack, or a heartbeat."""

    kind: str
    size: int
    properties: bytes
    pieces: tuple[int, ...]

    @property
    def body(self) -> bytes:
        return bytes(at * 7 % 256 for at in range(self.size))


SAID = st.builds(
    Said,
    kind=st.sampled_from(["deliver", "deliver", "return", "ack", "nack", "heartbeat"]),
    size=SIZES,
    properties=sections().map(lambda section: section.raw),
    pieces=st.lists(st.integers(1, 9000), max_size=3).map(lambda more: (4000, 8000, *more)),
)


Told = tuple[object, Outcome]


class Story:
    """One connection with a consumer and a publisher, and a stream that a broker might send."""

    def __init__(self) -> None:
        self.stub = Stub()
        self.channel: Channel
        self.consumer: Consumer
        self.publisher: Publisher

    async def begin(self) -> Story:
        self.channel = await self.stub.channel()
        self.consumer = await self.stub.consumer(self.channel)
        self.publisher = await self.stub.publisher(self.channel)
        return self

    def stream(self, said: list[Said]) -> bytes:
        """The bytes of it all; what is returned or acked is published first."""
        out = []
        delivered = 0
        published = 0
        for number, each in enumerate(said):
            key = f"key.{number}"
            if each.kind == "deliver":
                delivered += 1
                out.append(
                    deliver(self.consumer, delivered, key, each.properties, each.body, each.pieces)
                )
                continue
            if each.kind == "heartbeat":
                out.append(frames.HEARTBEAT_FRAME)
                continue
            published += 1
            self.publisher.publish(Publish("e", key, each.properties, each.body, number))
            if each.kind == "return":
                out.append(give_back(key, each.properties, each.body, each.pieces))
            answer = commands.Basic.Nack if each.kind == "nack" else commands.Basic.Ack
            out.append(method(answer(delivery_tag=published)))
        return b"".join(out)

    async def told(self, said: list[Said]) -> tuple[list[tuple[object, ...]], list[Told]]:
        """The deliveries and outcomes that came out."""
        deliveries: list[tuple[object, ...]] = []
        if any(each.kind == "deliver" for each in said):
            deliveries = [
                (d.tag, d.redelivered, d.exchange, d.routing_key, d.properties, d.body)
                for d in await self.consumer.next_batch()
            ]
        outcomes: list[Told] = []
        if any(each.kind in ("return", "ack", "nack") for each in said):
            settled = await self.publisher.next_outcomes()
            outcomes = [(publish.context, outcome) for publish, outcome in settled]
        return deliveries, outcomes


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    chunks = []
    for size in cuts:
        chunks.append(stream[:size])
        stream = stream[size:]
    return [chunk for chunk in (*chunks, stream) if chunk]


@given(st.lists(SAID, max_size=6), CUTS)
async def test_a_stream_says_the_same_however_it_is_cut(said: list[Said], cuts: list[int]) -> None:
    whole, pieces = await Story().begin(), await Story().begin()
    whole.stub.feed(whole.stream(said))
    for chunk in cut(pieces.stream(said), cuts):
        pieces.stub.feed(chunk)
    assert await whole.told(said) == await pieces.told(said)


@given(st.lists(SAID, min_size=1, max_size=3))
async def test_a_stream_says_the_same_byte_by_byte(said: list[Said]) -> None:
    small = [Said(each.kind, each.size % 60, each.properties, each.pieces) for each in said]
    whole, pieces = await Story().begin(), await Story().begin()
    whole.stub.feed(whole.stream(small))
    for byte in pieces.stream(small):
        pieces.stub.feed(bytes((byte,)))
    assert await whole.told(small) == await pieces.told(small)


@given(st.lists(SAID, max_size=6))
async def test_every_delivery_comes_out_as_it_was_sent(said: list[Said]) -> None:
    story = await Story().begin()
    story.stub.feed(story.stream(said))
    deliveries, _ = await story.told(said)
    expected = [
        (f"key.{number}", each.properties, each.body)
        for number, each in enumerate(said)
        if each.kind == "deliver"
    ]
    assert [each[3:] for each in deliveries] == expected


@given(st.lists(SAID, max_size=6))
async def test_every_publish_gets_its_own_outcome(said: list[Said]) -> None:
    story = await Story().begin()
    story.stub.feed(story.stream(said))
    _, outcomes = await story.told(said)
    kinds = {"Returned": "return", "Refused": "nack", "Confirmed": "ack"}
    expected = [
        (number, each.kind)
        for number, each in enumerate(said)
        if each.kind in ("return", "nack", "ack")
    ]
    found = [(number, kinds[type(outcome).__name__]) for number, outcome in outcomes]
    assert found == expected


async def _survives(story: Story, chunks: list[bytes]) -> None:
    """Feed it all; an exception that escapes fails the test by itself."""
    for chunk in chunks:
        story.stub.feed(chunk)
    error = story.stub.wire.error
    assert error is None or isinstance(error, ConnectionLost)
    assert story.stub.transport.closed is (error is not None)


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(st.data())
async def test_a_damaged_stream_ends_the_connection_or_nothing(data: st.DataObject) -> None:
    story = await Story().begin()
    stream = story.stream(data.draw(st.lists(SAID, min_size=1, max_size=4)))
    hostile = data.draw(damaged(st.just(stream)))
    await _survives(story, cut(hostile, data.draw(CUTS)))


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8))
async def test_random_bytes_end_the_connection_or_nothing(chunks: list[bytes]) -> None:
    await _survives(await Story().begin(), chunks)


KNOWN = st.sampled_from(sorted(commands.INDEX_MAPPING)).map(lambda index: index.to_bytes(4))


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(
    st.lists(
        st.builds(
            frame,
            st.sampled_from([1, 1, 1, 2, 3, 8, 9]),
            st.sampled_from([0, 1, 1, 2]),
            st.builds(bytes.__add__, KNOWN | st.just(b""), st.binary(max_size=40)),
        ),
        min_size=1,
        max_size=6,
    )
)
async def test_whole_frames_full_of_nonsense_end_the_connection_or_nothing(
    chunks: list[bytes],
) -> None:
    await _survives(await Story().begin(), chunks)


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
async def test_a_peer_that_greets_with_random_bytes_ends_the_connection_or_nothing(
    chunks: list[bytes],
) -> None:
    stub = Stub()
    for chunk in chunks:
        stub.feed(chunk)
    assert stub.wire.error is None or isinstance(stub.wire.error, ConnectionLost)


# -- named nonsense ------------------------------------------------------------------------------

NONSENSE = {
    "a frame that does not end": frames.HEARTBEAT_FRAME[:-1] + b"\x00" + bytes(8),
    "a frame that is too large": frames.HEAD.pack(3, 1, 1 << 30) + bytes(8),
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "another AMQP": b"AMQP\x03\x01\x00\x00",
    "a body without a message": frame(3, 1, b"x"),
    "a header without a message": frame(2, 1, bytes(14)),
    "an unknown method": frame(1, 1, b"\x00\x63\x00\x63"),
    "an ack of what was not published": method(commands.Basic.Ack(delivery_tag=1)),
    "a delivery for nobody": method(
        commands.Basic.Deliver(consumer_tag="nobody", delivery_tag=1, exchange="", routing_key="")
    ),
    "a get-ok cut short": frame(1, 1, frames.GET_OK.to_bytes(4) + bytes(9) + b"\x00\x00\x00"),
    "a close cut short": frame(1, 1, frames.CHANNEL_CLOSE.to_bytes(4)),
    "a return cut short": frame(1, 1, frames.RETURN.to_bytes(4) + b"\x01\x38\x20"),
    "a body longer than announced": give_back("k", b"\x00\x00", b"xy")[:-9] + frame(3, 1, b"xyz"),
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_the_connection_ends_with_a_typed_error_on(what: str) -> None:
    story = await Story().begin()
    story.stub.feed(NONSENSE[what])
    assert "cannot be read" in str(story.stub.wire.error)


async def test_a_peer_of_another_amqp_version_is_named() -> None:
    story = await Story().begin()
    story.stub.feed(NONSENSE["another AMQP"])
    assert "AMQP 1.0.0" in str(story.stub.wire.error)


async def test_whatever_ends_the_connection_everyone_who_waits_hears_it() -> None:
    story = await Story().begin()
    waiting = [
        asyncio.ensure_future(story.consumer.next_batch()),
        asyncio.ensure_future(story.publisher.next_outcomes()),
        asyncio.ensure_future(story.channel.inspect_queue("q")),
        asyncio.ensure_future(story.publisher.send(Publish("e", "k", b"\x00\x00", b""))),
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    story.stub.wire.connection_lost(OSError(104, "Connection reset by peer"))
    heard = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in heard] == [ConnectionLost] * 4


async def test_a_broker_that_closes_the_connection_is_quoted() -> None:
    story = await Story().begin()
    said = commands.Connection.Close(
        reply_code=320, reply_text="CONNECTION_FORCED - bye", class_id=0, method_id=0
    )
    story.stub.feed(method(said, 0))
    assert isinstance(story.stub.wire.error, ConnectionClosed)
    assert "320 CONNECTION_FORCED - bye" in str(await story.stub.connection.lost())


async def test_a_broker_that_closes_the_connection_gets_its_close_ok() -> None:
    story = await Story().begin()
    said = commands.Connection.Close(reply_code=320, reply_text="bye", class_id=0, method_id=0)
    story.stub.feed(method(said, 0))
    assert story.stub.transport.written.endswith(method(commands.Connection.CloseOk(), 0))


# -- channels ------------------------------------------------------------------------------------


def closed(code: int, channel: int = 1) -> bytes:
    said = commands.Channel.Close(reply_code=code, reply_text="why", class_id=0, method_id=0)
    return method(said, channel)


async def test_the_answer_to_a_call_that_was_given_up_does_not_go_to_the_next() -> None:
    story = await Story().begin()
    given_up = asyncio.ensure_future(story.channel.purge_queue("a"))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    replies = [method(commands.Queue.PurgeOk(message_count=n)) for n in (1, 2)]
    assert await story.stub.answered(story.channel.purge_queue("b"), replies) == 2


async def test_a_call_that_was_given_up_as_its_answer_came_does_not_cost_the_next_its_own() -> None:
    story = await Story().begin()
    given_up = asyncio.ensure_future(story.channel.purge_queue("a"))
    await asyncio.sleep(0)
    story.stub.feed(method(commands.Queue.PurgeOk(message_count=1)))
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    reply = [method(commands.Queue.PurgeOk(message_count=2))]
    async with asyncio.timeout(30):
        assert await story.stub.answered(story.channel.purge_queue("b"), reply) == 2


async def test_an_answer_just_after_its_call_was_given_up_does_not_cost_the_next_its_own() -> None:
    story = await Story().begin()
    given_up = asyncio.ensure_future(story.channel.purge_queue("a"))
    await asyncio.sleep(0)
    given_up.cancel()
    story.stub.feed(method(commands.Queue.PurgeOk(message_count=1)))  # its task has not run yet
    await asyncio.gather(given_up, return_exceptions=True)
    reply = [method(commands.Queue.PurgeOk(message_count=2))]
    async with asyncio.timeout(30):
        assert await story.stub.answered(story.channel.purge_queue("b"), reply) == 2


async def test_the_broker_closing_a_channel_leaves_the_connection_open() -> None:
    story = await Story().begin()
    story.stub.feed(closed(404))
    assert (type(story.channel.error), story.stub.wire.error) == (NotFound, None)


async def test_a_code_without_a_name_is_still_a_closed_channel() -> None:
    story = await Story().begin()
    story.stub.feed(closed(530))
    assert type(story.channel.error) is ChannelClosed


@pytest.mark.parametrize("how", ["ack", "nack", "reject"])
async def test_a_closed_channel_sends_nothing_more_on_its_number(how: str) -> None:
    # Its number may belong to a new channel, whose own delivery 1 such an ack would settle.
    story = await Story().begin()
    story.stub.feed(closed(404))
    await asyncio.sleep(0)
    before = bytes(story.stub.transport.written)
    settle: Callable[[], None] = {
        "ack": lambda: story.channel.ack(1),
        "nack": lambda: story.channel.nack(1, requeue=True),
        "reject": lambda: story.channel.reject(1, requeue=True),
    }[how]
    with pytest.raises(NotFound):
        settle()
    await asyncio.sleep(0)
    assert story.stub.transport.written == before


async def test_a_consumer_whose_channel_is_closed_sends_no_acks_on_its_number() -> None:
    story = await Story().begin()
    story.stub.feed(deliver(story.consumer, 1, "k", b"\x00\x00", b""))
    (delivery,) = await story.consumer.next_batch()
    story.stub.feed(closed(404))
    await asyncio.sleep(0)
    before = bytes(story.stub.transport.written)
    story.consumer.ack(delivery)
    story.consumer.flush()
    story.consumer.reject(delivery)
    await asyncio.sleep(0)
    assert story.stub.transport.written == before


async def test_what_arrived_before_the_consumer_was_cancelled_is_still_handed_out() -> None:
    story = await Story().begin()
    story.stub.feed(deliver(story.consumer, 1, "k", b"\x00\x00", b"x"))
    story.stub.feed(method(commands.Basic.Cancel(consumer_tag="any")))
    assert [each.body for each in await story.consumer.next_batch()] == [b"x"]
    with pytest.raises(ConsumerCancelled):
        await story.consumer.next_batch()


async def test_a_channel_takes_one_consumer() -> None:
    story = await Story().begin()
    with pytest.raises(BrokerError, match="one consumer"):
        await story.channel.consume("q", prefetch=1)


# pamqp's own constructors refuse these; brokers accept them.
@pytest.mark.parametrize("name", ["überfällig", "a;b", "dead-letters (old)", "☃"])
async def test_a_queue_may_have_any_name(name: str) -> None:
    story = await Story().begin()
    reply = [method(commands.Queue.PurgeOk(message_count=3))]
    assert await story.stub.answered(story.channel.purge_queue(name), reply) == 3


async def test_a_name_too_long_for_the_wire_leaves_the_channel_usable() -> None:
    story = await Story().begin()
    with pytest.raises(Unpublishable):
        await story.channel.purge_queue("q" * 256)
    reply = [method(commands.Queue.PurgeOk(message_count=3))]
    assert await story.stub.answered(story.channel.purge_queue("q"), reply) == 3


# -- back-pressure -------------------------------------------------------------------------------


def _fill(stub: Stub, consumer: Consumer, count: int) -> None:
    for tag in range(1, count + 1):
        if not stub.transport.reading:
            return
        stub.feed(deliver(consumer, tag, "k", b"\x00\x00", bytes(1000)))


async def _budgeted() -> tuple[Stub, Channel, Consumer, list[Delivery]]:
    stub = Stub()
    channel = await stub.channel()
    consumer = await stub.consumer(channel, budget=Budget(5000))
    _fill(stub, consumer, 100)
    return stub, channel, consumer, await consumer.next_batch()


async def test_reading_stops_when_the_budget_is_spent() -> None:
    stub, _, consumer, batch = await _budgeted()
    assert not stub.transport.reading
    assert 5000 < consumer.unsettled_bytes <= 5000 + batch[0].size


async def test_reading_resumes_when_enough_is_settled() -> None:
    stub, _, consumer, batch = await _budgeted()
    consumer.ack(batch[0])
    assert stub.transport.reading


async def test_reading_resumes_while_a_call_waits_for_its_answer() -> None:
    stub, channel, _, _ = await _budgeted()
    call = asyncio.ensure_future(channel.purge_queue("q"))
    await asyncio.sleep(0)
    assert stub.transport.reading
    stub.feed(method(commands.Queue.PurgeOk(message_count=0)))
    await call
    assert not stub.transport.reading


async def test_a_closed_channel_no_longer_holds_back_the_other_channels() -> None:
    stub, channel, _, _ = await _budgeted()
    await stub.answered(channel.close(), [method(commands.Channel.CloseOk())])
    assert stub.transport.reading


async def test_a_consumer_that_the_broker_ended_no_longer_holds_back_the_other_channels() -> None:
    stub, _, _, _ = await _budgeted()
    stub.feed(closed(404))
    assert stub.transport.reading


async def test_what_arrives_after_the_cancel_goes_back_to_the_queue_by_one_nack() -> None:
    stub = Stub()
    channel = await stub.channel()
    consumer = await stub.consumer(channel)
    stub.feed(deliver(consumer, 1, "k", b"\x00\x00", b"in time"))
    (mine,) = await consumer.next_batch()
    said = len(stub.transport.written)
    cancelling = asyncio.ensure_future(consumer.cancel())
    await eventually_async(lambda: len(stub.transport.written) > said)
    for tag in (2, 3):
        stub.feed(deliver(consumer, tag, "k", b"\x00\x00", b"late"))
    stub.feed(method(commands.Basic.CancelOk(consumer_tag="any")))
    await cancelling
    await asyncio.sleep(0)
    given_back = frames.nack(1, 3, multiple=True, requeue=True)
    assert given_back not in bytes(stub.transport.written), "it would take the owner's along"
    consumer.ack(mine)
    consumer.flush()
    await asyncio.sleep(0)
    settled = frames.ack(1, 1, multiple=True) + given_back
    assert bytes(stub.transport.written).endswith(settled)
    assert await consumer.next_batch() == []


async def test_a_full_socket_makes_the_publisher_wait() -> None:
    story = await Story().begin()
    story.stub.wire.pause_writing()
    waiting = asyncio.ensure_future(story.publisher.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    story.stub.wire.resume_writing()
    await asyncio.wait_for(waiting, 30)


async def test_a_blocked_connection_makes_the_publisher_wait() -> None:
    story = await Story().begin()
    story.stub.feed(method(commands.Connection.Blocked(reason="low on memory"), 0))
    assert story.stub.connection.blocked == "low on memory"
    waiting = asyncio.ensure_future(story.publisher.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    story.stub.feed(method(commands.Connection.Unblocked(), 0))
    await asyncio.wait_for(waiting, 30)


async def test_send_gives_each_its_own_outcome() -> None:
    story = await Story().begin()
    sends = [
        asyncio.ensure_future(story.publisher.send(Publish("e", f"key.{n}", b"\x00\x00", b"")))
        for n in range(2)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    story.stub.feed(give_back("key.1", b"\x00\x00", b""))
    story.stub.feed(method(commands.Basic.Ack(delivery_tag=2)))
    story.stub.feed(method(commands.Basic.Nack(delivery_tag=1)))
    assert await asyncio.gather(*sends) == [Refused(), Returned(312, "NO_ROUTE")]


async def test_writes_of_one_turn_go_out_together() -> None:
    story = await Story().begin()
    before = len(story.stub.transport.written)
    for number in range(3):
        story.publisher.publish(Publish("e", f"{number}", b"\x00\x00", b""))
    assert len(story.stub.transport.written) == before
    await asyncio.sleep(0)
    assert len(story.stub.transport.written) > before


async def test_a_get_is_answered_by_a_message_in_several_frames() -> None:
    stub = Stub()
    channel = await stub.channel()
    said = commands.Basic.GetOk(
        delivery_tag=9, redelivered=True, exchange="e", routing_key="k", message_count=4
    )
    reply = method(said) + content(b"\x00\x00", b"abcdef", pieces=[2, 4])
    found = await stub.answered(channel.get("q"), [reply])
    assert found is not None
    assert (found.tag, found.redelivered, found.body) == (9, True, b"abcdef")


def test_a_connect_that_is_given_up_at_any_moment_leaves_no_error_behind() -> None:
    said: list[object] = []

    async def give_up_at_each_step() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(context))
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            addresses = parse_addresses(f"amqp://127.0.0.1:{nobody.getsockname()[1]}/")
            for steps in range(20):
                connecting = asyncio.ensure_future(connect(addresses, name="impatient"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                connecting.cancel()
                await asyncio.wait([connecting])
                await asyncio.sleep(0)

    uvloop.run(give_up_at_each_step())
    assert said == []
