"""The way back by the exchange that brought a message, for a queue that only its owner may touch.

Every queue of that exchange gets a copy. One that fails with it, too, has its own taken for what it
is by `redrive-by-exchange`, which names the queue that the copies were made for: it goes to its
queue alone from then on, and where that cannot be bound either, nowhere. Else two queues that fail
alike would have each other's copies multiply without end.

A queue that was named by the broker is another one after its consumer has connected anew. So where
the queue that they were made for is gone, who has the message now may be its successor, and it goes
by the exchange once more. Its attempts count on (`move_on`), so that this ends.
"""

from __future__ import annotations

from redrive.amqp import Properties, fields
from redrive.domain import headers
from redrive.work.return_path import Down, ReturnPath


def came_beside(properties: Properties) -> bool:
    """Whether it failed in a queue to which it came because another one had it sent back."""
    made_for = properties.header_field(headers.BY_EXCHANGE)
    return made_for is not None and made_for != properties.header_field(headers.QUEUE)


async def sent_by_exchange(properties: Properties, path: ReturnPath) -> bytes | None:
    """The properties with which it goes back by its exchange; None if it may not. Raises `Down`
    while nobody can tell, and `BrokerError`."""
    if came_beside(properties) and not await _is_gone(properties, path):
        return None
    queue = properties.header_field(headers.QUEUE) or fields.longstr("")
    return properties.with_headers({headers.BY_EXCHANGE: queue}, remove=("BCC",)).raw


async def _is_gone(properties: Properties, path: ReturnPath) -> bool:
    why = await path.look(fields.text_of(properties.header_field(headers.BY_EXCHANGE)) or "")
    if isinstance(why, Down):
        raise why
    return why is not None


def not_by(exchange: str) -> str:
    """Why it goes nowhere."""
    return f"its queue cannot be bound, and exchange {exchange!r} brought it for another one"
