"""What brokers make of headers that they give back."""

from __future__ import annotations

import struct
from collections import Counter

from redrive.amqp import (
    Properties,
    Publish,
)
from tests.services.plugin import NewProxy, Vhost
from tests.services.wiring import (
    FIELDS,
    connected,
    outcomes_of,
)
from tests.strategies import inside_of, sized


async def test_whatever_the_broker_makes_of_headers_in_a_return_keeps_their_normal_form(
    vhost: Vhost, proxy: NewProxy
) -> None:
    """Seen through the recording proxy, since a return reaches its publisher only as an outcome."""
    way = await proxy("127.0.0.1", vhost.node.port)
    way.recording = True
    async with connected(way.through(vhost.url)) as connection:
        publisher = await (await connection.channel()).publisher()
        sent: Counter[object] = Counter()
        for number, field in enumerate([*FIELDS, *FIELDS]):
            entries = [(b"z", field), (b"BCC", sized(b"A", sized(b"S", b"x"))), (b"a", b"V")]
            if number >= len(FIELDS):
                entries += [(b"z", b"V")]
            inside = inside_of(entries)
            raw = b"\x20\x00" + struct.pack(">I", len(inside)) + inside
            sent[Properties.read(raw).normal_form()] += 1
            publisher.publish(Publish("", f"nowhere.{number}", raw, b""))
        await outcomes_of(publisher, 2 * len(FIELDS))
        (seen,) = way.connections
        assert Counter(_returned_forms(bytes(seen.received))) == sent


def _returned_forms(stream: bytes) -> list[object]:
    """The normal forms of every property section that came back, read from the raw bytes."""
    found = []
    position = 0
    while position < len(stream):
        kind, _, size = struct.unpack_from(">BHI", stream, position)
        if kind == 2:
            section = stream[position + 7 + 12 : position + 7 + size]
            found.append(Properties.read(section).normal_form())
        position += size + 8
    return found
