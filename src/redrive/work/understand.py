"""A delivery becomes an arrival: where and why the message failed, as far as it tells.

Nothing a message holds can make this fail: what cannot be understood makes a letter with less in
it. The envelope has every byte as it came; all texts of the letter can be stored anywhere.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from uuid import UUID

import structlog

from redrive.amqp import Delivery, fields
from redrive.domain import headers
from redrive.domain.deaths import Death, origin_of
from redrive.domain.failure import (
    NAMES,
    UNKNOWN,
    WORDS,
    Failure,
    died_unsaid,
    failed_queue,
    parked,
    published_to,
    read_failure,
    without_words,
)
from redrive.domain.fingerprint import fingerprint
from redrive.domain.ids import letter_id
from redrive.domain.letter import Arrival, Envelope, Letter, Replayed
from redrive.domain.lifecycle import FIRST
from redrive.domain.texts import storable
from redrive.errors import MalformedData
from redrive.store.digests import content_digest, envelope_digest
from redrive.work.death_reader import DeathReader, storable_time
from redrive.work.section import SectionReader
from redrive.work.system_state import SystemState

log = structlog.get_logger()

Headers = Mapping[str, object]

_READ: Final = {
    fields.octets(name): name
    for name in (
        headers.ID,
        headers.ATTEMPT,
        headers.QUEUE,
        headers.EXCHANGE,
        headers.ROUTING_KEY,
        headers.FIRST_FAILED_AT,
        headers.LETTER,
        headers.GENERATION,
        headers.PARENT,
        headers.REDELIVERED,
        headers.TAGS,
        headers.UNNAMED,
        *NAMES,
    )
}
"""The headers that say something, beside the deaths, by their names on the wire."""
_X_DEATH: Final = fields.octets(headers.X_DEATH)
_DEATHS: Final = fields.octets(headers.DEATHS)
_STARTS_ANEW: Final = (
    headers.ID,
    headers.ATTEMPT,
    headers.EXCHANGE,
    headers.ROUTING_KEY,
    headers.FIRST_FAILED_AT,
    *WORDS,
)
"""What Redrive noted of a failure elsewhere. Whose letter it was sent for stays: its parent."""
_STRING: Final = ord("S")
_NAME: Final = 255
_MAX_DEATHS: Final = 50
_MAX_TAGS: Final = 50
_TAG: Final = 100
_RANDOM: Final = (1 << 74) - 1
_MAX_COUNT: Final = 2**31 - 1


@lru_cache(maxsize=1024)
def _number(field: bytes) -> fields.Value:
    """A count, a time: few of them are new, and none has more than nine bytes."""
    return fields.decode(field)


class Understanding:
    """Reads dead messages of one vhost."""

    def __init__(self, vhost: str, own_queues: Container[str], ends: Container[str]) -> None:
        """`ends` are those of its own queues in which nothing is published again."""
        self._vhost = vhost
        self._own_queues = own_queues
        self._ends = ends
        self._sections = SectionReader(frozenset({*_READ, _X_DEATH, _DEATHS}))
        self._deaths = DeathReader()

    def arrival(
        self, delivery: Delivery, queue: str, *, now: datetime, random: int, state: SystemState
    ) -> Arrival:
        """What a delivery of `queue` is. `random` are 74 bits for the letter's id."""
        envelope = Envelope(
            vhost=self._vhost,
            queue=queue,
            exchange=delivery.exchange,
            routing_key=delivery.routing_key,
            redelivered=delivery.redelivered,
            properties=delivery.properties,
            body=delivery.body,
        )
        if beyond := now.microsecond % 1000:
            now = now.replace(microsecond=now.microsecond - beyond)
        id_ = letter_id(now, random & _RANDOM)
        try:
            return self._read(envelope, id_, now, state)
        except Exception as error:  # whatever is in it, it is kept
            if not isinstance(error, MalformedData):
                log.exception("collector.not_understood", queue=queue, letter=id_)
            return bare(envelope, id_, now, state, f"the message cannot be read: {error}")

    def _read(self, envelope: Envelope, id_: str, now: datetime, state: SystemState) -> Arrival:
        section = self._sections.read(envelope.properties)
        raw, content_type, content_encoding, priority, message_id, app_id = section
        fresh = self._deaths.read(raw.pop(_X_DEATH, None))
        deaths = self._deaths.read(raw.pop(_DEATHS, None)) + fresh[::-1]
        found = {
            _READ[name]: str(field[5:], "utf-8", "surrogateescape")
            if field[0] == _STRING
            else _number(field)
            if field[0] in fields.FIXED_SIZE
            else fields.decode(field)
            for name, field in raw.items()
        }
        died = origin_of(fresh, self._own_queues)
        origin = died or origin_of(reversed(deaths), self._own_queues)
        moved_on = died is not None and _moved_on(found, died)
        if moved_on:
            found = {name: value for name, value in found.items() if name not in _STARTS_ANEW}
        elif died is not None and died_unsaid(found, died):
            found = without_words(found)
        queue = self._queue(found, died, origin)
        exchange, routing_key = self._published_to(envelope, found, died or origin)
        newest = origin or (deaths[-1] if deaths else None)
        failure = read_failure(found, newest.reason if newest else None)
        group = _fingerprint(failure, queue)  # that it is parked makes no other group of it
        if self._was_parked(fresh):
            failure = parked(failure)
        first, last = _failed_between(found, fresh[::-1] if moved_on else deaths, now)
        letter = Letter(
            id=id_,
            message_id=storable(message_id, _NAME) if message_id else _made_up(id_, now),
            status=FIRST,
            vhost=envelope.vhost,
            queue=queue,
            exchange=exchange,
            routing_key=routing_key,
            collected_from=envelope.queue,
            error_type=failure.error_type,
            error_reason=failure.reason,
            error_stack=failure.stack,
            fingerprint=group,
            deaths=tuple(deaths[-_MAX_DEATHS:]),
            retry_count=_retries(found, origin),
            first_failed_at=first,
            last_failed_at=last,
            source=storable(app_id, _NAME) if app_id else queue or envelope.queue,
            priority=priority or 0,
            tags=_tags(found.get(headers.TAGS)),
            content_type=None if content_type is None else storable(content_type, _NAME),
            content_encoding=None
            if content_encoding is None
            else storable(content_encoding, _NAME),
            size=len(envelope.body),
            cpu_usage=state.cpu_usage,
            memory_usage=state.memory_usage,
            created_at=now,
            updated_at=now,
            next_retry_at=now,
            parent_id=_letter_named(found.get(headers.PARENT)),
        )
        named = bool(message_id) and found.get(headers.UNNAMED) is not True
        known = found.get(headers.ID)
        if not isinstance(known, str) or not known:
            known = self._id_of_a_parked(envelope, fresh) if named else None
        return Arrival(
            letter=letter,
            envelope=envelope,
            redrive_id=known,
            digest=envelope_digest(envelope),
            replayed=_replayed(found),
            named=named,
            marked=_marked(found, envelope, deaths),
        )

    def _was_parked(self, fresh: list[Death]) -> bool:
        """Whether Redrive rejected it because it could not publish it again. In the dead letter
        queue it rejects nothing, others may; and of receipts what is none."""
        if not fresh or fresh[0].reason != "rejected":
            return False
        return fresh[0].queue in self._own_queues and fresh[0].queue not in self._ends

    def _id_of_a_parked(self, envelope: Envelope, fresh: list[Death]) -> str | None:
        """Of a message that the retrier could not publish again, and so could not give an id: one
        by its content, as those are that it gives. None if it was not in the retrier's hands."""
        if not any(death.queue in self._own_queues for death in fresh):
            return None
        return f"parked {content_digest(envelope).hex()}"

    def _queue(self, found: Headers, died: Death | None, origin: Death | None) -> str | None:
        """Where it failed: what the broker wrote last counts before what anybody can write."""
        noted = found.get(headers.QUEUE)
        if died is not None:
            queue: str | None = died.queue
        elif isinstance(noted, str) and noted:
            queue = noted
        elif origin is not None:
            queue = origin.queue
        else:
            queue = failed_queue(found)
        return None if queue is None else storable(queue, _NAME)

    def _published_to(
        self, envelope: Envelope, found: Headers, death: Death | None
    ) -> tuple[str, str]:
        exchange, key = found.get(headers.EXCHANGE), found.get(headers.ROUTING_KEY)
        if death is not None and (
            not isinstance(key, str) or death.queue != found.get(headers.QUEUE)
        ):
            exchange, key = death.exchange, death.routing_key
        if not isinstance(exchange, str) or not isinstance(key, str):
            exchange, key = published_to(found)
        if exchange is None or key is None:
            exchange, key = envelope.exchange, envelope.routing_key
        return storable(exchange, _NAME), storable(key, _NAME)


def bare(envelope: Envelope, id_: str, now: datetime, state: SystemState, reason: str) -> Arrival:
    """A letter of which only the bytes are known, and why nothing else is."""
    failure = Failure(error_type=UNKNOWN, reason=storable(reason, 1000))
    letter = Letter(
        id=id_,
        message_id=_made_up(id_, now),
        status=FIRST,
        vhost=envelope.vhost,
        queue=None,
        exchange=storable(envelope.exchange, _NAME),
        routing_key=storable(envelope.routing_key, _NAME),
        collected_from=envelope.queue,
        error_type=failure.error_type,
        error_reason=failure.reason,
        error_stack=None,
        fingerprint=_fingerprint(failure, None),
        deaths=(),
        retry_count=0,
        first_failed_at=now,
        last_failed_at=now,
        source=envelope.queue,
        priority=0,
        tags=(),
        content_type=None,
        content_encoding=None,
        size=len(envelope.body),
        cpu_usage=state.cpu_usage,
        memory_usage=state.memory_usage,
        created_at=now,
        updated_at=now,
        next_retry_at=now,
    )
    return Arrival(
        letter=letter,
        envelope=envelope,
        redrive_id=None,
        digest=envelope_digest(envelope),
        replayed=None,
    )


def _fingerprint(failure: Failure, queue: str | None) -> str:
    return fingerprint(
        error_type=failure.error_type,
        reason=failure.reason,
        stack=failure.stack,
        queue=queue or "",
    )


def _moved_on(found: Headers, died: Death) -> bool:
    """Whether it failed elsewhere since our headers were written."""
    noted = found.get(headers.QUEUE)
    return isinstance(noted, str) and storable(noted, _NAME) != died.queue


def _failed_between(
    found: Headers, deaths: list[Death], now: datetime
) -> tuple[datetime, datetime]:
    """When it failed first and last. Clocks of other machines may be ahead; order is kept."""
    times = [death.at for death in deaths if death.at is not None]
    noted = found.get(headers.FIRST_FAILED_AT)
    first = storable_time(noted) if isinstance(noted, datetime) else None
    last = times[-1] if times else now
    return min(first or (times[0] if times else last), last), last


def _retries(found: Headers, origin: Death | None) -> int:
    noted = found.get(headers.ATTEMPT)
    if type(noted) is int and 0 <= noted <= _MAX_COUNT:
        return noted
    return min(origin.count - 1, _MAX_COUNT) if origin else 0


def _marked(found: Headers, envelope: Envelope, deaths: list[Death]) -> bool:
    """Whether it may be a second copy by its own word. One that the broker delivered to us before
    is told by the time at which it first failed, if it has one."""
    if found.get(headers.REDELIVERED) is True:
        return True
    timed = isinstance(found.get(headers.FIRST_FAILED_AT), datetime)
    return envelope.redelivered and not timed and all(death.at is None for death in deaths)


def _replayed(found: Headers) -> Replayed | None:
    letter, generation = _letter_named(found.get(headers.LETTER)), found.get(headers.GENERATION)
    if letter is None or type(generation) is not int:
        return None
    return Replayed(letter=letter, generation=generation)


def _letter_named(value: object) -> str | None:
    """The id of a letter, if it is one: headers can be anybody's."""
    if not isinstance(value, str):
        return None
    name = value.lower()
    try:
        return name if str(UUID(name)) == name else None
    except ValueError:
        return None


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, str) or not value:
        return ()
    tags = [storable(tag.strip(), _TAG) for tag in value[:10_000].split(",")]
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:_MAX_TAGS]


def _made_up(id_: str, now: datetime) -> str:
    return f"msg_{int(now.timestamp())}_{id_[-6:]}"


def utc_now() -> datetime:
    """The time, as letters note it: to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
