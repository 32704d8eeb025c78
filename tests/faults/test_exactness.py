"""What Redrive sends equals what it received, entry by entry, seen from outside by the proxy.

Random messages with every field type the brokers take are moved; the test parses the bytes of both
connections with a parser of its own and compares each publish with its delivery: names, type
letters, payloads and their order, and the body. Only what guarantee 3 names may differ.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from redrive.amqp import Publish
from redrive.work.mover import Limits
from tests.services import scale
from tests.services.eventually import eventually_async
from tests.services.frameparser import (
    DELIVER,
    PROPERTIES,
    PUBLISH,
    Frames,
    Header,
    Message,
    section,
)
from tests.services.moving import (
    SOURCE,
    TARGET,
    Kind,
    MoveTo,
    channel_to,
    declare,
    holds,
    lay_out,
    moving,
    publish,
)
from tests.services.plugin import NewProxy, Vhost
from tests.services.proxy import Direction, ProxyConnection

LARGE = 15 * 1024 * 1024
LARGEST_RANDOM = 256 * 1024
BROKERS_OWN = {b"x-delivery-count", b"x-acquired-count", b"x-death"} | {
    b"x-%s-death-%s" % (which, what)
    for which in (b"first", b"last")
    for what in (b"queue", b"reason", b"exchange")
}
ASIDE = {b"CC": b"redrive-cc", b"BCC": b"redrive-bcc"}


# -- random messages ------------------------------------------------------------------------------


class Generator:
    """Random messages from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def octets(self, most: int) -> bytes:
        size = self.random.randint(0, most)
        if self.random.random() < 0.5:
            return self.random.randbytes(size)
        return "".join(self.random.choices("abcXYZ 09_é漢", k=size)).encode()[:most]

    def shortstr(self, body: bytes) -> bytes:
        return bytes((len(body),)) + body

    def longstr(self, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + body

    def field(self, depth: int = 0) -> bytes:
        """A type letter and its payload."""
        fixed = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8, "T": 8}
        letter: str = self.random.choice([*fixed, *"fdDVSSxSAF"])
        if letter in fixed:
            return letter.encode() + self._number(letter, fixed[letter])
        make: dict[str, Callable[[], bytes]] = {
            "f": lambda: struct.pack(">f", self.random.uniform(-1e30, 1e30)),
            "d": lambda: struct.pack(">d", self.random.uniform(-1e300, 1e300)),
            "D": lambda: bytes((self.random.randrange(10),)) + self.random.randbytes(4),
            "V": lambda: b"",
            "S": lambda: self.longstr(self.octets(60)),
            "x": lambda: self.longstr(self.octets(60)),
            "A": lambda: self.longstr(b"".join(self._fields(depth))),
            "F": lambda: self.longstr(self.table(depth + 1)),
        }
        return letter.encode() + make[letter]()

    def _number(self, letter: str, size: int) -> bytes:
        if letter == "t":
            return bytes((self.random.randrange(2),))
        if letter == "T":
            return struct.pack(">Q", self.random.randrange(1 << 33))
        edge = [bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1)]
        return self.random.choice([*edge, self.random.randbytes(size)])

    def _fields(self, depth: int) -> Iterator[bytes]:
        if depth < 4:
            for _ in range(self.random.randrange(4)):
                yield self.field(depth + 1)

    def table(self, depth: int) -> bytes:
        names = {self.octets(20) for _ in range(self.random.randrange(5))} if depth < 4 else set()
        return b"".join(self.shortstr(name) + self.field(depth) for name in sorted(names))

    def headers(self, number: int) -> bytes:
        entries = [self.shortstr(b"n") + b"I" + struct.pack(">i", number)]
        names = {self.octets(30) for _ in range(self.random.randrange(8))}
        names -= {b"n", b"CC", b"BCC"}
        entries += [self.shortstr(name) + self.field() for name in sorted(names)]
        if self.random.random() < 0.1:
            nobody = b"S" + self.longstr(b"no-such-queue")
            entries.append(self.shortstr(b"CC") + b"A" + self.longstr(nobody))
        self.random.shuffle(entries)
        return b"".join(entries)

    def properties(self, number: int) -> bytes:
        flags, parts = 0, []
        for bit, name in enumerate(PROPERTIES):
            if name != "headers" and self.random.random() < 0.5:
                continue
            flags |= 0x8000 >> bit
            if name == "headers":
                parts.append(self.longstr(self.headers(number)))
            elif name == "delivery_mode":
                parts.append(bytes((self.random.choice((1, 2)),)))
            elif name == "priority":
                parts.append(bytes((self.random.randrange(10),)))
            elif name == "timestamp":
                parts.append(struct.pack(">Q", self.random.randrange(1 << 33)))
            elif name == "expiration":
                parts.append(self.shortstr(b"%d" % self.random.randrange(10**8, 10**9)))
            elif name == "user_id":
                parts.append(self.shortstr(b"guest"))
            else:
                parts.append(self.shortstr(self.octets(40)))
        return struct.pack(">H", flags) + b"".join(parts)

    def body(self) -> bytes:
        size = int((LARGEST_RANDOM + 1) ** self.random.random()) - 1
        return self.random.randbytes(size)


def random_messages(seed: int, count: int, large: int) -> Iterator[Publish]:
    """Half for the source itself, half by way of a queue that dead-letters into it."""
    generator = Generator(seed)
    chosen = set(generator.random.sample(range(count), large))
    for number in range(count):
        body = generator.random.randbytes(LARGE) if number in chosen else generator.body()
        queue = generator.random.choice((SOURCE, "origin"))
        yield Publish("", queue, generator.properties(number), body)


# -- what passed the proxy ------------------------------------------------------------------------


class Recording:
    """The deliveries and publishes that passed, in order; bodies as digests."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.sent: list[Message] = []
        self._frames: dict[tuple[int, Direction], Frames] = {}

    def watch(self, connection: ProxyConnection, direction: Direction, data: bytes) -> None:
        frames = self._frames.setdefault((connection.number, direction), Frames())
        for seen in frames.feed(data):
            if isinstance(seen, Message):
                name, expected = seen.method.name, self.received
                if direction is Direction.SENT:
                    expected = self.sent
                assert name == (DELIVER if direction is Direction.RECEIVED else PUBLISH)
                expected.append(seen)


def assert_exact(received: Message, sent: Message, user: bytes) -> None:
    """One publish against its delivery, entry by entry."""
    assert (sent.digest, sent.size) == (received.digest, received.size)
    before, after = section(received.properties), section(sent.properties)
    added = {name: (letter, payload) for name, letter, payload in after.headers if ours(name)}

    wanted = dict(before.properties)
    wanted["delivery_mode"] = b"\x02"
    expected: dict[bytes, tuple[bytes, bytes]] = {}
    if wanted.get("user_id", b"?")[1:] not in (b"", user):
        expected[b"redrive-user-id"] = aside(wanted.pop("user_id"))
    if "expiration" in wanted:
        expected[b"redrive-expiration"] = aside(wanted.pop("expiration"))
    assert after.properties == wanted

    kept: list[Header] = []
    for name, letter, payload in before.headers:
        if name in ASIDE:
            expected[ASIDE[name]] = (letter, payload)
        elif name == b"x-death":
            expected[b"redrive-deaths"] = (letter, payload)  # one death: the same array
        elif name not in BROKERS_OWN:
            kept.append((name, letter, payload))
    assert [each for each in after.headers if not ours(each[0])] == kept
    if received.redelivered:
        expected[b"redrive-redelivered"] = (b"t", b"\x01")
    assert added == expected


def ours(name: bytes) -> bool:
    return name.startswith(b"redrive-")


def aside(shortstr: bytes) -> tuple[bytes, bytes]:
    return b"S", struct.pack(">I", shortstr[0]) + shortstr[1:]


def number_of(message: Message) -> int:
    header = section(message.properties).header(b"n")
    assert header is not None
    return int.from_bytes(header[2])


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_what_is_sent_equals_what_was_received_entry_by_entry(
    vhost: Vhost, proxy: NewProxy, kind: Kind
) -> None:
    seed = int(os.environ.get("REDRIVE_SEED") or random.randrange(1 << 32))
    print(f"REDRIVE_SEED={seed}")  # noqa: T201  # shown when the test fails
    count, large = scale.messages(10_000), scale.faults(10, quick=1)
    deadline = scale.seconds(900, quick=60)
    node = vhost.node
    node.api("PUT", "users/mover", {"password": "mover", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    node.api("PUT", f"permissions/{quote(vhost.name)}/mover", everything)

    await lay_out(vhost.url, kind)
    to_source = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": SOURCE}
    await declare(vhost.url, "origin", kind, x_message_ttl=0, **to_source)
    await publish(vhost.url, random_messages(seed, count, large))
    await holds(vhost.url, SOURCE, count, within=deadline)

    way = await proxy("127.0.0.1", node.port)
    recording = Recording()
    way.hook = recording.watch
    # half of the messages name another user than the one who moves them: every one of `guest`
    url = way.through(vhost.url).replace("guest:guest", "mover:mover")
    async with moving(url, MoveTo(remembers=False), limits=Limits(prefetch=200)) as running:
        await eventually_async(lambda: running.settled >= count, within=deadline)
    assert (running.moved, running.mover.counts.parked, running.sessions) == (count, 0, 1)
    assert len(recording.received) == len(recording.sent) == count
    for received, sent in zip(recording.received, recording.sent, strict=True):
        assert_exact(received, sent, b"mover")
    assert sorted(map(number_of, recording.sent)) == list(range(count))
    async with channel_to(vhost.url) as channel:
        assert await channel.purge_queue(TARGET) == count
    node.api("DELETE", "users/mover")
