"""Frames: encoded as pamqp would, decoded without surprises."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base, commands, frame

from redrive.amqp import frames
from redrive.amqp.fields import octets
from redrive.errors import MalformedData, Unpublishable
from tests.strategies import damaged

NAME = st.text("abcdefghijklmnopqrstuvwxyz.-_", max_size=30)
BIT = st.booleans()
ARGUMENTS = st.dictionaries(
    st.text(max_size=8),
    st.one_of(BIT, st.integers(-(2**62), 2**62), st.text(max_size=8)),
    max_size=3,
)
METHODS: st.SearchStrategy[base.Frame] = st.one_of(
    st.builds(
        commands.Connection.StartOk,
        client_properties=ARGUMENTS,
        mechanism=st.just("PLAIN"),
        response=st.text(max_size=20),
    ),
    st.builds(
        commands.Connection.TuneOk,
        channel_max=st.integers(0, 65535),
        frame_max=st.integers(0, 2**31),
        heartbeat=st.integers(0, 65535),
    ),
    st.builds(commands.Connection.Open, virtual_host=NAME),
    st.builds(
        commands.Connection.Close,
        reply_code=st.integers(0, 65535),
        reply_text=st.text(max_size=30),
        class_id=st.integers(0, 65535),
        method_id=st.integers(0, 65535),
    ),
    st.builds(commands.Connection.CloseOk),
    st.builds(commands.Channel.Open),
    st.builds(commands.Channel.FlowOk, active=BIT),
    st.builds(
        commands.Queue.Declare,
        queue=NAME,
        passive=BIT,
        durable=BIT,
        exclusive=BIT,
        auto_delete=BIT,
        nowait=BIT,
        arguments=ARGUMENTS,
    ),
    st.builds(
        commands.Queue.Bind, queue=NAME, exchange=NAME, routing_key=NAME, arguments=ARGUMENTS
    ),
    st.builds(
        commands.Queue.Unbind, queue=NAME, exchange=NAME, routing_key=NAME, arguments=ARGUMENTS
    ),
    st.builds(commands.Queue.Delete, queue=NAME, if_unused=BIT, if_empty=BIT, nowait=BIT),
    st.builds(commands.Queue.Purge, queue=NAME, nowait=BIT),
    st.builds(
        commands.Exchange.Declare,
        exchange=NAME,
        exchange_type=st.sampled_from(["direct", "topic"]),
        passive=BIT,
        durable=BIT,
        auto_delete=BIT,
        internal=BIT,
        nowait=BIT,
        arguments=ARGUMENTS,
    ),
    st.builds(commands.Exchange.Delete, exchange=NAME, if_unused=BIT, nowait=BIT),
    st.builds(commands.Basic.Qos, prefetch_count=st.integers(0, 65535), global_=BIT),
    st.builds(
        commands.Basic.Consume,
        queue=NAME,
        consumer_tag=NAME,
        no_local=BIT,
        no_ack=BIT,
        exclusive=BIT,
        nowait=BIT,
        arguments=ARGUMENTS,
    ),
    st.builds(commands.Basic.Cancel, consumer_tag=NAME, nowait=BIT),
    st.builds(commands.Basic.Get, queue=NAME, no_ack=BIT),
    st.builds(commands.Confirm.Select, nowait=BIT),
    st.builds(commands.Basic.Ack, delivery_tag=st.integers(0, 2**63 - 1), multiple=BIT),
)
TAG = st.integers(0, 2**63 - 1)


@given(METHODS, st.integers(0, 65535))
def test_a_method_is_encoded_as_pamqp_encodes_it(method: base.Frame, channel: int) -> None:
    assert frames.encode_method(method, channel) == frame.marshal(method, channel)


@given(METHODS)
def test_a_method_that_was_encoded_is_decoded(method: base.Frame) -> None:
    decoded = frames.decode_method(frames.encode_method(method, 1)[7:-1])
    assert frames.encode_method(decoded, 1) == frames.encode_method(method, 1)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_of_255_bytes_may_name_a_queue(queue: str) -> None:
    named = commands.Queue.Purge()
    named.queue = queue
    assert queue.encode() in frames.encode_method(named, 1)


def test_a_queue_name_that_pamqp_refuses_is_encoded() -> None:
    name = "Zahlungen, überfällig ☃"
    with pytest.raises(ValueError, match="queue"):
        commands.Queue.Purge(queue=name)
    named = commands.Queue.Purge()
    named.queue = name
    assert name.encode() in frames.encode_method(named, 1)


def test_a_name_of_256_bytes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(Unpublishable, match="256 bytes"):
        frames.publish_method(1, "", "é" * 128)


@given(NAME, NAME)
def test_a_publish_is_always_mandatory(exchange: str, routing_key: str) -> None:
    expected = commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    assert frames.publish_method(7, exchange, routing_key) == frame.marshal(expected, 7)


@given(TAG, BIT)
def test_an_ack_is_encoded_as_pamqp_encodes_it(tag: int, multiple: bool) -> None:
    expected = commands.Basic.Ack(delivery_tag=tag, multiple=multiple)
    assert frames.ack(3, tag, multiple=multiple) == frame.marshal(expected, 3)


@given(TAG, BIT, BIT)
def test_a_nack_is_encoded_as_pamqp_encodes_it(tag: int, multiple: bool, requeue: bool) -> None:
    expected = commands.Basic.Nack(delivery_tag=tag, multiple=multiple, requeue=requeue)
    assert frames.nack(3, tag, multiple=multiple, requeue=requeue) == frame.marshal(expected, 3)


@given(TAG, BIT)
def test_a_reject_is_encoded_as_pamqp_encodes_it(tag: int, requeue: bool) -> None:
    expected = commands.Basic.Reject(delivery_tag=tag, requeue=requeue)
    assert frames.reject(3, tag, requeue=requeue) == frame.marshal(expected, 3)


@given(st.binary(max_size=200), st.integers(9, 64))
def test_a_body_is_cut_into_frames_that_hold_it_and_nothing_else(
    body: bytes, frame_max: int
) -> None:
    rest = frames.message(b"", 2, b"\x00\x00", body, frame_max)[7 + 14 + 1 :]
    found = b""
    while rest:
        kind, channel, size = frames.HEAD.unpack_from(rest)
        assert (kind, channel, rest[7 + size]) == (frames.BODY, 2, frames.END)
        assert 0 < size <= frame_max - frames.FRAME_OVERHEAD
        found += rest[7 : 7 + size]
        rest = rest[8 + size :]
    assert found == body


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_the_header_frame_of_a_message_holds_its_properties(raw: bytes, body: bytes) -> None:
    sent = frames.message(b"", 2, raw, body, 4096)
    kind, channel, size = frames.HEAD.unpack_from(sent)
    assert (kind, channel, sent[7 + size]) == (frames.HEADER, 2, frames.END)
    assert sent[7 : 7 + size] == struct.pack(">HHQ", 60, 0, len(body)) + raw


@pytest.mark.parametrize("size", [4096 - 20, 4096 - 19])
def test_properties_are_refused_from_the_first_byte_that_does_not_fit(size: int) -> None:
    if size + 20 <= 4096:
        frames.refuse_oversized(bytes(size), 4096)
    else:
        with pytest.raises(Unpublishable, match="4077 bytes, the broker takes 4076"):
            frames.refuse_oversized(bytes(size), 4096)


# -- decoding ------------------------------------------------------------------------------------

SAID: st.SearchStrategy[base.Frame] = st.one_of(
    METHODS,
    st.builds(
        commands.Connection.Start,
        server_properties=st.dictionaries(
            st.text(max_size=8),
            st.recursive(
                st.one_of(BIT, st.integers(-(2**62), 2**62), st.text(max_size=8), st.none()),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=4), inner, max_size=3)
                ),
                max_leaves=5,
            ),
            max_size=4,
        ),
    ),
    st.builds(
        commands.Queue.DeclareOk,
        queue=NAME,
        message_count=st.integers(0, 2**32 - 1),
        consumer_count=st.integers(0, 2**32 - 1),
    ),
    st.builds(
        commands.Basic.GetOk,
        delivery_tag=TAG,
        redelivered=BIT,
        exchange=NAME,
        routing_key=NAME,
        message_count=st.integers(0, 2**32 - 1),
    ),
    st.builds(
        commands.Basic.Return,
        reply_code=st.just(312),
        reply_text=NAME,
        exchange=NAME,
        routing_key=NAME,
    ),
)
SAID_BYTES = SAID.map(lambda said: frames.encode_method(said, 0)[7:-1])
KNOWN = st.sampled_from(sorted(commands.INDEX_MAPPING)).map(lambda index: index.to_bytes(4))
HOSTILE = st.one_of(
    damaged(SAID_BYTES),
    st.binary(max_size=40),
    st.builds(bytes.__add__, KNOWN, st.binary(max_size=60)),
)


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(HOSTILE)
def test_any_bytes_are_a_method_or_malformed(payload: bytes) -> None:
    with contextlib.suppress(MalformedData):
        frames.decode_method(payload)


START = commands.Connection.Start.index.to_bytes(4) + b"\x00\x09"


def _start(*entries: bytes) -> bytes:
    inside = b"".join(entries)
    return START + len(inside).to_bytes(4) + inside + (b"\x00\x00\x00\x05PLAIN" * 2)


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x01tT" + b"\xff" * 8,
        b"\x01tT\x00\xff" + b"\xff" * 6,
        b"\x01tF\xff\xff\xff\xf0",
        b"\x01tA\xff\xff\xff\xf0",
        b"\x01tS\xff\xff\xff\xf0",
        b"\x01tx\xff\xff\xff\xf0",
        b"\x01tD\xff\x00\x00\x00\x01",
        b"\x01tS\x00\x00\x00\x01\xff",
        b"\x01\xffV",
    ],
)
@pytest.mark.timeout(10)
def test_a_hostile_greeting_is_a_method_or_malformed(hostile: bytes) -> None:
    with contextlib.suppress(MalformedData):
        frames.decode_method(_start(hostile))


@pytest.mark.timeout(30)
def test_a_greeting_that_is_a_depth_bomb_is_a_method_or_malformed() -> None:
    field = b"V"
    for _ in range(2_000):
        field = b"A" + len(field).to_bytes(4) + field
    with contextlib.suppress(MalformedData):
        frames.decode_method(_start(b"\x01t" + field))


@given(st.integers(0, 65535), st.binary(max_size=255))
def test_the_reason_of_a_close_is_read_whatever_its_bytes(code: int, text: bytes) -> None:
    payload = bytes(4) + code.to_bytes(2) + bytes((len(text),)) + text + bytes(4)
    assert frames.decode_close(payload) == (code, text.decode("utf-8", "replace"))


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_the_names_in_a_return_survive_whatever_their_bytes(exchange: bytes, key: bytes) -> None:
    payload = bytes(4) + (312).to_bytes(2)
    for each in (b"NO_ROUTE", exchange, key):
        payload += bytes((len(each),)) + each
    code, reason, *names = frames.decode_return(payload)
    assert (code, reason, *map(octets, names)) == (312, "NO_ROUTE", exchange, key)


@given(SAID)
def test_a_get_ok_is_read(said: base.Frame) -> None:
    if isinstance(said, commands.Basic.GetOk):
        assert frames.decode_get_ok(frames.encode_method(said, 1)[7:-1]) == (
            said.delivery_tag,
            said.redelivered,
            said.exchange,
            said.routing_key,
            said.message_count,
        )
