"""Where messages go from an exchange: through bindings, further exchanges and alternate ones.

Pure. Where an exchange's type does not let a routing key decide (headers, hashes, types of
plugins), every queue behind it counts as reached, and the answer says that it is not certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from redrive.broker.doctor.view import SeenQueue, View
from redrive.broker.drift import LiveExchange
from redrive.broker.enrollment import Policy
from redrive.broker.routing import matches_any

DELAYED_TYPE = "x-delayed-message"


@dataclass(frozen=True, slots=True)
class Reached:
    """The queues that a message with a key comes to."""

    queues: frozenset[str]
    certain: bool = True

    @property
    def is_nowhere(self) -> bool:
        return self.certain and not self.queues


class Routes:
    """The ways of one broker; answers are kept, for thousands of queues share an exchange."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[tuple[str, str], Reached] = {}
        self._known_behind: dict[tuple[str, str], frozenset[str]] = {}

    @cached_property
    def ends(self) -> frozenset[str]:
        """The dead letter queues: where messages of working queues end, or may."""
        return self._ends_of(
            name
            for queue in self._sources()
            for name in self.targets(queue)
            if not queue.waits_by_messages or self._is_untouched(name)
        )

    @cached_property
    def certain_ends(self) -> frozenset[str]:
        """Those that surely are: where what only waits goes on, there may be work."""
        return self._ends_of(
            name
            for queue in self._sources()
            if not queue.waits_by_messages
            for name in self.targets(queue)
        )

    def _sources(self) -> Iterator[SeenQueue]:
        for queue in self._view.queues.values():
            if not queue.is_delay and queue.name not in self._view.own:
                yield queue

    def _is_untouched(self, name: str) -> bool:
        queue = self._view.queues.get(name)
        return queue is not None and not queue.consumers and queue.never_taken

    def _ends_of(self, targets: Iterable[str]) -> frozenset[str]:
        queues = self._view.queues
        named = (name for name in queues if self._view.is_end_by_name(name))
        return frozenset(
            name
            for name in {*targets, *named}
            if name in queues and queues[name].dead_letter_exchange is None
        )

    def reached(self, exchange: str, key: str) -> Reached:
        """Where a message ends that is published to an exchange with a key."""
        if (exchange, key) not in self._known:
            self._known[exchange, key] = self._walk(exchange, key)
        return self._known[exchange, key]

    def exists(self, exchange: str) -> bool:
        return exchange == "" or exchange in self._view.exchanges

    def targets(self, queue: SeenQueue) -> frozenset[str]:
        """The queues where its dead messages may come."""
        exchange = queue.dead_letter_exchange
        if exchange is None or not self.exists(exchange):
            return frozenset()
        keys, patterns = self._dead_keys(queue)
        found = {name for key in keys for name in self.reached(exchange, key).queues}
        if patterns:  # by its name it may get some too
            found |= self.reached(exchange, queue.name).queues
        return frozenset(found.union(*(self.behind(exchange, each) for each in patterns)))

    def lost_keys(self, queue: SeenQueue) -> tuple[str, ...]:
        """The keys of dead messages that surely come nowhere. The exchange must exist."""
        exchange = queue.dead_letter_exchange
        assert exchange is not None
        keys, _ = self._dead_keys(queue)
        return tuple(key for key in keys if self.reached(exchange, key).is_nowhere)

    def lost_patterns(self, queue: SeenQueue) -> tuple[str, ...]:
        """The patterns of keys, not known one by one, of dead messages that surely come nowhere."""
        exchange = queue.dead_letter_exchange
        assert exchange is not None
        _, patterns = self._dead_keys(queue)
        return tuple(each for each in patterns if not self.behind(exchange, each))

    def behind(self, exchange: str, pattern: str) -> frozenset[str]:
        """Every queue where a message may end whose key this pattern means."""
        if (exchange, pattern) not in self._known_behind:
            self._known_behind[exchange, pattern] = self._search(exchange, pattern)
        return self._known_behind[exchange, pattern]

    def _dead_keys(self, queue: SeenQueue) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The keys that its dead messages are known to have, and the patterns of others.

        Without a dead letter routing key they keep their own: what the queue is bound with. A
        queue that is bound to nothing gets its messages by its name.
        """
        if queue.dead_letter_key is not None:
            return (queue.dead_letter_key,), ()
        literal: dict[str, None] = {}
        patterns: dict[str, None] = {}
        for binding in self._view.bindings_to.get(queue.name, []):
            source, key = str(binding["source"]), str(binding["routing_key"])
            if source in ("", self._view.names.return_exchange):
                continue
            live = self._view.exchanges.get(source)
            kind = routing_kind(live) if live else ""
            if kind == "direct" or (kind == "topic" and not _is_pattern(key)):
                literal[key] = None
            else:
                patterns[key if kind == "topic" else "#"] = None
        if not literal and not patterns:
            return (queue.name,), ()
        return tuple(literal), tuple(patterns)

    def _search(self, exchange: str, pattern: str) -> frozenset[str]:
        queues: set[str] = set()
        seen: set[str] = set()
        ahead = [exchange]
        while ahead:
            here = ahead.pop()
            if here in seen:
                continue
            seen.add(here)
            if here == "":
                queues |= {name for name in self._view.queues if matches_any([pattern], name)}
                continue
            for binding in self._possible(here, pattern):
                into = queues.add if binding.get("destination_type") == "queue" else ahead.append
                into(str(binding["destination"]))
            if alternate := self._alternate(here):
                ahead.append(alternate)
        return frozenset(queues)

    def _possible(self, exchange: str, pattern: str) -> list[Mapping[str, Any]]:
        """The bindings that may take a key of this pattern.

        To a direct exchange `#` and `*` are letters, which no publisher uses as a key.
        """
        live = self._view.exchanges.get(exchange)
        bindings = self._view.bindings_from.get(exchange, [])
        if live is None or routing_kind(live) != "direct":
            return bindings
        return [
            each
            for each in bindings
            if not _is_pattern(each["routing_key"]) and matches_any([pattern], each["routing_key"])
        ]

    def _walk(self, exchange: str, key: str) -> Reached:
        queues: set[str] = set()
        certain = True
        seen: set[str] = set()
        ahead = [exchange]
        while ahead:
            here = ahead.pop()
            if here in seen:
                continue
            seen.add(here)
            if here == "":
                queues |= {key} & self._view.queues.keys()
                continue
            found, sure = self._bindings(here, key)
            certain = certain and sure
            for binding in found:
                if binding.get("destination_type") == "queue":
                    queues.add(str(binding["destination"]))
                else:
                    ahead.append(str(binding["destination"]))
            alternate = self._alternate(here)
            if alternate and (not found or not sure):
                ahead.append(alternate)
        return Reached(frozenset(queues), certain)

    def _bindings(self, exchange: str, key: str) -> tuple[list[Mapping[str, Any]], bool]:
        live = self._view.exchanges.get(exchange)
        bindings = self._view.bindings_from.get(exchange, [])
        if live is None or not bindings:
            return [], True
        match routing_kind(live):
            case "fanout":
                return bindings, True
            case "direct":
                return [each for each in bindings if each["routing_key"] == key], True
            case "topic":
                return [each for each in bindings if matches_any([each["routing_key"]], key)], True
        return bindings, False

    def _alternate(self, exchange: str) -> str | None:
        live = self._view.exchanges.get(exchange)
        if live is None:
            return None
        by_argument = live.arguments.get("alternate-exchange")
        if by_argument:
            return str(by_argument)
        found = policy_of_exchange(self._view, exchange)
        value = found.definition.get("alternate-exchange") if found else None
        return str(value) if value else None


def routing_kind(exchange: LiveExchange) -> str:
    """The type by which an exchange routes."""
    if exchange.kind == DELAYED_TYPE:
        return str(exchange.arguments.get("x-delayed-type", ""))
    return exchange.kind


def _is_pattern(key: str) -> bool:
    """Whether a topic exchange reads more than this one key in it."""
    return not {"#", "*"}.isdisjoint(key.split("."))


def policy_of_exchange(view: View, exchange: str) -> Policy | None:
    """The policy that matches an exchange with the highest priority."""
    found = [
        policy
        for policy in view.policies
        if policy.apply_to in ("all", "exchanges") and policy.matches(exchange)
    ]
    return max(found, key=lambda policy: policy.priority, default=None)
