"""Which acks to send? Delivery tags are settled in any order; the wire likes them in ranges.

Pure bookkeeping for one channel with one consumer, whose tags therefore count 1, 2, 3, …

A range ack covers everything outstanding up to its tag, so it may only be sent for an unbroken run
of settled deliveries from the oldest one on. What is settled beyond a gap waits for it to close. It
is acked singly only if it has been waiting at two looks at the `stragglers` in a row: a single ack
costs the broker nearly as much as a range of a hundred, and when messages go to many queues, whose
confirms come in any order, most deliveries are beyond a gap for a moment. But no more than a given
number wait: the broker delivers nothing in their place.

A delivery that is held stays a gap for long. Once the run has come to it, what follows is acked
singly without waiting, and forgotten: nothing is kept for each message.
"""

from __future__ import annotations

from collections.abc import Iterable


class Settlement:
    """Tags handed out, settled, and acked on the wire."""

    __slots__ = ("_gone", "_held", "_most", "_next", "_ready", "_wall", "answered")

    def __init__(self, most_waiting: int = 0) -> None:
        self._most = most_waiting
        self._next = 1  # the oldest tag that is still outstanding
        self._ready: set[int] = set()  # settled, ack not sent yet
        self._held: set[int] = set()  # of those, the ones that waited at the last look
        self._gone: set[int] = set()  # beyond a gap, and answered on the wire already
        self._wall = 0  # the oldest that is held: no range may reach it
        self.answered = 0
        """How many deliveries were answered on the wire."""

    def ready(self, tags: Iterable[int]) -> None:
        """Note that deliveries may be acked."""
        self._ready.update(tags)

    def gone(self, tag: int) -> None:
        """Note that a delivery was answered on the wire by itself (nack, reject)."""
        self.answered += 1
        if not self._wall or tag < self._wall:
            self._gone.add(tag)

    def answered_up_to(self, tag: int) -> None:
        """Note that all that was outstanding up to a delivery was answered on the wire."""
        self.answered = max(self.answered, tag)

    def hold(self, tag: int) -> None:
        """Note that a delivery stays outstanding until the end."""
        self._wall = min(self._wall or tag, tag)

    @property
    def waiting(self) -> bool:
        """Whether something settled has not been acked yet, because of a gap before it."""
        return bool(self._ready)

    def flush(self, *, everything: bool = False) -> list[tuple[int, bool]]:
        """The acks to send now, as (tag, multiple). `everything` waits for no gap to close."""
        acks = self._run()
        at_the_wall = self._next == self._wall
        if self._ready and (everything or at_the_wall or len(self._ready) > self._most):
            acks.extend(self._singly(self._ready))
            if at_the_wall:
                self._gone.clear()
        return acks

    def stragglers(self) -> list[tuple[int, bool]]:
        """The acks of what has been waiting for a gap to close since the last time this was asked;
        asked at intervals."""
        acks = self.flush()
        acks.extend(self._singly(self._held & self._ready))
        self._held = set(self._ready)
        return acks

    def _run(self) -> list[tuple[int, bool]]:
        """The ack of the unbroken run from the oldest one on, if there is any."""
        ready, gone = self._ready, self._gone
        if not gone and ready and max(ready) - self._next + 1 == len(ready):
            # Unbroken, as it mostly is: one range, without looking at each.
            last = max(ready)
            self._next = last + 1
            self.answered += len(ready)
            self._ready = set()
            return [(last, True)]
        tag, last_ready = self._next, 0
        while True:
            if tag in ready:
                ready.remove(tag)
                self.answered += 1
                last_ready = tag
            elif tag in gone:
                gone.remove(tag)
            else:
                break
            tag += 1
        self._next = tag
        # The broker refuses a tag that is not outstanding: name the last one that is.
        return [(last_ready, True)] if last_ready else []

    def _singly(self, tags: set[int]) -> list[tuple[int, bool]]:
        self.answered += len(tags)
        self._gone |= tags
        self._ready = self._ready - tags
        return [(tag, False) for tag in sorted(tags)]
