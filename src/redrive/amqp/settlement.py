"""Which acks to send? Delivery tags are settled in any order; the wire likes them in ranges.

Pure bookkeeping for one channel with one consumer, whose tags therefore count 1, 2, 3, …

A range ack covers everything outstanding up to its tag, so it may only be sent for an unbroken run
of settled deliveries from the oldest one on. What is settled beyond a gap is acked singly, but
only after it has waited for one more flush: most gaps close at once.

A delivery that is held stays a gap for long. Once the run has come to it, what follows is acked
singly without waiting, and forgotten: nothing is kept for each message.
"""

from __future__ import annotations

from collections.abc import Iterable


class Settlement:
    """Tags handed out, settled, and acked on the wire."""

    __slots__ = ("_gone", "_held", "_next", "_ready", "_wall")

    def __init__(self) -> None:
        self._next = 1  # the oldest tag that is still outstanding
        self._ready: set[int] = set()  # settled, ack not sent yet
        self._held: set[int] = set()  # of those, the ones that have waited for a flush already
        self._gone: set[int] = set()  # beyond a gap, and answered on the wire already
        self._wall = 0  # the oldest that is held: no range may reach it

    def ready(self, tags: Iterable[int]) -> None:
        """Note that deliveries may be acked."""
        self._ready.update(tags)

    def gone(self, tag: int) -> None:
        """Note that a delivery was answered on the wire by itself (nack, reject)."""
        if not self._wall or tag < self._wall:
            self._gone.add(tag)

    def hold(self, tag: int) -> None:
        """Note that a delivery stays outstanding until the end."""
        self._wall = min(self._wall or tag, tag)

    @property
    def waiting(self) -> bool:
        """Whether something settled has not been acked yet, because of a gap before it."""
        return bool(self._ready)

    def flush(self, *, everything: bool = False) -> list[tuple[int, bool]]:
        """The acks to send now, as (tag, multiple). `everything` waits for no gap to close."""
        ready, gone = self._ready, self._gone
        if not gone and ready and max(ready) - self._next + 1 == len(ready):
            # Unbroken, as it mostly is: one range, without looking at each.
            last = max(ready)
            self._next = last + 1
            self._ready, self._held = set(), set()
            return [(last, True)]
        tag, last_ready = self._next, 0
        while True:
            if tag in ready:
                ready.remove(tag)
                last_ready = tag
            elif tag in gone:
                gone.remove(tag)
            else:
                break
            tag += 1
        self._next = tag
        # The broker refuses a tag that is not outstanding: name the last one that is.
        acks = [(last_ready, True)] if last_ready else []
        if tag == self._wall or (everything and ready):
            acks.extend((each, False) for each in sorted(ready))
            gone.clear() if tag == self._wall else gone.update(ready)
            self._ready, self._held = set(), set()
        elif ready:
            overdue = self._held & ready
            acks.extend((each, False) for each in sorted(overdue))
            gone |= overdue
            ready -= overdue
            self._held = set(ready)
        elif self._held:
            self._held = set()
        return acks
