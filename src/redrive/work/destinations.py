"""Where letters go when they are sent again: to the queue where they failed, unless their policy
or a person says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from redrive.domain.policy import PolicyBook
from redrive.domain.replay import Destination


class Addressed(Protocol):
    """What tells where a letter goes: the letter, or what many have in common."""

    @property
    def queue(self) -> str | None: ...

    @property
    def exchange(self) -> str: ...

    @property
    def routing_key(self) -> str: ...


def destination_of(letter: Addressed, policies: PolicyBook) -> Destination | None:
    """Where a letter goes by itself; None if nothing tells where it failed."""
    if letter.queue is None:
        return None
    policy = policies.find(letter.routing_key)
    if policy is not None and policy.return_to == "exchange":
        return Destination(exchange=letter.exchange)
    return Destination(queue=letter.queue)


def destinations(
    policies: Callable[[], PolicyBook], redirect: Destination | None = None
) -> Callable[[Addressed], Destination | None]:
    """Where each letter goes; all of them to `redirect`, if there is one."""
    if redirect is not None:
        return lambda _: redirect
    return lambda letter: destination_of(letter, policies())
