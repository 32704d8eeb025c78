"""How much a queue takes before it pushes out its oldest messages to make room.

Tried on 3.10.8, 4.0.5 and 4.3.6:
- Of limits by argument and by policy the lower counts, and only ready messages and the bytes of
  their bodies do; in quorum queues of 4.3 those of their properties too.
- What is over the limit pushes out the oldest (`drop-head`, the default), and its publisher gets a
  confirm; with `reject-publish` it is refused; a quorum queue notices late, and 20 went into a
  limit of 10. `reject-publish-dlx` is that to classic queues only.
- Where argument and policy name different ways, `LiveQueue.overflow` knows which counts.
- What is pushed out is dead-lettered where the queue has a dead letter exchange, else it is gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from redrive.broker.drift import DROP_HEAD, LiveQueue

DROP_OLDEST: Final = "--drop-oldest"
"""The option by which messages may be pushed out."""
_REMEDY: Final = f"make room in it, or give {DROP_OLDEST}"
Version = tuple[int, int]
_WEIGHS_BODIES: Final[Version] = (4, 0)
"""The last version that is known to."""


def least(queue: LiveQueue, name: str) -> int | None:
    """A limit by argument or policy; the stricter of both, as the broker has it."""
    values = (queue.arguments.get(f"x-{name}"), queue.policy.get(name))
    return min((each for each in values if type(each) is int and each >= 0), default=None)


@dataclass(frozen=True, slots=True)
class LengthLimit:
    """What a queue holds at most, and what it does beyond that."""

    messages: int | None
    size: int | None
    dead_letters_to: str | None
    """The exchange; None if they are gone."""
    kind: str = "classic"
    """The type of the queue."""
    refuses: bool = False
    """Whether it refuses more; else its oldest messages are pushed out."""

    @classmethod
    def of(cls, queue: LiveQueue) -> LengthLimit | None:
        """None if the queue takes whatever comes. Streams are made to forget what is old."""
        messages, size = least(queue, "max-length"), least(queue, "max-length-bytes")
        if (messages is None and size is None) or queue.kind == "stream":
            return None
        exchange = queue.in_force("dead-letter-exchange")
        return cls(messages, size, exchange, queue.kind, queue.overflow != DROP_HEAD)


class Room:
    """What is left in a queue with a limit. It gets less with every message that is brought there,
    and is not told of what others take and bring."""

    def __init__(
        self, queue: str, limit: LengthLimit, ready: int, size: int | None, version: Version
    ) -> None:
        """`size` is of what is ready, None if it is not known."""
        self._weighs_properties = limit.kind == "quorum" and version > _WEIGHS_BODIES
        self._messages = math.inf if limit.messages is None else max(0, limit.messages - ready)
        self._size = math.inf
        if limit.size is not None:
            self._size = 0 if size is None else max(0, limit.size - size)
        known = size is not None or limit.size is None
        self.weighs: Final = limit.size is not None
        """Whether it matters how large a message is."""
        self.may_take_more: Final = limit.refuses and limit.kind == "quorum"
        """Whether it takes some more than its limit: a quorum queue refuses late."""
        self.says: Final = _says(queue, self._messages, self._size, limit, known=known)
        """What it does with more than fits in."""
        self.full: Final = self.says if limit.refuses else f"{self.says}; {_REMEDY}"
        """What is said of it when no more fits in, with what to do."""

    def take(self, body: bytes, properties: bytes) -> bool:
        """Whether a message fits in; if so, its place is taken."""
        return self.take_sized(len(body), len(properties))

    def take_sized(self, body: int, properties: int) -> bool:
        """The same of a message of which only the sizes are known."""
        size = body + (properties if self._weighs_properties else 0)
        if self._messages < 1 or self._size < size:
            return False
        self._messages -= 1
        self._size -= size
        return True


def _says(queue: str, messages: float, size: float, limit: LengthLimit, *, known: bool) -> str:
    left = []
    if limit.messages is not None:
        left.append(f"{messages:,} more message{'' if messages == 1 else 's'}")
    if limit.size is not None:
        left.append(f"{size:,} more byte{'' if size == 1 else 's'}")
    has = f"has room for {' and '.join(left)}"
    if not known:
        has = "may be full (nobody tells yet how many bytes are in it)"
    if limit.refuses and limit.kind == "quorum":
        return f"the queue {queue!r} {has}, and may refuse the rest: a quorum queue notices late"
    if limit.refuses:
        return f"the queue {queue!r} {has}, and refuses the rest"
    gone = "drop its oldest ones"
    if limit.dead_letters_to is not None:
        gone = f"dead-letter its oldest ones to the exchange {limit.dead_letters_to!r}"
    return f"the queue {queue!r} {has}, and would {gone} for the rest"
