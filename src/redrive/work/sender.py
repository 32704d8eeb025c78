"""The Sender: claimed letters go out, and for each it is known what became of it.

    claim (committed) → publish, mandatory → confirm → record

What it guarantees:
- A letter is published once for each claim. Only what certainly is in no queue (returned as
  unroutable) is published a second time, after its queue was looked for and bound.
- Every claim has one of three results: `sent` (confirmed), `refused` (certainly in no queue), or
  `in_doubt` (no answer before the connection was gone, or for too long; or refused by one queue of
  an exchange that may have others). After a crash the store makes it `in_doubt`. What is in doubt
  is never sent again by itself.
- One bad letter does not spoil its neighbours: what cannot be published is refused before it is
  sent, and the first letter to an exchange goes alone, so that an exchange that is gone or
  forbidden closes the channel on it only.
- What is sent is what the publisher sent, or what a person made of it, as the Mover sends it, with
  `redrive-letter` and `redrive-generation`, and without what earlier failures left: so that what
  comes back tells of this failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from redrive.amqp import (
    Confirmed,
    Connection,
    Delivery,
    Outcome,
    Properties,
    Publish,
    Publisher,
    Returned,
    fields,
)
from redrive.amqp.fields import octets, text_of
from redrive.amqp.lane import Connect
from redrive.broker.topology import return_key
from redrive.domain import headers, metrics
from redrive.domain.letter import Claim, Head, Letter, Result
from redrive.domain.texts import storable
from redrive.errors import (
    BrokerError,
    CannotConnect,
    ChannelClosed,
    ConnectionLost,
    RedriveError,
    Unpublishable,
)
from redrive.tally import Tally
from redrive.work.by_exchange import not_by, sent_by_exchange
from redrive.work.dead_letters import trouble
from redrive.work.noting import Notes
from redrive.work.return_path import Down, ReturnPath, Unreachable

_LETTER: Final = octets(headers.LETTER)
_GENERATION: Final = octets(headers.GENERATION)
_QUEUE: Final = octets(headers.QUEUE)
_EXCHANGE: Final = octets(headers.EXCHANGE)
_ROUTING_KEY: Final = octets(headers.ROUTING_KEY)
_BY_EXCHANGE: Final = octets(headers.BY_EXCHANGE)
_USER_ID: Final = octets(headers.USER_ID)
_OF_EARLIER_FAILURES: Final = tuple(
    map(
        octets,
        (
            headers.ERROR_TYPE,
            headers.ERROR_REASON,
            headers.ERROR_STACK,
            headers.ATTEMPT,
            headers.REFUSED,
        ),
    )
)
_LONGEST_NAME: Final = 255
_MISSING: Final = 404
_DESTINATION_AT_FAULT: Final = frozenset((403, _MISSING))
_PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of one claim."""

    claim: Claim
    result: Result
    """Sent, refused or in doubt."""
    reason: str = ""
    """Why it was refused."""
    passing: bool = False
    """Whether what refused it will pass: a queue that is full, or down."""
    unwritten: bool = False
    """Whether it was refused because the connection was gone before anything of it was written."""
    cut_off: bool = False
    """Whether it was returned, and the connection lost by which its queue was looked for."""
    no_way: bool = False
    """Whether it was refused because the return exchange is missing, by which all go to a queue."""

    @property
    def disconnected(self) -> bool:
        """Whether nothing but a lost connection kept it from being sent."""
        return self.unwritten or self.cut_off


class Sender:
    """Publishes claims. One owner opens it, sends, and closes it."""

    def __init__(
        self,
        connect: Connect,
        return_exchange: str,
        own_queues: Collection[str],
        *,
        patience: float = _PATIENCE,
        tally: Tally | None = None,
    ) -> None:
        """`patience`: seconds without any answer after which what is unanswered is in doubt; less
        than a lease."""
        self._patience = patience
        self._tally = tally or Tally()
        self._connect = connect
        self._return_exchange = return_exchange
        self._to_one_queue = frozenset(("", return_exchange))
        self._own_queues = own_queues
        self._path = ReturnPath(return_exchange, connect)
        self._notes: dict[str, Notes] = {}
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        self._trusted: set[str] = set()  # exchanges that took a message on this channel
        self._has_way = True  # as far as the last letter has told

    async def open(self) -> None:
        """Connect. Raises `BrokerError`."""
        self._connection = await self._connect("redrive sender")
        await self._open_channel()

    async def _open_channel(self) -> None:
        assert self._connection is not None
        self._publisher = await (await self._connection.channel()).publisher()
        self._trusted.clear()

    async def close(self) -> None:
        self._path.abort()
        if self._connection is not None:
            await self._connection.close()

    def abort(self) -> None:
        self._path.abort()
        if self._connection is not None:
            self._connection.abort()

    @property
    def is_blocked(self) -> bool:
        """Whether the broker takes nothing for now."""
        return self._connection is not None and self._connection.blocked is not None

    async def ready(self) -> None:
        """Wait until sending makes sense: nothing is claimed before. Raises what ended the
        connection; a channel that was closed is opened anew."""
        assert self._publisher is not None
        assert self._connection is not None
        if self._publisher.closed and self._connection.is_open:
            await self._open_channel()
        await self._publisher.ready()
        if not self._connection.is_open:
            raise ConnectionLost("the connection to the broker was lost")

    async def has_way(self) -> bool:
        """Whether the return exchange is there. It is looked for only once it was missing."""
        if not self._has_way:
            self._has_way = await self._path.has_exchange(self._return_exchange)
        return self._has_way

    async def send(self, claims: Sequence[Claim]) -> list[Sent]:
        """Send letters; what became of each, in order. Never raises what a broker does."""
        done: dict[int, Sent] = {}
        drafted: list[_Sending] = []
        for claim in claims:
            try:
                drafted.append(self._draft(claim))
            except Unpublishable as error:
                done[id(claim)] = Sent(claim=claim, result=Result.REFUSED, reason=str(error))
        for some in self._in_groups(drafted):
            for sent in await self._send_all(some):
                done[id(sent.claim)] = sent
                if sent.no_way:
                    self._has_way = False
        return [done[id(claim)] for claim in claims]

    # What is sent

    def _draft(self, claim: Claim) -> _Sending:
        assert self._connection is not None
        letter, envelope = claim.letter, claim.envelope
        delivery = Delivery(
            0, False, envelope.exchange, envelope.routing_key, envelope.properties, envelope.body
        )
        user = self._connection.user
        notes = self._notes.get(envelope.queue)
        if notes is None:
            notes = self._notes[envelope.queue] = Notes(self._own_queues, envelope.queue)
        draft = notes.draft(delivery, user)
        ours = draft.ours
        exchange, key = _published(letter, delivery, ours)
        for name in _OF_EARLIER_FAILURES:
            ours.pop(name, None)
        ours[_LETTER] = fields.longstr(letter.id)
        ours[_GENERATION] = fields.int32(claim.generation)
        by, with_key = octets(exchange), octets(key)
        ours[_EXCHANGE], ours[_ROUTING_KEY] = fields.longstr(by), fields.longstr(with_key)
        if len(with_key) > _LONGEST_NAME or len(by) > _LONGEST_NAME:
            raise Unpublishable("its routing key or exchange is longer than a broker takes")
        bcc = b""
        if claim.queue is None:
            # Nobody knows where it will fail: what is noted of another queue would mislead.
            ours.pop(_QUEUE, None)
            ours.pop(_BY_EXCHANGE, None)
        else:
            if _BY_EXCHANGE in ours and not claim.queue == letter.queue == _noted_queue(ours):
                # A person sends it to another queue than the one that the message tells of, or did
                # so before: no other one's copies brought it there.
                del ours[_BY_EXCHANGE]
            ours[_QUEUE], bcc = _way_to(claim.queue)
        own = text_of(ours.get(_USER_ID)) == user
        if own:
            del ours[_USER_ID]
        raw = draft.seal(only_on_the_way=bcc)
        if own:
            raw = Properties.read(raw).with_text("user_id", user).raw
        through = self._return_exchange if claim.queue is not None else claim.exchange
        sending = _Sending(through or "", key, raw, envelope.body)
        sending.claim, sending.by_exchange, sending.tries = claim, exchange, 1
        return sending

    def _in_groups(self, sendings: Sequence[_Sending]) -> Iterator[list[_Sending]]:
        """What may go out together: the first to an exchange goes alone."""
        group: list[_Sending] = []
        for sending in sendings:
            if sending.exchange in self._trusted:
                group.append(sending)
                continue
            if group:
                yield group
            group = []
            yield [sending]
        if group:
            yield group

    # How it went

    async def _send_all(self, sendings: Sequence[_Sending]) -> list[Sent]:
        results: list[Sent] = []
        waiting = list(sendings)
        while waiting:
            answered = await self._publish(waiting)
            waiting = []
            for sending, outcome in answered:
                result = await self._judge(sending, outcome, alone=len(sendings) == 1)
                if isinstance(result, _Sending):
                    waiting.append(result)
                else:
                    results.append(result)
        return results

    async def _publish(
        self, sendings: Sequence[_Sending]
    ) -> list[tuple[_Sending, Outcome | RedriveError]]:
        """Every sending with its outcome; with the error that ended the channel, if there is none
        before that; with `Unpublishable` or `_NotSent` if nothing of it was written."""
        with contextlib.suppress(BrokerError):
            await self._reopen()
        assert self._publisher is not None
        if self._publisher.closed:
            return [(sending, _NOT_SENT) for sending in sendings]
        answers: dict[int, Outcome | RedriveError] = {}
        gone, began = BrokerError(""), time.monotonic()
        try:
            unsent = self._publisher.publish_all(sendings)
            answers = {id(sending): error for sending, error in unsent}
            while len(answers) < len(sendings):
                async with asyncio.timeout(self._patience):
                    settled = await self._publisher.next_outcomes()
                answers.update((id(sending), outcome) for sending, outcome in settled)
            self._tally.observe(metrics.CONFIRMS, time.monotonic() - began)
        except BrokerError as error:
            gone = error
        except TimeoutError:
            self.abort()
            gone = BrokerError(f"no answer for {self._patience:.0f} s")
        return [(sending, answers.get(id(sending), gone)) for sending in sendings]

    async def _reopen(self) -> None:
        assert self._publisher is not None
        assert self._connection is not None
        if self._publisher.closed and self._connection.is_open:
            await self._open_channel()

    async def _judge(
        self, sending: _Sending, outcome: Outcome | RedriveError, *, alone: bool
    ) -> Sent | _Sending:
        claim = sending.claim
        if isinstance(outcome, RedriveError):
            return _unanswered(sending, outcome, alone=alone)
        self._trusted.add(sending.exchange)
        if isinstance(outcome, Confirmed):
            return Sent(claim=claim, result=Result.SENT)
        if isinstance(outcome, Returned) and claim.queue is not None and sending.tries == 1:
            return await self._find_queue(sending, claim.queue)
        if not isinstance(outcome, Returned) and sending.exchange not in self._to_one_queue:
            return Sent(claim=claim, result=Result.IN_DOUBT)
        where = f"queue {claim.queue!r}" if claim.queue is not None else "the exchange"
        return Sent(
            claim=claim,
            result=Result.REFUSED,
            reason=f"{where} {trouble(outcome)}",
            passing=not isinstance(outcome, Returned),
        )

    async def _find_queue(self, sending: _Sending, queue: str) -> Sent | _Sending:
        """Nothing is bound for it: look for its queue, bind it, and send once more."""
        claim, exchange, raw = sending.claim, sending.exchange, sending.properties
        try:
            if not await self._path.restore(queue):
                # Only its owner's connection may touch it: by the way it came.
                exchange = sending.by_exchange
                by_exchange = await sent_by_exchange(Properties.read(raw), self._path)
                if by_exchange is None:
                    return Sent(claim=claim, result=Result.REFUSED, reason=not_by(exchange))
                raw = by_exchange
        except (BrokerError, Unreachable) as error:
            return Sent(
                claim=claim,
                result=Result.REFUSED,
                reason=str(error),
                passing=isinstance(error, BrokerError | Down),
                cut_off=isinstance(error, ConnectionLost | CannotConnect),
            )
        again = _Sending(exchange, sending.routing_key, raw, sending.body)
        again.claim, again.by_exchange = claim, sending.by_exchange
        again.tries = sending.tries + 1
        return again


def _unanswered(sending: _Sending, error: RedriveError, *, alone: bool) -> Sent:
    """What a sending without an answer is: in doubt, unless it certainly is in no queue."""
    claim = sending.claim
    if isinstance(error, ChannelClosed) and alone:  # on this one
        at_fault = error.code in _DESTINATION_AT_FAULT
        where = f"exchange {sending.exchange!r}: " if at_fault else ""
        if error.code == _MISSING and claim.queue is not None and sending.tries == 1:
            # The way to every queue: nothing of that is the letter's.
            reason = f"{where}{error.text}; run 'redrive topology apply'"
            return Sent(
                claim=claim, result=Result.REFUSED, reason=reason, passing=True, no_way=True
            )
        return Sent(claim=claim, result=Result.REFUSED, reason=f"{where}{error.text}")
    if isinstance(error, _NotSent | Unpublishable):
        unwritten = isinstance(error, _NotSent)
        return Sent(
            claim=claim,
            result=Result.REFUSED,
            reason=str(error),
            passing=unwritten,
            unwritten=unwritten,
        )
    return Sent(claim=claim, result=Result.IN_DOUBT)


class _NotSent(RedriveError):
    """The connection was gone before anything of it was written."""


_NOT_SENT: Final = _NotSent("the connection to the broker was lost before it was sent")


class _Sending(Publish):
    """A letter on its way."""

    __slots__ = ("by_exchange", "claim", "tries")

    claim: Claim
    by_exchange: str
    tries: int


@lru_cache(maxsize=1024)
def _way_to(queue: str) -> tuple[bytes, bytes]:
    """What sends a message to a queue: the field that names it, and the entry of headers that the
    return exchange routes by."""
    way = fields.array((fields.longstr(return_key(queue)),))
    return fields.longstr(queue), fields.entry(b"BCC", way)


def _noted_queue(ours: dict[bytes, bytes]) -> str | None:
    """Where the message says that it failed, as a letter would have it."""
    noted = text_of(ours.get(_QUEUE))
    return None if noted is None else storable(noted, _LONGEST_NAME)


def _published(
    letter: Letter | Head, delivery: Delivery, ours: dict[bytes, bytes]
) -> tuple[str, str]:
    """The exchange and routing key of its publisher, as bytes would have them: what is in the
    letter was made safe to store, and what is in the message may be of another hop."""
    noted = text_of(ours.get(_EXCHANGE)), text_of(ours.get(_ROUTING_KEY))
    for exchange, key in (noted, (delivery.exchange, delivery.routing_key)):
        if (
            key is not None
            and storable(key, _LONGEST_NAME) == letter.routing_key
            and storable(exchange or "", _LONGEST_NAME) == letter.exchange
        ):
            return exchange or "", key
    return letter.exchange, letter.routing_key
