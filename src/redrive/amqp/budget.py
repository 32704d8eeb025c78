"""How many bytes of unsettled messages may be in memory, for all consumers that share it.

A budget that is spent stops the sockets of all its consumers, also of those that have nothing:
what each of them read beyond it would add up. They are read again when enough was settled, by
whichever of them. Nobody waits for another's work that way: what a consumer has in hand is settled
without reading its socket.

It is exceeded by what one read of each socket completes.
"""

from __future__ import annotations

from typing import Protocol


class Member(Protocol):
    """A consumer, seen from its budget."""

    @property
    def unanswered(self) -> int:
        """How many deliveries the broker has had no answer to."""

    def weigh(self) -> None:
        """Stop or resume reading, as the budget says."""


class Budget:
    """Bytes that consumers may have unsettled, together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.spent = 0
        self._members: set[Member] = set()

    @property
    def is_spent(self) -> bool:
        return self.spent > self.size

    def fitting(self, held: int, unanswered: int) -> int:
        """How many deliveries like those of a member its share has room for; at least one. Of one
        that has none, they are taken to be like the others'."""
        if not unanswered:
            held, unanswered = self.spent, sum(each.unanswered for each in self._members)
        share = self.size // max(1, len(self._members))
        return max(1, unanswered * share // max(1, held))

    def join(self, member: Member) -> None:
        self._members.add(member)

    def part(self, member: Member, unsettled: int) -> None:
        """Of a member that is gone, what it had not settled is no longer in memory."""
        self._members.discard(member)
        self.release(unsettled)

    def take(self, size: int) -> None:
        had_room = not self.is_spent
        self.spent += size
        if had_room and self.is_spent:
            self._weigh()

    def release(self, size: int) -> None:
        had_none = self.is_spent
        self.spent -= size
        if had_none and not self.is_spent:
            self._weigh()

    def _weigh(self) -> None:
        for member in tuple(self._members):
            member.weigh()
