"""What Redrive needs on a broker, as data: exchanges, queues and bindings, made from the settings.

Pure: the same settings always give the same description, and nothing here talks to a broker.
Planning, applying and checking compare this description with what a broker has. Settings that would
give one name to two things raise SettingsError.

Why each argument is there (each was tried; BROKER_FACTS):
- A delivery limit of 1,000,000: RabbitMQ 4 has 20 by default and deletes what exceeds it; "none"
  (-1) deletes at the first return on 3.10.
- At-least-once dead-lettering with reject-publish: without both, a broker crash loses messages on
  their way from a delay queue to where they return.
- `retry-queue` and `retry-queue-N` dead-letter into the dead letter queue: a message that cannot be
  published again is rejected, and so parks there unchanged. So does `redrive-receipts`, for what is
  no receipt.
- `#` beside the seed's keys: a queue that dead-letters here without a routing key of its own sends
  messages with their original keys, and without `#` they would be dropped in silence.
- Each queue of the per-queue layout is bound to the return exchange, as enrolled queues are.

The same, for users, with every name: docs/reference/topology.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Final

from redrive.errors import SettingsError
from redrive.settings.sections import QueueSettings, TopologySettings

DELIVERY_LIMIT: Final = 1_000_000
_LONGEST_KEY: Final = 255
# What a topic exchange would read as a border of words or a wildcard; and what stands for those.
_NO_WORDS: Final = str.maketrans({"%": "%25", ".": "%2E", "*": "%2A", "#": "%23"})
MAX_TIERS: Final = 100

Argument = str | int


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange. The users' own is made where it is missing, and never deleted."""

    name: str
    kind: str
    users: bool = False

    def __str__(self) -> str:
        return f"exchange {self.name}"


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue with its arguments. The users' own is made where missing, never deleted."""

    name: str
    arguments: dict[str, Argument]
    users: bool = False

    def __str__(self) -> str:
        return f"queue {self.name}"

    @property
    def kind(self) -> str:
        """`quorum` or `classic`."""
        return str(self.arguments["x-queue-type"])

    def dead_letters_by(self, ways: Collection[tuple[str, str]]) -> bool:
        """Whether its dead letters take one of these ways: an exchange and a binding key."""
        exchange = str(self.arguments.get("x-dead-letter-exchange"))
        key = str(self.arguments.get("x-dead-letter-routing-key"))
        return (exchange, key) in ways or (exchange, "#") in ways


@dataclass(frozen=True, slots=True)
class Binding:
    """A queue bound to an exchange."""

    exchange: str
    queue: str
    routing_key: str

    def __str__(self) -> str:
        return f"binding {self.exchange} → {self.queue} by {self.routing_key}"


Part = Exchange | Queue | Binding


@dataclass(frozen=True, slots=True)
class Topology:
    """All that Redrive declares, in an order in which it can be declared."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]
    return_exchange: str = ""

    def parts(self) -> tuple[Part, ...]:
        """Everything, in an order in which it can be declared."""
        return (*self.exchanges, *self.queues, *self.bindings)

    def only(self, names: Collection[str]) -> Topology:
        """The exchanges and queues of these names, with the queues' bindings."""
        return Topology(
            tuple(exchange for exchange in self.exchanges if exchange.name in names),
            tuple(queue for queue in self.queues if queue.name in names),
            tuple(binding for binding in self.bindings if binding.queue in names),
            self.return_exchange,
        )

    def queue_names(self) -> frozenset[str]:
        """The queues that are Redrive's own: a death in one of them is no failure."""
        return frozenset(queue.name for queue in self.queues if not queue.users)

    def parking(self, sound: Collection[Part]) -> frozenset[str]:
        """The queues whose rejected messages are known to be kept, where these parts are sound.

        Where the queue, its dead letter exchange or the binding behind it is anyhow else than
        described, the broker may drop what is rejected, or bring it round in a circle.
        """
        queues = {part.name for part in sound if isinstance(part, Queue)}
        exchanges = {part.name for part in sound if isinstance(part, Exchange)}
        ways = {
            (part.exchange, part.routing_key)
            for part in sound
            if isinstance(part, Binding) and part.exchange in exchanges and part.queue in queues
        }
        return frozenset(
            queue.name
            for queue in self.queues
            if queue.name in queues and not queue.users and queue.dead_letters_by(ways)
        )


def describe(settings: TopologySettings, queues: tuple[QueueSettings, ...] = ()) -> Topology:
    """The topology of the settings: the shared tiers, and what each per-queue layout adds."""
    layout = _Layout(settings)
    layout.shared()
    for queue in queues:
        layout.per_queue(queue)
    layout.refuse_one_name_twice()
    return Topology(
        tuple(layout.exchanges),
        tuple(layout.queues),
        tuple(layout.bindings),
        settings.names.return_exchange,
    )


def tier_beyond(settings: TopologySettings, tier: int) -> Topology:
    """What a tier that the settings no longer have would have left on the broker."""
    layout = _Layout(settings)
    layout.tier(tier, settings.tiers[-1])
    return Topology(tuple(layout.exchanges), tuple(layout.queues), ())


def with_tiers_beyond(topology: Topology, settings: TopologySettings) -> Topology:
    """The topology, and all that tiers could have left that the settings no longer have."""
    numbers = range(len(settings.tiers) + 1, MAX_TIERS + 1)
    beyond = [tier_beyond(settings, number) for number in numbers]
    return Topology(
        (*topology.exchanges, *(exchange for tier in beyond for exchange in tier.exchanges)),
        (*topology.queues, *(queue for tier in beyond for queue in tier.queues)),
        topology.bindings,
        topology.return_exchange,
    )


def return_key(queue: str) -> str:
    """Binds a queue to the return exchange, so that only that queue sees its messages again.

    One word, whatever the queue is called. A key has 255 bytes at most, as a queue's name has: of a
    longer one a digest stands for it.
    """
    key = f"redrive-queue:{queue.translate(_NO_WORDS)}"
    if len(key.encode("utf-8", "surrogateescape")) > _LONGEST_KEY:
        name = queue.encode("utf-8", "surrogateescape")
        return f"redrive-queue-digest:{blake2b(name, digest_size=32).hexdigest()}"
    return key


def tier_key(routing_key: str, tier: int) -> str:
    """The key that brings a message to a tier; where the original does not fit in, without it."""
    key = f"binding.{routing_key}.{tier}"
    if len(key) > 60 and len(key.encode("utf-8", "surrogateescape")) > _LONGEST_KEY:
        return f"binding.{tier}"  # the original is in the headers; a character has four bytes
    return key


def retry_queue_of(queue: str) -> str:
    """Where a queue of the per-queue layout sends what failed (seed 004)."""
    return f"{queue}.retry"


def delay_queue_of(queue: str) -> str:
    """Where a queue of the per-queue layout lets messages wait (seed 004)."""
    return f"{queue}.delay"


class _Layout:
    """Collects the parts while the settings are walked."""

    def __init__(self, settings: TopologySettings) -> None:
        self._settings = settings
        self._names = settings.names
        self.exchanges: dict[Exchange, None] = {}
        self.queues: list[Queue] = []
        self.bindings: list[Binding] = []

    def shared(self) -> None:
        names = self._names
        self._exchange(names.dlq_exchange, "topic")
        self._queue(names.dlq_queue, {})
        self._bind(names.dlq_exchange, names.dlq_queue, names.dlq_routing_key, "#")

        self._exchange(names.retry_exchange, "topic")
        self._queue(names.retry_queue, self._parks())
        self._bind(names.retry_exchange, names.retry_queue, names.retry_routing_key, "#")

        self._exchange(names.route_delay, "topic")
        for tier, wait in enumerate(self._settings.tiers, start=1):
            self.tier(tier, wait)
        self._exchange(names.return_exchange, "topic")
        self._queue(names.receipts_queue, self._parks())

    def tier(self, tier: int, wait: timedelta) -> None:
        names = self._names
        delayed_exchange, delayed_queue, delay_queue = (
            name.replace("{n}", str(tier))
            for name in (names.delayed_exchange, names.delayed_queue, names.delay_queue)
        )
        self._exchange(delayed_exchange, "topic")
        self._queue(delayed_queue, self._parks())
        self._bind(delayed_exchange, delayed_queue, "#")
        self._queue(delay_queue, self._waits(wait, delayed_exchange, f"retry.#.{tier}"))
        self._bind(names.route_delay, delay_queue, f"binding.#.{tier}")

    def per_queue(self, queue: QueueSettings) -> None:
        """Seed 004: `Q`, `Q.retry`, `Q.delay` around a topic exchange and its `.retry` sibling."""
        names = self._names
        retry_exchange = f"{queue.exchange}.retry"
        retry_queue, delay_queue = retry_queue_of(queue.name), delay_queue_of(queue.name)
        self._exchange(queue.exchange, "topic", users=True)
        self._exchange(retry_exchange, "topic")
        # The consumers' own queue: the broker's delivery limit stays, it parks poison by a death.
        self._queue(queue.name, self._dead_letters(retry_exchange, retry_queue), users=True)
        self._bind(queue.exchange, queue.name, queue.name)
        self._bind(names.return_exchange, queue.name, return_key(queue.name))
        self._queue(retry_queue, self._parks())
        self._bind(retry_exchange, retry_queue, retry_queue)
        if queue.delay is not None:
            returns = names.delayed_exchange.replace("{n}", "1")
            self._queue(delay_queue, self._waits(queue.delay, returns, delay_queue))
            self._bind(queue.exchange, delay_queue, delay_queue)

    def refuse_one_name_twice(self) -> None:
        for what, names in (
            ("exchange", [exchange.name for exchange in self.exchanges]),
            ("queue", [queue.name for queue in self.queues]),
        ):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise SettingsError(
                    f"queue: the {what} {twice!r} would be declared twice, with different meanings",
                    remedy="name each [[queue]] once, and none like a queue or exchange of Redrive",
                )

    def _exchange(self, name: str, kind: str, *, users: bool = False) -> None:
        self.exchanges.setdefault(Exchange(name, kind, users))

    def _queue(self, name: str, arguments: dict[str, Argument], *, users: bool = False) -> None:
        kind: dict[str, Argument] = {"x-queue-type": self._settings.queue_type}
        if self._settings.queue_type == "quorum" and not users:
            kind["x-delivery-limit"] = DELIVERY_LIMIT
        self.queues.append(Queue(name, {**kind, **arguments}, users))

    def _bind(self, exchange: str, queue: str, *keys: str) -> None:
        self.bindings.extend(Binding(exchange, queue, key) for key in keys)

    def _parks(self) -> dict[str, Argument]:
        return self._dead_letters(self._names.dlq_exchange, self._names.dlq_routing_key)

    def _waits(self, wait: timedelta, exchange: str, routing_key: str) -> dict[str, Argument]:
        milliseconds = wait // timedelta(milliseconds=1)
        return {**self._dead_letters(exchange, routing_key), "x-message-ttl": milliseconds}

    def _dead_letters(self, exchange: str, routing_key: str) -> dict[str, Argument]:
        arguments: dict[str, Argument] = {
            "x-dead-letter-exchange": exchange,
            "x-dead-letter-routing-key": routing_key,
        }
        if self._settings.queue_type == "quorum":
            arguments["x-dead-letter-strategy"] = "at-least-once"
            arguments["x-overflow"] = "reject-publish"
        return arguments
