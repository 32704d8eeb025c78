"""Failures for consumers of other client libraries: the same headers, the same retry path.

Works on decoded headers, since that is what those libraries give. They decide how a header's value
is written again, so types may narrow (an int64 that fits becomes an int8); the consumer of this
package keeps every byte, these cannot.

Not covered: the crash of a process. Their libraries ack and count as they do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from redrive.amqp.ours import STARTS_ANEW
from redrive.amqp.republish import MAX_ADDED
from redrive.broker.ladder import RUNGS, next_rung, rung_name
from redrive.broker.topology import tier_key
from redrive.consumer import wishes
from redrive.consumer.failures import failure_of
from redrive.consumer.signals import DeadLetter, RetryAfter
from redrive.domain import headers as own
from redrive.domain.failure import MAX_TYPE
from redrive.domain.handling import (
    DeadLettered,
    Delayed,
    LeftToPolicy,
    Outcome,
    Retried,
    Tried,
    after_failure,
    after_request,
)
from redrive.errors import SettingsError
from redrive.settings import Settings, load

_MILLISECOND: Final = timedelta(milliseconds=1)
_SET_ASIDE: Final = {"CC": own.CC, "BCC": own.BCC}
_STARTS_ANEW: Final = tuple(name.decode() for name in STARTS_ANEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A message of another library that its consumer failed on."""

    queue: str
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    body: bytes
    message_id: str | None = None
    redelivered: bool = False
    user_id: str | None = None
    expiration: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Where the copy goes, and with which headers. `user_id` and `expiration` are set aside."""

    exchange: str
    routing_key: str
    headers: dict[str, Any]
    failed: dict[str, Any]
    """The headers without what says of a retry that it is made."""
    rung: bool = False
    """Whether it goes up the ladder, which may have to be declared first."""


@cache
def usual_settings() -> Settings:
    """Where Redrive's settings come from, read once."""
    return load(environ={"HOME": "/", **os.environ}).settings


def refuse_wrong(queue: object, error: object, retries: object) -> None:
    """Refuse what a caller got wrong, before anything is done with the message."""
    wishes.short_text("queue", queue)
    if not queue:
        raise SettingsError(
            "queue: expected the name of the queue that was consumed, got none",
            remedy="name it: the message comes back there",
        )
    wishes.an_error(error)
    if retries is not None:
        wishes.whole_number("retries", retries, least=0)


def forward(
    failed: Failed, error: BaseException, *, retries: int | None, settings: Settings
) -> Forward:
    """What to publish for a message that failed."""
    found = _noted(failed)
    attempt = found.get(own.ATTEMPT)
    tried = Tried(
        attempt=attempt if type(attempt) is int and attempt > 0 else 0,
        replayed=isinstance(found.get(own.LETTER), str),
        retries=retries,
        tiers=len(settings.topology.tiers),
    )
    return _to(found, _judge(error, tried), settings)


def dead_instead(sent: Forward, trouble: str, settings: Settings, *, refused: bool) -> Forward:
    """The copy for the dead letter queue, after the one for elsewhere was not taken. A full queue
    refuses it for itself only: others that its exchange has may have got it."""
    reason = f"{trouble} (the failure before: {sent.failed[own.ERROR_REASON]})"
    found = {**sent.failed, own.ERROR_REASON: reason}
    if refused and sent.exchange:
        found[own.REDELIVERED] = True
    _shorten(found)
    names = settings.topology.names
    return _forward(names.dlq_exchange, names.dlq_routing_key, found)


def _judge(error: BaseException, tried: Tried) -> Outcome:
    if isinstance(error, DeadLetter):
        return DeadLettered(failure_of(error))
    if isinstance(error, RetryAfter):
        return after_request(tried, failure_of(error), error.delay, counts=error.counts)
    return after_failure(tried, failure_of(error))


def _noted(failed: Failed) -> dict[str, Any]:
    """The headers to send, with where the message belongs, its id and its deaths noted."""
    found = {name: value for name, value in failed.headers.items() if name not in own.BROKERS_OWN}
    for name, aside in _SET_ASIDE.items():
        if name in found:
            found[aside] = found.pop(name)
    if found.get(own.QUEUE) != failed.queue:
        _move_on(found, failed)
    found.setdefault(own.EXCHANGE, failed.exchange)
    found.setdefault(own.ROUTING_KEY, failed.routing_key)
    found.setdefault(own.ID, _identity(failed))
    if failed.user_id is not None:
        found[own.USER_ID] = failed.user_id
    if failed.expiration is not None:
        found[own.EXPIRATION] = failed.expiration
    if failed.redelivered:
        found[own.REDELIVERED] = True
    if not failed.message_id:
        found[own.UNNAMED] = True  # aio-pika gives every copy an id of its own
    found.pop(own.NOT_BEFORE, None)
    _add_death(found, failed)
    return found


def _move_on(found: dict[str, Any], failed: Failed) -> None:
    """Note its queue instead of another one; see `amqp/ours.py` of copies that came beside."""
    kept: dict[str, Any] = {}
    if (
        own.BY_EXCHANGE in found
        and found[own.BY_EXCHANGE] == found.get(own.QUEUE)
        and found.get(own.EXCHANGE) == failed.exchange
        and found.get(own.ROUTING_KEY) == failed.routing_key
    ):
        kept = {name: found[name] for name in (own.BY_EXCHANGE, own.ATTEMPT) if name in found}
    _start_anew(found)
    found.update(kept)
    found[own.QUEUE] = failed.queue


def _start_anew(found: dict[str, Any]) -> None:
    """Forget what was noted of another queue, but not whose letter it was sent for."""
    before = found.get(own.QUEUE)
    letter, generation = found.get(own.LETTER), found.get(own.GENERATION)
    for name in _STARTS_ANEW:
        found.pop(name, None)
    if letter is not None and before is not None:
        found[own.PARENT] = letter
    elif letter is not None and generation is not None:
        found[own.LETTER], found[own.GENERATION] = letter, generation


def _add_death(found: dict[str, Any], failed: Failed) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    found.setdefault(own.FIRST_FAILED_AT, now)
    known, x_death = found.get(own.DEATHS), failed.headers.get(own.X_DEATH)
    deaths = [
        *(known if isinstance(known, list) else []),
        *(reversed(x_death) if isinstance(x_death, list) else []),
        {
            "count": 1,
            "reason": "rejected",
            "queue": failed.queue,
            "time": now,
            "exchange": found[own.EXCHANGE],
            "routing-keys": [found[own.ROUTING_KEY]],
        },
    ]
    found[own.DEATHS] = deaths[-own.MAX_DEATHS :]


def _to(found: dict[str, Any], outcome: Outcome, settings: Settings) -> Forward:
    assert isinstance(outcome, (DeadLettered, LeftToPolicy, Retried, Delayed))
    names, failure = settings.topology.names, outcome.failure
    found[own.ERROR_TYPE] = _sendable(failure.error_type[:MAX_TYPE])
    found[own.ERROR_REASON] = _sendable(failure.reason)
    found.pop(own.ERROR_STACK, None)
    if failure.stack:
        found[own.ERROR_STACK] = _sendable(failure.stack)
    _shorten(found)
    if isinstance(outcome, DeadLettered):
        return _forward(names.dlq_exchange, names.dlq_routing_key, found)
    if isinstance(outcome, LeftToPolicy):
        return _forward(names.retry_exchange, names.retry_routing_key, found)
    counted = {own.ATTEMPT: outcome.attempt}
    if isinstance(outcome, Retried):
        key = tier_key(str(found[own.ROUTING_KEY]), outcome.tier)
        return _forward(names.route_delay, key, found, counted)
    counted[own.NOT_BEFORE] = time.time_ns() // 1_000_000 + outcome.delay // _MILLISECOND
    rung = rung_name(settings.topology.prefix, next_rung(outcome.delay) or RUNGS[0])
    return replace(_forward("", rung, found, counted), rung=True)


def _forward(
    exchange: str,
    routing_key: str,
    failed: dict[str, Any],
    counted: Mapping[str, int] | None = None,
) -> Forward:
    headers = {**failed, **(counted or {})}
    return Forward(exchange=exchange, routing_key=routing_key, headers=headers, failed=failed)


def _shorten(found: dict[str, Any]) -> None:
    """Bring Redrive's headers within their 16 KiB, in the order of `amqp/republish.py`."""

    def excess() -> int:
        return sum(_size(found[name]) for name in own.WRITTEN if name in found) - MAX_ADDED

    _cut_text(found, own.ERROR_STACK, excess())
    while found.get(own.DEATHS) and excess() > 0:
        found[own.DEATHS] = found[own.DEATHS][1:]
    _cut_text(found, own.ERROR_REASON, excess())


def _size(value: Any) -> int:
    """About how many bytes a value has on the wire, and not fewer."""
    if isinstance(value, str):
        return 5 + len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return 5 + len(value)
    if isinstance(value, dict):
        return 5 + sum(_size(name) + _size(each) for name, each in value.items())
    return 5 + sum(map(_size, value)) if isinstance(value, list) else 9


def _cut_text(found: dict[str, Any], name: str, excess: int) -> None:
    text = found.get(name)
    if isinstance(text, str) and excess > 0:
        octets = text.encode("utf-8", "replace")
        found[name] = octets[: max(0, len(octets) - excess)].decode("utf-8", "ignore")


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _identity(failed: Failed) -> str:
    """Derived, not drawn: a second copy after a crash gets the same id (ADR 0005)."""
    made = blake2b(digest_size=16)
    parts = [failed.queue, failed.exchange, failed.routing_key, failed.message_id or ""]
    if not failed.message_id:  # then what else its publisher sent is all that names it
        parts.append(_in_order(_theirs(failed.headers)))
    for part in parts:
        text = part.encode("utf-8", "surrogateescape")
        made.update(b"%d," % len(text) + text)
    made.update(failed.body)
    number = int.from_bytes(made.digest())
    # Version 8, as the consumer's and the retrier's.
    number = number & ~(0xF << 76) & ~(0x3 << 62) | 0x8 << 76 | 0x2 << 62
    return str(UUID(int=number))


def _theirs(found: Mapping[str, Any]) -> dict[str, Any]:
    """The publisher's headers, and where the message had died before it came."""
    ours = {*own.BROKERS_OWN, *own.WRITTEN} - {own.X_DEATH}
    return {name: value for name, value in found.items() if name not in ours}


def _in_order(value: Any) -> str:
    """A value as text that is the same for equal values, in whichever order a table is."""
    if isinstance(value, Mapping):
        items = sorted((str(name), _in_order(each)) for name, each in value.items())
        return repr(items)
    if isinstance(value, list):
        return repr([_in_order(each) for each in value])
    return repr(value)
