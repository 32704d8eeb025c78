"""The way back: `retry-queue-1` to origin queues, and what many of them cost.

Many queues change two things at once: how many are enrolled (bound to the exchange that messages
return through), and how many different queues the broker writes to. So the retrier is measured
three times: with one queue enrolled; with 1,000, all messages going back to one of them; with
1,000, the messages spread over all.

As a control, a publisher that does nothing else publishes the same messages by the default
exchange to one of the same queues and to all of them, with as many unconfirmed as the retrier may
have. What it loses is the broker's cost of writing to many queues. What the retrier loses beyond
that is our way of returning, be it in our process or in how the broker has to route it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

from bench.clients import start_retrier
from bench.figures import Target, at_least, pace, within_rounds
from bench.messages import dead_letters
from bench.movers import PREFETCH
from bench.report import Table, number
from bench.stage import BenchFailed, Stage
from redrive.amqp import Properties, Publish, fields
from redrive.broker.topology import return_key
from redrive.domain import headers

_WAITED = "retry-queue-1"
_MANY = 1_000
_LEAST = 0.8
_BACK_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """One of the measurements."""

    name: str
    by: str
    enrolled: int
    written: int
    """How many of the enrolled queues get messages."""

    @property
    def to(self) -> str:
        if self.written > 1:
            return "all of them"
        return "one of them" if self.enrolled > 1 else "it"


_RETRIER, _PUBLISHER = "retrier", "publisher alone"
ONE = Case("one enrolled", _RETRIER, 1, 1)
MANY_TO_ONE = Case("many enrolled, to one", _RETRIER, _MANY, 1)
MANY_SPREAD = Case("many enrolled, spread", _RETRIER, _MANY, _MANY)
CONTROL_TO_ONE = Case("publisher alone, to one", _PUBLISHER, _MANY, 1)
CONTROL_SPREAD = Case("publisher alone, spread", _PUBLISHER, _MANY, _MANY)
_COMPARED_WITH = {
    ONE: ONE,
    MANY_TO_ONE: ONE,
    MANY_SPREAD: ONE,
    CONTROL_TO_ONE: CONTROL_TO_ONE,
    CONTROL_SPREAD: CONTROL_TO_ONE,
}
CASES = tuple(_COMPARED_WITH)

Rates = Mapping[Case, Sequence[float]]
"""Messages a second of each case, one for each round."""


async def measure(stage: Stage, round_: int, tiers: str, messages: int) -> dict[Case, float]:
    """Every case once, in an order that turns round from round to round."""
    cases = CASES if round_ % 2 else CASES[::-1]
    found: dict[Case, float] = {}
    for enrolled in dict.fromkeys(case.enrolled for case in cases):
        async with _enrolled(stage, enrolled) as names:
            for case in (case for case in cases if case.enrolled == enrolled):
                written = names[: case.written]
                if case.by == _RETRIER:
                    found[case] = await _by_retrier(stage, tiers, written, messages)
                else:
                    found[case] = await _by_publisher(stage, written, messages)
                for name in written:
                    await stage.channel.purge_queue(name)
    return found


@asynccontextmanager
async def _enrolled(stage: Stage, queues: int) -> AsyncIterator[list[str]]:
    """Origin queues as enrolment leaves them, gone afterwards."""
    names = [f"origin-{number_}" for number_ in range(queues)]
    for name in names:
        await stage.declare(name, "classic")
        await stage.channel.bind_queue(name, "redrive-return", return_key(name))
    try:
        yield names
    finally:
        await stage.delete(*names)


async def _by_retrier(stage: Stage, tiers: str, names: Sequence[str], messages: int) -> float:
    """Messages a second from `retry-queue-1` back to these queues in turn."""
    await stage.publish(
        _waited(names[index % len(names)], index, routing_key=_WAITED) for index in range(messages)
    )
    moving = await start_retrier(stage, tiers, _WAITED)
    try:
        await stage.calm()
        await moving.go()
        samples = await stage.drain(_WAITED, messages)
        await _all_there(stage, names, messages)
        await moving.finish()
    finally:
        await moving.abandon()
    return pace(samples)


async def _by_publisher(stage: Stage, names: Sequence[str], messages: int) -> float:
    """Messages a second straight to these queues in turn.

    The messages are made beforehand, so that the clock sees the broker and not their making.
    """
    made = [
        _waited(name := names[index % len(names)], index, routing_key=name)
        for index in range(messages)
    ]
    await stage.calm()
    began = time.monotonic()
    await stage.publish(made, window=PREFETCH)
    seconds = time.monotonic() - began
    await _all_there(stage, names, messages)
    return messages / seconds


async def _all_there(stage: Stage, names: Sequence[str], messages: int) -> None:
    """Wait for the last of them: a retrier that is stopped too early gives some back unread."""
    deadline = time.monotonic() + _BACK_TIMEOUT
    while (there := sum([await stage.depth(name) for name in names])) != messages:
        if time.monotonic() > deadline:
            raise BenchFailed(f"{there} of {messages} messages came back")


def _waited(origin: str, index: int, *, routing_key: str) -> Publish:
    """A message of this queue as it leaves a tier."""
    put = {
        headers.QUEUE: fields.longstr(origin),
        headers.EXCHANGE: fields.longstr("shop"),
        headers.ROUTING_KEY: fields.longstr("order.created"),
        headers.ATTEMPT: fields.int32(1),
        headers.ID: fields.longstr("0190d6e4-7a3b-8c00-9000-0123456789ab"),
    }
    (died,) = dead_letters(_WAITED, 1, first=index)
    properties = Properties.read(died.properties).with_headers(put)
    return Publish("", routing_key, properties.raw, died.body)


def table(rates: Rates) -> Table:
    """Microseconds are beside the rates because costs can be subtracted, and rates cannot."""
    return Table(
        title="Way back, 1 KB messages, from a quorum queue to classic queues; and a control",
        columns=("by", "enrolled", "to", "messages/s", "µs a message", "of one queue"),
        rows=[
            (
                case.by,
                number(case.enrolled),
                case.to,
                number(median(rates[case])),
                number(median(1e6 / rate for rate in rates[case]), 1),
                number(within_rounds(rates[case], rates[_COMPARED_WITH[case]]), 2),
            )
            for case in CASES
        ],
    )


def targets(rates: Rates) -> list[Target]:
    """The number of enrolled queues by itself, then with the broker's writing to all of them."""
    return [
        at_least(
            f"Return with {_MANY:,} queues enrolled, to one of them, against one enrolled",
            within_rounds(rates[MANY_TO_ONE], rates[ONE]),
            _LEAST,
        ),
        at_least(
            f"Return with {_MANY:,} queues enrolled, spread over all, against one enrolled",
            within_rounds(rates[MANY_SPREAD], rates[ONE]),
            _LEAST,
        ),
    ]
