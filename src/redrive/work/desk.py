"""What the API works with: the store, and ways to look at the broker and to change policies.

Nothing here decides anything; the routes are handed one desk and need to know neither the wire nor
the store's engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from redrive.broker.drift import Drift
from redrive.domain.policy import PolicyBook, ReturnTo
from redrive.errors import ManagementError
from redrive.events import Events
from redrive.settings import Settings
from redrive.store.replay_looks import ReplayLooks
from redrive.store.store import Store
from redrive.work.replay_preview import ReplayPreview


class SetPolicy(Protocol):
    """Adds a policy to the database or changes it; "added" or "changed"."""

    def __call__(
        self,
        name: str,
        max_retries: int,
        *,
        return_to: ReturnTo | None = None,
        retry_expired: bool | None = None,
    ) -> Awaitable[str]: ...


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What a queue holds now."""

    ready: int
    consumers: int


@dataclass(frozen=True, slots=True)
class TopologyLook:
    """How the broker differs from the description, and what its queues hold."""

    drift: Drift
    counts: dict[str, QueueCounts]
    note: str | None
    """Why less is known than could be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """All that the routes use."""

    settings: Settings
    vhost: str
    store: Store
    replay_looks: ReplayLooks
    events: Events
    policy_book: Callable[[], Awaitable[PolicyBook]]
    set_policy: SetPolicy
    delete_policy: Callable[[str], Awaitable[int]]
    replay_preview: Callable[
        [], AbstractAsyncContextManager[tuple[ReplayPreview, ManagementError | None]]
    ]
    require_broker: Callable[[], Awaitable[None]]
    unmet_conditions: Callable[[], Awaitable[list[str]]]
    look_at_topology: Callable[[], Awaitable[TopologyLook]]
