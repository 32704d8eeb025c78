"""Handlers tested without a broker: give one a message, and say what should become of it.

Installed with Redrive as a pytest plugin; its one fixture is `handled`:

    def test_a_blocked_card_is_not_retried(handled):
        handled(settle, {"payment": "p-1"}).is_dead_lettered(error_type="CARD_BLOCKED")

    def test_a_bank_that_is_away_is_asked_four_times(handled):
        handled.for_good(settle, {"payment": "p-1"}).is_dead_lettered(tries=4)

The handler runs as a consumer runs it: with its `immediate` tries, its timeout and its typed body.
Nothing is waited for between retries. `tries` counts how often the handler is given the message:
once and `retries` times more; the `immediate` tries of each are one with it. In a loop of your own,
`(await handle(settle, {"payment": "p-1"})).is_acked()` does the same.

Both also take a whole message, made by `a_message`, in place of the body, and no options then.

This is no fake of a broker: what a queue, a tier or a network does is not played here.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from redrive.domain.durations import format_duration
from redrive.domain.handling import (
    Acked,
    DeadLettered,
    Delayed,
    LeftToPolicy,
    Outcome,
    Retried,
)

if TYPE_CHECKING:
    from redrive.consumer.message import Message

__all__ = [
    "Acked",
    "DeadLettered",
    "Delayed",
    "Handled",
    "Handling",
    "LeftToPolicy",
    "Retried",
    "a_message",
    "handle",
    "handled",
]

_Kind = TypeVar("_Kind", Retried, Delayed, LeftToPolicy, DeadLettered)
_QUEUE = "tests"
_TIERS = 3
_MOST_TRIES = 1_000


def a_message(  # noqa: PLR0913  (each may matter to a handler, few to a test)
    body: object = b"",
    *,
    retry_count: int = 0,
    routing_key: str = "",
    exchange: str = "",
    message_id: str | None = None,
    content_encoding: str | None = None,
    letter: str | None = None,
    headers: Mapping[str, str | int | bool] | None = None,
) -> Message:
    """A message as a handler would get it. Bytes are the body, text is encoded; anything else
    becomes JSON: a mapping, a list, a dataclass, a pydantic model.

    `letter` makes it a replay of that letter.
    """
    from redrive.amqp import Delivery, Properties, fields  # noqa: PLC0415
    from redrive.consumer.message import Message  # noqa: PLC0415
    from redrive.domain import headers as own  # noqa: PLC0415

    put: dict[str, bytes] = {}
    for name, value in (headers or {}).items():
        if isinstance(value, bool):
            put[name] = fields.boolean(value)
        else:
            put[name] = fields.int64(value) if isinstance(value, int) else fields.longstr(value)
    if retry_count or letter is not None:
        put[own.QUEUE] = fields.longstr(_QUEUE)
    if retry_count:
        put[own.ATTEMPT] = fields.int32(retry_count)
        put[own.FIRST_FAILED_AT] = fields.timestamp(datetime.now(UTC))
    if letter is not None:
        put[own.LETTER] = fields.longstr(letter)
        put[own.GENERATION] = fields.int32(1)
    properties = Properties.empty().with_headers(put).persistent()
    if message_id is not None:
        properties = properties.with_text("message_id", message_id)
    if content_encoding is not None:
        properties = properties.with_text("content_encoding", content_encoding)
    delivery = Delivery(1, False, exchange, routing_key, properties.raw, _bytes(body))
    return Message(delivery, _QUEUE, "/")


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of a message, with assertions that say what it was instead."""

    outcome: Outcome
    tries: int = 1
    """How often the handler was given it; the `immediate` tries of each are one with it."""

    def is_acked(self, *, tries: int | None = None) -> None:
        """The handler was done with it."""
        if not isinstance(self.outcome, Acked):
            raise AssertionError(f"expected the message to be acked, but {self}")  # noqa: TRY004
        self._check(tries=tries)

    def is_retried(self, *, error_type: str | None = None, reason: str | None = None) -> None:
        """The handler failed, and would get the message again after the wait of a tier."""
        self._is(Retried, "retried", error_type=error_type, reason=reason)

    def is_delayed(self, delay: timedelta | str | None = None) -> None:
        """The handler asked for it again, after that delay."""
        from redrive.consumer.signals import read_duration  # noqa: PLC0415

        found = self._is(Delayed, "delayed")
        if delay is not None and found.delay != read_duration("delay", delay):
            raise AssertionError(f"expected a delay of {delay}, but {self}")

    def is_left_to_policy(self) -> None:
        """The handler failed, and the policy of the routing key decides."""
        self._is(LeftToPolicy, "left to the policy")

    def is_dead_lettered(
        self,
        *,
        error_type: str | None = None,
        reason: str | None = None,
        tries: int | None = None,
    ) -> None:
        """It went to the dead letter queue. `reason` may be a part of the whole."""
        self._is(DeadLettered, "dead-lettered", error_type=error_type, reason=reason)
        self._check(tries=tries)

    def _is(
        self,
        kind: type[_Kind],
        word: str,
        *,
        error_type: str | None = None,
        reason: str | None = None,
    ) -> _Kind:
        outcome = self.outcome
        if not isinstance(outcome, kind):
            raise AssertionError(f"expected the message to be {word}, but {self}")  # noqa: TRY004
        failure = outcome.failure
        if error_type is not None and failure.error_type != error_type:
            raise AssertionError(f"expected the error type {error_type!r}, but {self}")
        if reason is not None and reason not in failure.reason:
            raise AssertionError(f"expected {reason!r} in the reason, but {self}")
        return outcome

    def _check(self, *, tries: int | None) -> None:
        if tries is not None and tries != self.tries:
            raise AssertionError(f"expected {tries} tries, but there were {self.tries}")

    def __str__(self) -> str:
        outcome = self.outcome
        if isinstance(outcome, Acked):
            return "it was acked"
        failure = outcome.failure
        stack = f"\n{failure.stack}" if failure.stack else ""
        happened = f"it was {type(outcome).__name__}"
        if isinstance(outcome, Delayed):
            happened += f" by {format_duration(outcome.delay)}"
        return f"{happened} with {failure.error_type}: {failure.reason}{stack}"


async def handle(handler: Callable[..., Any], body: object = b"", **options: Any) -> Handled:
    """Give a handler a message once; what a consumer would do with that. `options` are those of
    `a_message`.

    A handler that a `Consumer` registered runs within the limits that it was registered with.
    """
    from redrive.consumer.running import Runner, limits_of  # noqa: PLC0415

    message = _message(body, options)
    return Handled(await Runner(handler, limits_of(handler), tiers=_TIERS).run(message))


class Handling:
    """What the fixture `handled` is: call it, or have a message handled for good."""

    def __call__(self, handler: Callable[..., Any], body: object = b"", **options: Any) -> Handled:
        """Give a handler a message once. `options` are those of `a_message`."""
        return _run(handler, body, **options)

    def for_good(self, handler: Callable[..., Any], body: object = b"", **options: Any) -> Handled:
        """Give it to the handler again as often as it would be, until it is acked or dead."""
        found, message = Handled(Acked()), _message(body, options)
        for tries in range(1, _MOST_TRIES + 1):
            found = _run(handler, message)
            if not isinstance(found.outcome, (Retried, Delayed)):
                return Handled(found.outcome, tries)
            message = _retried(message, found.outcome.attempt)
        raise AssertionError(f"after {_MOST_TRIES} tries still {found}")


@pytest.fixture
def handled() -> Handling:
    """Runs handlers without a broker: `handled(handler, body).is_acked()`."""
    return Handling()


def _message(body: object, options: dict[str, Any]) -> Message:
    from redrive.consumer.message import Message  # noqa: PLC0415

    if not isinstance(body, Message):
        return a_message(body, **options)
    if options:
        names = ", ".join(options)
        raise TypeError(f"{names}: not beside a whole message; give that to a_message(…) instead")
    return body


def _retried(message: Message, attempt: int) -> Message:
    """The message as it comes back from a tier."""
    from redrive.amqp import Delivery, Properties, fields  # noqa: PLC0415
    from redrive.consumer.message import Message  # noqa: PLC0415
    from redrive.domain import headers as own  # noqa: PLC0415

    was = message.envelope
    failed_at = message.first_failed_at or datetime.now(UTC)
    put = {
        own.QUEUE: fields.longstr(was.queue),
        own.ATTEMPT: fields.int32(attempt),
        own.FIRST_FAILED_AT: fields.timestamp(failed_at),
    }
    raw = Properties.read(was.properties).with_headers(put).raw
    delivery = Delivery(1, False, was.exchange, was.routing_key, raw, was.body)
    return Message(delivery, was.queue, was.vhost)


def _bytes(body: object) -> bytes:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415

    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body, default=to_jsonable_python).encode()


def _run(handler: Callable[..., Any], body: object, **options: Any) -> Handled:
    """In a thread of its own, since the test may have a running loop."""
    found: list[Handled] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(handle(handler, body, **options)))
        except BaseException as error:  # it is the test's  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]
