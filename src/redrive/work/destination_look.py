"""A look at where letters would be sent: is it there, is there room, does anybody consume it?

Nothing is made or bound. A queue that is not bound to the return exchange yet is bound when the
first letter is sent to it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate, takewhile
from typing import Any, Final
from urllib.parse import quote

from redrive.amqp import Connection
from redrive.broker.live import SpareChannel, can_exist, live_exchange, live_queue
from redrive.broker.management import Management
from redrive.broker.room import DROP_OLDEST, least
from redrive.broker.routing import is_routed
from redrive.broker.topology import return_key
from redrive.domain.durations import format_duration
from redrive.domain.replay import Destination
from redrive.errors import AccessRefused, ChannelClosed, ManagementError, NotFound, ResourceLocked

WITHOUT_MANAGEMENT: Final = "not known without the management API"
_REFUSES: Final = ("reject-publish", "reject-publish-dlx")


@dataclass(slots=True)
class Expected:
    """What would go to one destination."""

    letters: int = 0
    size: int = 0
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    """Of each letter, in the order in which they would go."""
    keys: Counter[str] = field(default_factory=Counter)
    """By routing key, as far as they were counted."""


@dataclass(slots=True)
class Look:
    """What is known of a destination, and what it would do with what goes there."""

    destination: Destination
    expected: Expected
    drop_oldest: bool = False
    """Whether it may push out its oldest messages for what goes there."""
    exists: bool | None = None
    """None where it cannot be told; likewise below."""
    ready: int | None = None
    consumers: int | None = None
    bound: bool | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str | None = None
    message_ttl: int | None = None
    not_taken: int = 0
    """How many letters would not be taken, or cost others their place."""
    obstacles: list[str] = field(default_factory=list)
    """Why they would not be."""
    warnings: list[str] = field(default_factory=list)

    def refuse(self, obstacle: str, letters: int | None = None) -> None:
        """So many, by default all, would not be taken."""
        self.obstacles.append(obstacle)
        self.not_taken = max(self.not_taken, self.expected.letters if letters is None else letters)

    def hold(self, reason: str) -> None:
        """All would have to wait."""
        self.refuse(reason)


class DestinationLook:
    """Looks by a connection of its own, and by the management API where there is one."""

    def __init__(
        self,
        connection: Connection,
        management: Management | None,
        return_exchange: str,
        own_queues: Container[str],
    ) -> None:
        self._spare = SpareChannel(connection)
        self._management = management
        self._return_exchange = return_exchange
        self._own_queues = own_queues

    async def look(
        self, destination: Destination, expected: Expected, *, drop_oldest: bool = False
    ) -> Look:
        """Raises `BrokerError` only if the broker is lost."""
        look = Look(destination, expected, drop_oldest)
        if destination.queue is not None:
            await self._queue(look, destination.queue)
        else:
            await self._exchange(look, destination.exchange or "")
        return look

    async def close(self) -> None:
        await self._spare.close()

    # A queue

    async def _queue(self, look: Look, queue: str) -> None:
        try:
            counts = await self._spare.count(queue) if can_exist(queue) else None
        except ResourceLocked:
            look.exists = True
            look.warnings.append("it is exclusive to its consumer: letters go by their exchanges")
            return
        except AccessRefused as error:
            look.warnings.append(f"whether it takes letters is not known: {error.text}")
            return
        except NotFound as error:
            look.exists = True
            look.refuse(f"it is down: {error.text}")
            return
        look.exists = counts is not None
        if counts is None:
            look.refuse("there is no such queue")
            return
        look.ready, look.consumers = counts
        if not look.consumers:
            look.warnings.append("it has no consumer: letters would wait there")
        if queue in self._own_queues:
            look.warnings.append("it is a queue of Redrive's own")
        found = await self._asked(look, ("queues", queue))
        if isinstance(found, dict):
            await self._limits(look, queue, found)

    async def _limits(self, look: Look, queue: str, found: dict[str, Any]) -> None:
        live = live_queue(found)
        bindings = await self._asked(look, ("queues", queue, "bindings"))
        wanted = (self._return_exchange, return_key(queue))
        look.bound = any((each["source"], each["routing_key"]) == wanted for each in bindings or ())
        if not look.bound:
            look.warnings.append(f"it is bound to {self._return_exchange} when the first is sent")
        if live.in_force("dead-letter-exchange") is None:
            look.warnings.append(
                "it has no dead letter exchange: what its consumer rejects is gone"
            )
        look.max_length = least(live, "max-length")
        look.max_length_bytes = least(live, "max-length-bytes")
        look.overflow = live.overflow
        look.message_ttl = least(live, "message-ttl")
        loses = _loses(live.in_force("dead-letter-exchange"))
        self._room(look, look.max_length, look.ready or 0, "messages", loses)
        # Statistics may be seconds late; of a queue that was just made there are none yet.
        waiting = found.get("message_bytes_ready", 0 if look.ready == 0 else None)
        if isinstance(waiting, int):
            self._room(look, look.max_length_bytes, waiting, "bytes", loses)
        elif look.max_length_bytes is not None:
            look.warnings.append("how many bytes wait there is not known yet")
        if look.message_ttl is not None:
            after = format_duration(timedelta(milliseconds=look.message_ttl))
            look.warnings.append(f"messages that wait there expire after {after}")
        if (expires := least(live, "expires")) is not None and not look.consumers:
            after = format_duration(timedelta(milliseconds=expires))
            look.warnings.append(f"the queue deletes itself after {after} without a consumer")

    def _room(
        self, look: Look, most: int | None, waiting: int, what: str, loses: tuple[str, str]
    ) -> None:
        if most is None:
            return
        room = max(0, most - waiting)
        expected = look.expected
        fit = room if what == "messages" else _that_fit(expected.sizes, room)
        letters = expected.letters - fit
        if letters <= 0:
            return
        does, would = loses
        if look.overflow in _REFUSES:
            look.refuse(f"it has room for {room:,} more {what} and refuses the rest", letters)
        elif look.drop_oldest:
            look.warnings.append(f"it has room for {room:,} more {what}, and {does} for the rest")
        else:
            look.refuse(
                f"it has room for {room:,} more {what}, and would {would} for the rest: the replay"
                f" pauses there, unless given {DROP_OLDEST}",
                letters,
            )

    # An exchange

    async def _exchange(self, look: Look, exchange: str) -> None:
        if not exchange:
            look.exists = True
            await self._default_exchange(look)
            return
        look.exists = can_exist(exchange)
        try:
            if look.exists:
                await (await self._spare.open()).inspect_exchange(exchange)
        except NotFound:
            look.exists = False
        except AccessRefused as error:
            look.exists = None
            look.warnings.append(f"whether it takes letters is not known: {error.text}")
            return
        if not look.exists:
            look.refuse("there is no such exchange")
            return
        found = await self._asked(look, ("exchanges", exchange))
        if not isinstance(found, dict):
            return
        bindings = await self._asked(look, ("exchanges", exchange, "bindings", "source"))
        policy = found.get("effective_policy_definition") or found.get("policy") or {}
        live = live_exchange(found)
        if "alternate-exchange" in live.arguments or "alternate-exchange" in policy:
            look.warnings.append("what no queue takes goes to its alternate exchange")
            return
        self._routed(look, live.kind, bindings or [])

    def _routed(self, look: Look, kind: str, bindings: list[dict[str, Any]]) -> None:
        answers = {key: is_routed(kind, bindings, key) for key in look.expected.keys}
        look.bound = bool(bindings)
        lost = sum(look.expected.keys[key] for key, answer in answers.items() if answer is False)
        if lost:
            look.refuse("no binding leads to a queue for their routing keys", lost)
        if None in answers.values():
            look.warnings.append("whether its bindings lead to a queue for all is not known")

    async def _default_exchange(self, look: Look) -> None:
        lost = 0
        for key, letters in look.expected.keys.items():
            try:
                missing = not can_exist(key) or await self._spare.count(key) is None
            except ChannelClosed:
                continue  # it is there, and not for us to look at
            lost += letters if missing else 0
        if lost:
            look.refuse("the default exchange finds no queue for their routing keys", lost)

    async def _asked(self, look: Look, path: tuple[str, ...]) -> Any:
        """What the management API tells; None, and a warning, if it does not."""
        if self._management is None:
            problem = WITHOUT_MANAGEMENT
        else:
            kind, *names = (quote(part, safe="") for part in path)
            vhost = quote(self._management.vhost, safe="")
            try:
                return await self._management.call("GET", "/".join((kind, vhost, *names)))
            except ManagementError as error:
                problem = f"not known: {error}"
        what = "its bindings" if path[0] == "exchanges" else "its length limits and binding"
        look.warnings.append(f"{what}: {problem}")
        return None


def _loses(dead_letters_to: Any) -> tuple[str, str]:
    """What a full queue does with its oldest messages: "it drops …", "it would drop …"."""
    if dead_letters_to is None:
        return "drops its oldest messages", "drop its oldest messages"
    there = f"its oldest messages to the exchange {dead_letters_to!r}"
    return f"dead-letters {there}", f"dead-letter {there}"


def _that_fit(sizes: Iterable[int], room: int) -> int:
    """How many go before the first for which there is no room."""
    return sum(1 for _ in takewhile(lambda held: held <= room, accumulate(sizes)))
