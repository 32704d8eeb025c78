"""How many bytes of unsettled messages may be in memory, for all consumers that share it.

Each of them has a share, which the others leave it: until it has that, its socket is read, whatever
they have. (One that waited for another's work would have its connection reset by the broker, see
`strain.py`, and nothing of its own to settle.) What is nobody's share is for those who come first.
With n consumers a share is one part of 2n - 1: a single one has all of it, and of many, one that is
alone busy about half.

A budget that is spent stops the sockets of those who have more than their share. They are read
again when they have less, or when enough was settled, by whichever of them. What a consumer has in
hand is settled without reading its socket.

It is exceeded by what one read of each socket completes; and by a share for each that joins while
the others have more than is left to them then, until they have settled that.
"""

from __future__ import annotations

from typing import Protocol


class Member(Protocol):
    """A consumer, seen from its budget."""

    def weigh(self) -> None:
        """Stop or resume reading, as the budget says."""


class Budget:
    """Bytes that consumers may have unsettled, together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.spent = 0
        self._members: set[Member] = set()
        self._divide()

    def _divide(self) -> None:
        """By the number of members. Kept, since every delivery is held against it."""
        members = max(1, len(self._members))
        self.share = self._share_of_each(members)
        """Bytes that each member may have, whatever the others have."""
        self._most = self.size - (members - 1) * self.share

    def _share_of_each(self, members: int) -> int:
        return self.size // (2 * max(1, members) - 1)

    @property
    def is_spent(self) -> bool:
        """Whether no member may have more than its share."""
        return self.spent > self._most

    def fitting(self, held: int, unanswered: int, *, joining: int = 0) -> int:
        """How many deliveries like those of a member a share has room for, once so many more have
        joined; at least one."""
        share = self._share_of_each(len(self._members) + joining)
        return max(1, unanswered * share // max(1, held))

    def join(self, member: Member) -> None:
        self._members.add(member)
        self._divide()

    def part(self, member: Member, unsettled: int) -> None:
        """Of a member that is gone, what it had not settled is no longer in memory, and its share
        is the others'."""
        was_spent = self.is_spent
        self._members.discard(member)
        self._divide()
        self.spent -= unsettled
        if was_spent:
            self._weigh()

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
