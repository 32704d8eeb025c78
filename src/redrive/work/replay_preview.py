"""A dry run of a replay: where each letter would go, and whether it would be taken there.

What it guarantees: nothing is sent, made, bound or written; the broker is asked by passive declares
and its management API. What only that API tells is unknown without it, and said to be. It is a look
at one moment: while a replay runs, consumers empty queues and others fill them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from redrive.domain.breaker import Admission
from redrive.domain.filters import Filters
from redrive.domain.letter import Letter
from redrive.domain.replay import NEEDS_NOBODY, NO_ORIGIN, Destination
from redrive.store.breakers import Breakers
from redrive.store.replay_looks import ReplayLooks
from redrive.work.destination_look import DestinationLook, Expected, Look
from redrive.work.ordering import Key
from redrive.work.replay_report import reasons_document

_MOST_KEYS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewOrder:
    """Which letters, and what was said of how they are sent."""

    vhost: str
    filters: Filters
    limit: int | None = None
    key: Key | None = None
    """What tells which letters keep an order, if any do."""
    doubtful: bool = False
    drop_oldest: bool = False
    destination_of: Callable[[Letter], Destination | None]


@dataclass(slots=True)
class Preview:
    """What a replay would do now."""

    destinations: list[Look] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    keyless: int = 0
    """Of letters that keep an order: how many would be sent that have no value there."""

    @property
    def letters(self) -> int:
        """How many would be sent."""
        return sum(each.expected.letters for each in self.destinations)

    @property
    def not_taken(self) -> int:
        """How many of them would not be taken now."""
        return sum(each.not_taken for each in self.destinations)

    @property
    def skipped(self) -> int:
        """How many would be left out."""
        return sum(self.left_out.values())

    @property
    def matched(self) -> int:
        return self.letters + self.skipped

    @property
    def all_would_go_well(self) -> bool:
        """Whether every letter would be sent and taken, or left out with nothing to do about it."""
        fine = sum(number for reason, number in self.left_out.items() if reason in NEEDS_NOBODY)
        return bool(self.letters) and not self.not_taken and self.skipped == fine


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPreview:
    """Makes previews."""

    looks: ReplayLooks
    breakers: Breakers
    at: DestinationLook

    async def of(self, order: PreviewOrder, now: datetime) -> Preview:
        """Raises what store and broker raise."""
        preview = Preview()
        expected: dict[Destination, Expected] = {}
        prospects = self.looks.prospects(
            order.vhost,
            order.filters,
            limit=order.limit,
            ordered=order.key is not None,
            doubtful=order.doubtful,
        )
        async for some in prospects:
            going: list[Letter] = []
            for prospect in some:
                destination = order.destination_of(prospect.letter)
                reason = prospect.why_not or (NO_ORIGIN if destination is None else None)
                if reason is not None or destination is None:
                    preview.left_out[reason or ""] += 1
                else:
                    _expect(expected.setdefault(destination, Expected()), prospect.letter)
                    going.append(prospect.letter)
            if order.key is not None:
                preview.keyless += await self._without(order.key, going)
        waits = await self._breakers_that_hold(order.vhost, now)
        for destination, what in expected.items():
            look = await self.at.look(destination, what, drop_oldest=order.drop_oldest)
            if destination.queue in waits:
                look.hold(waits[destination.queue])
            preview.destinations.append(look)
        preview.destinations.sort(key=lambda each: (-each.expected.letters, str(each.destination)))
        return preview

    async def _without(self, key: Key, letters: Sequence[Letter]) -> int:
        """How many of them have no value there, as they would be sent."""
        keyless = 0
        async for messages in self.looks.messages(letters):
            keyless += sum(key(message) is None for message in messages)
        return keyless

    async def _breakers_that_hold(self, vhost: str, now: datetime) -> dict[str | None, str]:
        """What is said of queues whose breakers do not let everything pass."""
        held: dict[str | None, str] = {}
        for each in await self.breakers.all():
            admitted = each.breaker.admits(now)
            if each.vhost != vhost or admitted is Admission.ALL:
                continue
            if each.breaker.forced is not None:
                held[each.queue] = "its breaker is forced open: nothing goes before it is released"
            elif admitted is Admission.ONE:
                held[each.queue] = "its breaker is half-open: one letter goes first, as a probe"
            else:
                held[each.queue] = "its breaker is open: letters wait until a probe has succeeded"
        return held


def _expect(expected: Expected, letter: Letter) -> None:
    expected.letters += 1
    expected.size += letter.size
    expected.sizes.append(letter.size)
    if letter.routing_key in expected.keys or len(expected.keys) < _MOST_KEYS:
        expected.keys[letter.routing_key] += 1


def preview_document(found: Preview) -> dict[str, Any]:
    """As programs see it."""
    return {
        "dryRun": True,
        "letters": found.letters,
        "notTaken": found.not_taken,
        "destinations": [_look_document(each) for each in found.destinations],
        "skipped": found.skipped,
        "leftOut": reasons_document(found.left_out),
        "withoutOrder": found.keyless,
    }


def _look_document(look: Look) -> dict[str, Any]:
    return {
        "queue": look.destination.queue,
        "exchange": look.destination.exchange,
        "letters": look.expected.letters,
        "bytes": look.expected.size,
        "exists": look.exists,
        "ready": look.ready,
        "consumers": look.consumers,
        "bound": look.bound,
        "maxLength": look.max_length,
        "maxLengthBytes": look.max_length_bytes,
        "overflow": look.overflow,
        "messageTtl": look.message_ttl,
        "notTaken": look.not_taken,
        "obstacles": look.obstacles,
        "warnings": look.warnings,
    }
