"""The queue of a handler: declared as it should be where it is missing, used as it is where it is.

What a declared queue has: durable; a dead letter exchange, so that what expires or cannot be
handled at all is kept; a message TTL of five minutes, which is a setting; and where it is a quorum
queue, dead-lettering that survives a crash of the broker.

Beside each there are two for messages that a process had before and did not answer: one where they
are handled again, among others, and one for those that are to be handled alone. And each is bound
to the return exchange, so that the retrier brings messages back to it and to no other.

The two beside dead-letter to Redrive's own exchange, also where the handler's queue has another:
messages are in them under other keys than that one may be bound by, and would be dropped. Of what
is rejected, only what goes to Redrive's own exchange is known to arrive, and only while that and
the queue behind it are as described: who rejects asks first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Final, Literal

from redrive.amqp import Connection
from redrive.broker.apply import apply
from redrive.broker.ladder import describe_ladder
from redrive.broker.live import SpareChannel
from redrive.broker.own_queues import AGAIN, ALONE
from redrive.broker.topology import DELIVERY_LIMIT, Argument, Binding, Part, describe, return_key
from redrive.consumer import wishes
from redrive.consumer.logs import log
from redrive.consumer.signals import Duration, read_duration
from redrive.errors import (
    AccessRefused,
    BrokerError,
    ChannelClosed,
    ConnectionLost,
    NotFound,
    PreconditionFailed,
    SettingsError,
)
from redrive.settings.sections import TopologySettings

_LONGEST_NAME: Final = 255
_CHECK: Final = "'redrive topology check' says what differs, and what to do"


@dataclass(frozen=True, slots=True)
class Queue:
    """Where a handler's messages come from, and how that queue is declared if it is missing.

    A queue that exists is used as it is, whatever its arguments. `handler("orders")` means
    `handler(Queue("orders"))`.

    - `name`: the queue. None names it after its exchange and the handler, the same at every start.
      An empty text lets the broker choose a name, a new one at every start, of a classic queue.
    - `exchange`, `routing_key`: what it is bound to; a missing exchange is declared (`topic`).
    - `type`: `"quorum"` or `"classic"`; by default that of `[topology] queue_type`.
    - `ttl`: how long a message may wait before it is stale and goes to the dead letter queue, as a
      text such as "5m" or a `timedelta`; five minutes by default. None: for ever.
    - `dead_letter_exchange`: instead of Redrive's own. If it is missing it is declared, with a
      durable queue of the same name behind it; one that exists is used as it is, but where
      the two stand as they are made here, they are bound. What a handler gives up goes there too;
      what cannot be published again does not, and stays in the queue.
    - `arguments`: further arguments, such as `{"x-max-length": 10_000}`. An exchange that
      `x-dead-letter-exchange` names here is not declared; while it is missing, the log says so,
      unless the queue exists otherwise than it is described.
    - `declare`: with False, the queue must exist.
    """

    name: str | None = None
    exchange: str = ""
    routing_key: str = "#"
    type: Literal["quorum", "classic"] | None = None
    ttl: Duration | None = timedelta(minutes=5)
    dead_letter_exchange: str | None = None
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    declare: bool = True

    def __post_init__(self) -> None:
        self._refuse_wrong_types()
        if self.ttl is not None:
            read_duration("Queue: ttl", self.ttl)
        if self.name is None and not self.exchange:
            raise SettingsError(
                "Queue: expected a name, an exchange or both, got neither",
                remedy="name the queue, or the exchange that it is bound to",
            )
        if self.name == "" and self.type == "quorum":
            raise SettingsError(
                "Queue: a broker gives no name to a quorum queue",
                remedy="name it, or leave out the name (None): then it is named after its handler",
            )
        if self.dead_letter_exchange == "":
            raise SettingsError(
                "Queue: dead_letter_exchange: expected the name of an exchange, got ''",
                remedy="leave it out for Redrive's own; the broker's default exchange would bring"
                " what is dead back to its queue",
            )
        if self.declare and self.name is not None and self.name == self.dead_letter_exchange:
            raise SettingsError(
                f"Queue: dead_letter_exchange: expected another name than the queue's, got"
                f" {self.name!r}: what is dead would come back to its queue",
                remedy="name it otherwise, such as"
                f" {self.name + '.dead'!r}: the queue behind it is called as it is",
            )
        if self.declare and (self.name or "").startswith("amq."):
            raise SettingsError(
                f"Queue: names that begin with 'amq.' are the broker's own, got {self.name!r}",
                remedy="name it otherwise; for one that the broker named, declare=False",
            )

    def _refuse_wrong_types(self) -> None:
        if self.name is not None:
            wishes.short_text("Queue: name", self.name)
        wishes.short_text("Queue: exchange", self.exchange)
        wishes.short_text("Queue: routing_key", self.routing_key)
        if self.type not in (None, "quorum", "classic"):
            raise SettingsError(f"Queue: type: expected 'quorum' or 'classic', got {self.type!r}")
        if self.dead_letter_exchange is not None:
            wishes.short_text("Queue: dead_letter_exchange", self.dead_letter_exchange)
        wishes.arguments("Queue: arguments", self.arguments)


@dataclass(frozen=True, slots=True)
class Declared:
    """A handler's queue on the broker."""

    name: str
    again: str
    """Where its messages go that a process had before and did not answer."""
    alone: str
    """Where its messages wait that are handled alone."""
    parks: frozenset[str]
    """Which of the three are known to dead-letter to Redrive's own dead letter exchange."""
    handler: str = ""
    dead_letters_to: str = ""
    """The dead letter exchange of the queue, where it is known to be as it was described."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """Why what is rejected may not be kept, and what to do."""

    reason: str
    remedy: str


def queue_beside(mark: str, prefix: str, queue: str) -> str:
    """The queue of that mark beside a handler's. A name has 255 bytes at most: of a longer one a
    digest stands for it."""
    name = f"{prefix}{mark}{queue}"
    if len(name.encode("utf-8", "surrogateescape")) > _LONGEST_NAME:
        digest = blake2b(queue.encode("utf-8", "surrogateescape"), digest_size=32).hexdigest()
        return f"{prefix}{mark}{digest}"
    return name


class Declaring:
    """Declares what handlers need, on one connection."""

    def __init__(self, connection: Connection, topology: TopologySettings, said: set[str]) -> None:
        """`said` is of which queues was told that they are used as they are."""
        self._connection = connection
        self._topology = topology
        self._said = said
        self._spare = SpareChannel(connection)
        self._one_at_a_time = asyncio.Lock()

    async def queue(self, queue: Queue, handler: str, *, before: str = "") -> Declared:
        """Have the queue, its way back and the two beside it. `handler` may be part of its name,
        `before` is the one that the broker chose before."""
        name = f"{queue.exchange}.{handler}" if queue.name is None else queue.name
        if queue.dead_letter_exchange is not None and queue.declare:
            await self._exchange_with_queue(queue.dead_letter_exchange)
        arguments = self._arguments_of(queue, name)
        sound = False
        if not name and before and await self._spare.count(before) is not None:
            name, sound = before, True
        elif queue.declare:
            name, sound = await self._main(queue, name, arguments)
        else:
            await self._must_exist(name)
        again, again_parks = await self._beside(AGAIN, name)
        alone, alone_parks = await self._beside(ALONE, name)
        await self._bind(name, self._topology.names.return_exchange, return_key(name))
        parks = sound and self._dead_letters_to_us(arguments)
        known = {name: parks, again: again_parks, alone: alone_parks}
        keeping = frozenset(queue for queue, keeps in known.items() if keeps)
        dead_letters = str(arguments["x-dead-letter-exchange"]) if sound else ""
        return Declared(name, again, alone, keeping, handler, dead_letters)

    async def _beside(self, mark: str, name: str) -> tuple[str, bool]:
        beside = queue_beside(mark, self._topology.prefix, name)
        kind = self._topology.queue_type
        arguments = _arguments(kind, self._topology.names.dlq_exchange)
        if kind == "quorum":
            arguments["x-delivery-limit"] = DELIVERY_LIMIT
        return await self._declare(beside, arguments)  # what is sound dead-letters to Redrive

    async def dead_letters(self) -> Unsure | None:
        """Have Redrive's dead letter exchange and the queue behind it; what may be wrong with them
        where they are not known to take whatever is rejected."""
        names = self._topology.names
        wanted = describe(self._topology).only({names.dlq_exchange, names.dlq_queue})
        try:
            applied = await apply(wanted, self._connection)
        except AccessRefused as error:
            return Unsure(str(error), "grant the user configure, write and read on what it names")
        except ConnectionLost:
            raise
        except BrokerError as error:
            return Unsure(str(error), error.remedy or _CHECK)
        doubtful = [_in_words(part) for part in wanted.parts() if part not in applied.sound]
        return (
            Unsure(f"not known to be as Redrive would declare them: {', '.join(doubtful)}", _CHECK)
            if doubtful
            else None
        )

    async def ladder(self) -> None:
        """Have every rung of the ladder. Many workers may want that at a time: what is refused to
        one of them would close the channel for the others."""
        async with self._one_at_a_time:
            for rung in describe_ladder(self._topology):
                await self._declare(rung.name, rung.arguments)

    async def close(self) -> None:
        await self._spare.close()

    def _arguments_of(self, queue: Queue, name: str) -> dict[str, Argument]:
        kind = queue.type or self._topology.queue_type
        dead_letters = queue.dead_letter_exchange or self._topology.names.dlq_exchange
        arguments = _arguments(kind if name else "classic", dead_letters)
        if queue.ttl is not None:
            ttl = read_duration("Queue: ttl", queue.ttl)
            arguments["x-message-ttl"] = ttl // timedelta(milliseconds=1)
        return {**arguments, **queue.arguments}

    def _dead_letters_to_us(self, arguments: Mapping[str, Argument]) -> bool:
        """By whichever key: the queue behind the exchange is bound with `#`."""
        return arguments.get("x-dead-letter-exchange") == self._topology.names.dlq_exchange

    async def _main(
        self, queue: Queue, name: str, arguments: dict[str, Argument]
    ) -> tuple[str, bool]:
        name, sound = await self._declare(name, arguments)
        if queue.exchange:
            await self._exchange(queue.exchange)
            await self._bind(name, queue.exchange, queue.routing_key)
        return name, sound

    async def _declare(self, name: str, arguments: dict[str, Argument]) -> tuple[str, bool]:
        """Declare a queue; its name, and whether it is known to be as it is described here."""
        channel = await self._spare.open()
        try:
            return await channel.declare_queue(name, arguments={**arguments}), True
        except (PreconditionFailed, AccessRefused) as error:
            if not name or await self._spare.count(name) is None:
                if isinstance(error, PreconditionFailed):
                    error.advise(f"correct the arguments of the queue {name!r}: it is not there")
                raise
            if name not in self._said:  # not again each time that the broker is lost
                self._said.add(name)
                log.info("consumer.queue_used_as_it_is", queue=name, because=error.text)
            return name, False

    async def _must_exist(self, name: str) -> None:
        try:
            await (await self._spare.open()).inspect_queue(name)
        except NotFound as error:
            error.advise("declare the queue, or leave out declare=False")
            raise

    async def _exchange(self, exchange: str) -> None:
        try:
            await (await self._spare.open()).inspect_exchange(exchange)
        except NotFound:
            await (await self._spare.open()).declare_exchange(exchange, "topic")

    async def _exchange_with_queue(self, name: str) -> None:
        """The queue comes first: where there are both, whoever made them may have been killed
        before they were bound. An exchange without a queue of its name, or one of the two with
        other arguments than it gets here, is somebody else's."""
        arguments: dict[str, Argument] = {"x-queue-type": self._topology.queue_type}
        try:
            await (await self._spare.open()).inspect_exchange(name)
        except NotFound:
            await self._declare(name, arguments)
            await self._bound(name)
        else:
            if await self._spare.count(name) is None:
                return
            with suppress(ChannelClosed):  # it is somebody else's, or not ours to bind
                await (await self._spare.open()).declare_queue(name, arguments={**arguments})
                await self._bound(name)

    async def _bound(self, name: str) -> None:
        await (await self._spare.open()).declare_exchange(name, "topic")
        await self._bind(name, name, "#")

    async def _bind(self, queue: str, exchange: str, routing_key: str) -> None:
        await (await self._spare.open()).bind_queue(queue, exchange, routing_key)


def _in_words(part: Part) -> str:
    if isinstance(part, Binding):
        return f"the binding of {part.queue!r} to {part.exchange!r} with {part.routing_key!r}"
    return f"the {type(part).__name__.lower()} {part.name!r}"


def _arguments(kind: str, dead_letters: str) -> dict[str, Argument]:
    arguments: dict[str, Argument] = {
        "x-queue-type": kind,
        "x-dead-letter-exchange": dead_letters,
    }
    if kind == "quorum":
        arguments["x-dead-letter-strategy"] = "at-least-once"
        arguments["x-overflow"] = "reject-publish"
    return arguments
