"""What happens to a delivery after its handler: acked, or a copy published first and then acked.

- A copy is confirmed by the broker before the delivery is acked: killed in between, the message is
  there twice, with one `redrive-id`, never nowhere.
- A copy that no queue takes goes to the dead letter queue, with the reason; if that takes it
  neither, the delivery is held, and the copy sent again every few seconds. One for a single queue,
  by its name, that was refused is sent to it some more times before that.
- A message that cannot be published again at all is rejected where that is known to bring it to the
  dead letter queue, at that moment; elsewhere it is held, and goes back to the queue that it was
  taken from after ten minutes.
- The receipt of a handled replay goes out before the ack. A receipt that nobody takes is no reason
  to keep a message that was handled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from redrive.amqp import Delivery, Publish, Refused, Returned
from redrive.amqp.confirms import CONFIRMED
from redrive.amqp.lane import LaneOutcome, Poison
from redrive.amqp.republish import marked_redelivered
from redrive.consumer.copies import Copies
from redrive.consumer.logs import log
from redrive.consumer.queues import Declared, Unsure
from redrive.consumer.receipts import Receipts
from redrive.consumer.sending import Sending
from redrive.consumer.telling import Told, about, about_outcome
from redrive.domain.failure import Failure
from redrive.domain.handling import Acked, DeadLettered, Delayed, LeftToPolicy, Outcome, Retried
from redrive.errors import BrokerError, ConnectionLost, Unpublishable

_AGAIN: Final = timedelta(seconds=5)
_SOON: Final = timedelta(seconds=0.5)
_TIMES_MORE: Final = 3
_WAIT_FOR_A_PERSON: Final = timedelta(minutes=10)
"""Well within the 30 minutes after which a broker takes a delivery back itself."""
_BY_HAND: Final = (
    "have the handler take it when it comes again, after ten minutes, or get it out of the queue"
    " by hand"
)
_DECLARE: Final = "declare it; 'redrive topology apply' makes what is Redrive's own"
_MADE_ANEW: Final = "wait a moment: the consumer declares it anew; should this last, start it again"
_FORBIDDEN: Final = 403
_EVENTS: Final = {
    Retried: "message.retried",
    Delayed: "message.delayed",
    LeftToPolicy: "message.left_to_policy",
    DeadLettered: "message.dead_lettered",
}


class Deliveries(Protocol):
    """Where deliveries are answered."""

    @property
    def queue(self) -> str:
        """The one that they were taken from."""

    def check(self) -> None:
        """Raise if they are void by now, and come again."""

    def ack(self, *deliveries: Delivery) -> None: ...
    def reject(self, delivery: Delivery) -> None: ...
    def requeue(self, delivery: Delivery) -> None: ...
    def flush(self) -> None: ...


class Declares(Protocol):
    """Makes what is missing on the broker."""

    async def ladder(self) -> None: ...
    async def dead_letters(self) -> Unsure | None:
        """None if whatever is rejected now, and goes to Redrive's own exchange, is kept."""


class Settling:
    """Settles the deliveries of one handler."""

    def __init__(
        self,
        copies: Copies,
        sending: Sending,
        *,
        receipts: Receipts,
        declared: Declared,
        declares: Declares,
        stopping: asyncio.Event,
    ) -> None:
        """Once `stopping` is set, nothing is waited for any more."""
        self._copies = copies
        self._sending = sending
        self._receipts = receipts
        self._declared = declared
        self._declares = declares
        self._stopping = stopping
        self._said: dict[str, Told] = {}

    async def settle(self, delivery: Delivery, outcome: Outcome, source: Deliveries) -> None:
        """Do with a delivery what should become of its message."""
        try:
            await self._settle(delivery, outcome, source)
        except BrokerError:
            raise
        except Exception as error:  # noqa: BLE001
            await self._spoilt(delivery, error, source)

    async def _settle(self, delivery: Delivery, outcome: Outcome, source: Deliveries) -> None:
        if isinstance(outcome, Acked):
            await self._send_receipt(delivery)
            source.ack(delivery)
            source.flush()
            return
        source.check()
        try:
            copy = self._copies.of(delivery, outcome)
            answer = await self._send_up(copy, source)
            if isinstance(answer, (Returned, Refused)) and not self._copies.is_dead_letter(copy):
                trouble = f"{_destination(copy, outcome)} {_trouble(answer)}"
                outcome = _dead_instead(outcome.failure, trouble)
                first, copy = copy, self._copies.of(delivery, outcome)
                if isinstance(answer, Refused) and first.exchange:
                    copy = _marked(copy)
                answer = await self._sending.send(copy)
        except Unpublishable as error:
            await self._poisoned(delivery, str(error), source)
            return
        if await self._finish(delivery, copy, answer, source):
            say = log.warning if isinstance(outcome, DeadLettered) else log.info
            say(_EVENTS[type(outcome)], **about_outcome(outcome), **about(delivery, self._declared))

    async def set_again(self, delivery: Delivery, source: Deliveries) -> bool:
        """Have a delivery handled again, among others; False if its queue takes no copy."""
        return await self._set_aside(delivery, source, self._copies.again)

    async def set_alone(self, delivery: Delivery, source: Deliveries) -> bool:
        """Have a delivery handled alone, later; False if that cannot be, and it has to be handled
        as it is."""
        return await self._set_aside(delivery, source, self._copies.alone)

    async def _set_aside(
        self, delivery: Delivery, source: Deliveries, copy_of: Callable[[Delivery], Publish]
    ) -> bool:
        """What cannot be published again is parked where that is safe: it could end process after
        process, uncounted."""
        source.check()
        try:
            copy = copy_of(delivery)
            answer = await self._sending.send(copy)
        except Unpublishable as error:
            answer = Poison(BrokerError(str(error)))
        except BrokerError:
            raise
        except Exception as error:  # noqa: BLE001
            await self._spoilt(delivery, error, source)
            return True
        if answer is CONFIRMED:
            source.ack(delivery)
            source.flush()
            return True
        if isinstance(answer, Poison):
            return await self._park(delivery, str(answer.error), source) is None
        reason = f"the queue {copy.routing_key!r} {_trouble(answer)}"
        self._say("consumer.not_set_aside", reason, remedy=_remedy(answer, missing=_MADE_ANEW))
        return False

    async def put_back_again(self, delivery: Delivery, source: Deliveries) -> None:
        """Have a delivery of the queue for such handled again, as if it had not been taken. If that
        cannot be, it stays unsettled, and is handled alone."""
        await self._put_back(self._copies.again, delivery, source)

    async def put_back_alone(self, delivery: Delivery, source: Deliveries) -> None:
        """Have a delivery that was handled alone, and not to its end, handled alone anew. If that
        cannot be, it stays unsettled, and counts."""
        await self._put_back(self._copies.alone, delivery, source)

    async def _put_back(
        self, copy_of: Callable[[Delivery], Publish], delivery: Delivery, source: Deliveries
    ) -> None:
        try:
            source.check()
            answer = await self._sending.send(copy_of(delivery))
        except (Unpublishable, BrokerError):
            return
        if answer is CONFIRMED:
            source.ack(delivery)
            source.flush()

    async def _send_up(self, copy: Publish, source: Deliveries) -> LaneOutcome:
        """Send a copy; one for the ladder may be the first, and have to make it. If the broker lets
        nobody make it, the copy counts as returned.

        A quorum queue that was just declared has refused what it had room for. By the default
        exchange a copy goes to one queue, so that no other has it, and it can be sent again.
        """
        answer = await self._sending.send(copy)
        if copy.exchange:
            return answer
        if isinstance(answer, Returned):
            try:
                await self._declares.ladder()
            except ConnectionLost:
                raise
            except BrokerError as error:
                return Returned(answer.code, f"{answer.reason}, and cannot be declared: {error}")
            answer = await self._sending.send(_again(copy))
        for _ in range(_TIMES_MORE):
            if not isinstance(answer, Refused) or await self._stops_within(_SOON):
                break
            source.check()
            answer = await self._sending.send(_again(copy))
        return answer

    async def _finish(
        self, delivery: Delivery, copy: Publish, answer: LaneOutcome, source: Deliveries
    ) -> bool:
        """Ack a delivery once its copy is confirmed; whether that came about."""
        first = copy
        while answer is not CONFIRMED:
            if isinstance(answer, Poison):
                await self._poisoned(delivery, str(answer.error), source)
                return False
            where = f"the dead letter queue behind {first.exchange!r}"
            self._say("consumer.stuck", f"{where} {_trouble(answer)}", remedy=_remedy(answer))
            if await self._stops_within(_AGAIN):
                return False  # unsettled: the broker delivers it again
            source.check()
            copy = self._copies.once_more(first, copy, refused=isinstance(answer, Refused))
            answer = await self._sending.send(copy)
        source.ack(delivery)
        source.flush()
        return True

    async def _poisoned(self, delivery: Delivery, reason: str, source: Deliveries) -> None:
        unsure = await self._park(delivery, reason, source)
        if unsure is None:
            return
        reason = f"{reason}; {unsure.reason}"
        known = about(delivery, self._declared)
        self._say("message.stays", reason, remedy=unsure.remedy, **known)
        # Nobody waits for it: a worker that did would leave the others' messages lying.
        asyncio.get_running_loop().call_later(
            _WAIT_FOR_A_PERSON.total_seconds(), self._offer_again, delivery, source
        )

    async def _park(self, delivery: Delivery, reason: str, source: Deliveries) -> Unsure | None:
        """Reject a delivery, unless the broker might drop it then: why that may be."""
        if source.queue not in self._declared.parks:
            where = f"the queue {source.queue!r}"
            return Unsure(f"{where} is not known to dead-letter to Redrive's exchange", _BY_HAND)
        # Asked each time: somebody may have deleted what was there when the consumer started.
        unsure = await self._declares.dead_letters()
        if unsure is None:
            log.warning("message.parked", reason=reason, **about(delivery, self._declared))
            source.reject(delivery)
        return unsure

    def _offer_again(self, delivery: Delivery, source: Deliveries) -> None:
        if not self._stopping.is_set():  # or all that is unsettled goes back at once
            source.requeue(delivery)

    async def _spoilt(self, delivery: Delivery, error: Exception, source: Deliveries) -> None:
        """A defect of ours, met in one message: that one is parked or stays, the others go on."""
        log.exception("consumer.defect", **about(delivery, self._declared))
        await self._poisoned(delivery, f"a defect: {error!r}", source)

    async def _send_receipt(self, delivery: Delivery) -> None:
        try:
            receipt = self._receipts.of(delivery)
        except Exception:  # of ours: the message was handled all the same  # noqa: BLE001
            log.exception("consumer.defect", **about(delivery, self._declared))
            return
        if receipt is None:
            return
        answer = await self._sending.send(receipt)
        if answer is not CONFIRMED:
            reason = f"the queue {self._receipts.to!r} {_trouble(answer)}"
            self._say("consumer.receipt_not_taken", reason, remedy=_remedy(answer))

    async def _stops_within(self, wait: timedelta) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), wait.total_seconds())
        return self._stopping.is_set()

    def _say(self, event: str, reason: str, **more: str | int) -> None:
        if self._said.setdefault(event, Told()).is_news(event):  # not for every message
            place = {"queue": self._declared.name, "handler": self._declared.handler}
            log.warning(event, reason=reason, **{**place, **more})


def _again(copy: Publish) -> Publish:
    return Publish(copy.exchange, copy.routing_key, copy.properties, copy.body)


def _marked(copy: Publish) -> Publish:
    """A copy after one that an exchange refused: another queue than the full one may have that."""
    return Publish(copy.exchange, copy.routing_key, marked_redelivered(copy.properties), copy.body)


def _dead_instead(failure: Failure, trouble: str) -> DeadLettered:
    """What becomes of a message whose copy should have gone elsewhere, and got stuck."""
    reason = f"{trouble} (the failure before: {failure.reason})"
    return DeadLettered(Failure(error_type=failure.error_type, reason=reason, stack=failure.stack))


def _destination(copy: Publish, outcome: Outcome) -> str:
    if isinstance(outcome, Delayed):
        return f"the queue {copy.routing_key!r}"
    what = "the retry queue" if isinstance(outcome, LeftToPolicy) else "the delay queue"
    return f"{what} behind {copy.exchange!r} for the key {copy.routing_key!r}"


def _trouble(answer: LaneOutcome) -> str:
    if isinstance(answer, Returned):
        wrong = "may not be written to" if answer.code == _FORBIDDEN else "is missing"
        return f"{wrong} ({answer.reason})"
    return f"takes nothing ({answer.error})" if isinstance(answer, Poison) else "is full"


def _remedy(answer: LaneOutcome, *, missing: str = _DECLARE) -> str:
    """What to do; `missing` is that where there is no such queue."""
    if not isinstance(answer, Returned):
        return "make room in it, or raise its limit"
    if answer.code == _FORBIDDEN:
        return "grant the user write permission on what the text names"
    return missing


class Taken:
    """Answers deliveries that were taken off a queue one by one."""

    def __init__(self, channel: _Answers, queue: str) -> None:
        self._channel = channel
        self.queue = queue

    def check(self) -> None:
        if self._channel.error is not None:
            raise self._channel.error

    def ack(self, *deliveries: Delivery) -> None:
        with contextlib.suppress(BrokerError):  # void by now: the session ends anyhow
            for delivery in deliveries:
                self._channel.ack(delivery.tag)

    def reject(self, delivery: Delivery) -> None:
        with contextlib.suppress(BrokerError):
            self._channel.reject(delivery.tag, requeue=False)

    def requeue(self, delivery: Delivery) -> None:
        with contextlib.suppress(BrokerError):
            self._channel.nack(delivery.tag, requeue=True)

    def flush(self) -> None:
        """Nothing is kept back."""


class _Answers(Protocol):
    @property
    def error(self) -> BrokerError | None: ...
    def ack(self, tag: int) -> None: ...
    def nack(self, tag: int, *, requeue: bool) -> None: ...
    def reject(self, tag: int, *, requeue: bool) -> None: ...
