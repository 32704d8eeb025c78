"""Frames: how methods, property sections and bodies are cut for the wire.

Method frames are encoded and decoded field by field with pamqp, except the few that are sent or
received once per message (publish, ack, deliver), which are packed by hand because they are the
hot path, and those that carry text which may not be UTF-8 (close, return), which must never fail.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from pamqp import base, commands, encode
from pamqp import exceptions as pamqp_exceptions

from redrive.amqp.fields import octets, text
from redrive.errors import MalformedData, Unpublishable

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE
END_BYTE: Final = b"\xce"

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
FRAME_OVERHEAD: Final = 8
CONTENT_HEADER_OVERHEAD: Final = 12
"""Bytes of a header frame's payload before the properties: class, weight, body size."""

PROPERTIES_OVERHEAD: Final = FRAME_OVERHEAD + CONTENT_HEADER_OVERHEAD

DELIVER: Final = commands.Basic.Deliver.index
RETURN: Final = commands.Basic.Return.index
GET_OK: Final = commands.Basic.GetOk.index
ACK: Final = commands.Basic.Ack.index
NACK: Final = commands.Basic.Nack.index
CHANNEL_CLOSE: Final = commands.Channel.Close.index
COMMIT_OK: Final = commands.Tx.CommitOk.index
CONNECTION_CLOSE: Final = commands.Connection.Close.index

HEAD: Final = struct.Struct(">BHI")
_TAG_METHOD: Final = struct.Struct(">BHIIQBB")
_CONTENT_HEAD: Final = struct.Struct(">BHIHHQ")
_END_AND_BODY_HEAD: Final = struct.Struct(">BBHI")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_MANDATORY: Final = b"\x01"
_Method = TypeVar("_Method", bound=base.Frame)
_BASIC: Final = 60


def request(kind: type[_Method], **arguments: object) -> _Method:
    """A method with its arguments; those that are None keep pamqp's default.

    pamqp's constructors and `marshal` refuse queue names that brokers accept (any character, any
    UTF-8), so the arguments are set and encoded here one by one, with pamqp's encoders.
    """
    made = kind()
    for name, value in arguments.items():
        if value is not None:
            setattr(made, name, value)
    return made


def encode_method(method: base.Frame, channel: int) -> bytes:
    """A method as a whole frame."""
    output: list[bytes] = []
    bits: list[bool] = []
    for name in method.__slots__:
        kind = method.amqp_type(name)
        value = getattr(method, name)
        if kind == "bit":
            bits.append(bool(value))
            continue
        if bits:
            output.append(_pack_bits(bits))
            bits = []
        output.append(shortstr(value) if kind == "shortstr" else encode.by_type(value, kind))
    if bits:
        output.append(_pack_bits(bits))
    payload = method.index.to_bytes(4) + b"".join(output)
    return HEAD.pack(METHOD, channel, len(payload)) + payload + END_BYTE


def _pack_bits(bits: list[bool]) -> bytes:
    return bytes((sum(1 << position for position, bit in enumerate(bits) if bit),))


def decode_method(payload: bytes) -> base.Frame:
    """The method in a frame's payload."""
    try:
        index = int.from_bytes(payload[:4])
        method: base.Frame = commands.INDEX_MAPPING[index]()
        method.unmarshal(payload[4:])
    except KeyError:
        raise MalformedData(f"unknown method 0x{int.from_bytes(payload[:4]):08x}") from None
    except (
        ValueError,
        IndexError,
        TypeError,
        ArithmeticError,
        RecursionError,
        struct.error,
    ) as error:
        raise MalformedData(f"a method frame cannot be read: {error}") from error
    except pamqp_exceptions.PAMQPException as error:
        raise MalformedData(f"a method frame cannot be read: {error}") from error
    return method


def decode_close(payload: bytes) -> tuple[int, str]:
    """Code and text of a channel.close or connection.close; the text may hold any bytes."""
    code = int(_U16.unpack_from(payload, 4)[0])
    length = payload[6]
    return code, payload[7 : 7 + length].decode("utf-8", "replace")


def decode_return(payload: bytes) -> tuple[int, str, str, str]:
    """Code, text, exchange and routing key of a basic.return."""
    code = int(_U16.unpack_from(payload, 4)[0])
    reason, position = read_shortstr(payload, 6)
    exchange, position = read_shortstr(payload, position)
    routing_key, position = read_shortstr(payload, position)
    return code, reason, exchange, routing_key


def decode_get_ok(payload: bytes) -> tuple[int, bool, str, str, int]:
    """Tag, redelivered, exchange, routing key and how many messages remain, of a basic.get-ok."""
    tag = int.from_bytes(payload[4:12])
    exchange, position = read_shortstr(payload, 13)
    routing_key, position = read_shortstr(payload, position)
    return (
        tag,
        bool(payload[12]),
        exchange,
        routing_key,
        int(_U32.unpack_from(payload, position)[0]),
    )


def read_shortstr(payload: bytes, position: int) -> tuple[str, int]:
    end = position + 1 + payload[position]
    if end > len(payload):
        raise MalformedData("a short string is cut off")
    return text(payload[position + 1 : end]), end


def shortstr(value: str) -> bytes:
    body = octets(value)
    if len(body) > 255:
        raise Unpublishable(
            f"a name of {len(body)} bytes does not fit: AMQP allows 255 ({value[:40]}…)",
            remedy="use a shorter queue, exchange or routing key name",
        )
    return bytes((len(body),)) + body


def ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    return _TAG_METHOD.pack(METHOD, channel, 13, ACK, tag, multiple, END)


def nack(channel: int, tag: int, *, multiple: bool, requeue: bool) -> bytes:
    return _TAG_METHOD.pack(METHOD, channel, 13, NACK, tag, multiple | requeue << 1, END)


def reject(channel: int, tag: int, *, requeue: bool) -> bytes:
    return _TAG_METHOD.pack(METHOD, channel, 13, commands.Basic.Reject.index, tag, requeue, END)


def publish_method(channel: int, exchange: str, routing_key: str) -> bytes:
    """The basic.publish frame, always mandatory: a message that no queue takes comes back."""
    payload = b"".join(
        (
            commands.Basic.Publish.index.to_bytes(4),
            b"\x00\x00",
            shortstr(exchange),
            shortstr(routing_key),
            _MANDATORY,
        )
    )
    return HEAD.pack(METHOD, channel, len(payload)) + payload + END_BYTE


def message(method: bytes, channel: int, properties: bytes, body: bytes, frame_max: int) -> bytes:
    """A publish's method frame followed by the header frame and body frames of its message."""
    size = len(body)
    head = _CONTENT_HEAD.pack(
        HEADER, channel, CONTENT_HEADER_OVERHEAD + len(properties), _BASIC, 0, size
    )
    if size + FRAME_OVERHEAD <= frame_max:
        if not size:
            return b"".join((method, head, properties, END_BYTE))
        body_head = _END_AND_BODY_HEAD.pack(END, BODY, channel, size)
        return b"".join((method, head, properties, body_head, body, END_BYTE))
    chunks = [method, head, properties]
    step = frame_max - FRAME_OVERHEAD
    view = memoryview(body)
    for start in range(0, size, step):
        piece = view[start : start + step]
        chunks.append(_END_AND_BODY_HEAD.pack(END, BODY, channel, len(piece)))
        chunks.append(piece)  # type: ignore[arg-type]  # join takes any buffer
    chunks.append(END_BYTE)
    return b"".join(chunks)


def refuse_oversized(properties: bytes, frame_max: int) -> None:
    """A header frame cannot be split: raise before the broker would close the connection (501)."""
    room = frame_max - PROPERTIES_OVERHEAD
    if len(properties) > room:
        raise Unpublishable(
            f"the properties have {len(properties)} bytes, the broker takes {room} in one frame",
            remedy="raise frame_max on the broker, or send fewer or smaller headers",
        )
