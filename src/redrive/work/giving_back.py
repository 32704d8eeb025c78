"""Giving back what a pass holds: what holds for every way of taking it."""

from __future__ import annotations

import asyncio
from typing import Final

from redrive.amqp import Channel

LONGEST: Final = 25 * 60.0
"""Seconds that a delivery may wait for its answer: a broker closes the channel after 30 min."""
HELD_TOO_LONG: Final = "a broker lets nobody hold a message for more than 30 minutes"
_SEEN_WITHIN: Final = 3.0
"""Seconds within which a queue shows what was given back, unless somebody takes it."""
LOOK_EVERY: Final = 0.005
"""Seconds between two looks at how many messages a queue has."""


async def shown(channel: Channel, queue: str, count: int, *, wait: bool) -> bool:
    """Wait until a queue has so many messages; whether it has. Else somebody takes them, and it is
    no use to wait for the next ones: without `wait`, it is looked once and the answer is no."""
    deadline = asyncio.get_running_loop().time() + (_SEEN_WITHIN if wait else 0)
    while (await channel.inspect_queue(queue))[0] < count:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(LOOK_EVERY)
    return wait
