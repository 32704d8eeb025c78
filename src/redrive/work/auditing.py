"""The audit log, written around a change, whoever makes it.

Guarantees: the entry is in the store before the change begins, and what became of it after; an
error is noted with the status that the API answers it with. If the store does not take what became
of it, that is said (`on_unnoted`), and the entry stays without an outcome: what was done is done.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from redrive.domain.access import Role
from redrive.domain.texts import storable
from redrive.errors import RedriveError

DONE: Final = 200
UNFORESEEN: Final = 500
_LONGEST: Final = 20_000
_NAMED: Final = 100


class Entries(Protocol):
    """Where entries are written."""

    async def begin(
        self, actor: str, role: Role | None, address: str, action: str, detail: str
    ) -> int: ...

    async def end(self, number: int, outcome: int, detail: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Doer:
    """Who makes a change, and from where."""

    actor: str
    role: Role
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How outcomes are told."""

    status_of: Callable[[Exception], int]
    """The status of an error: `UNFORESEEN` if it is none that the change may end with."""
    on_unnoted: Callable[[int, int, RedriveError], None]
    """Hears of an entry, by its number, whose outcome the store did not take, and why."""


@asynccontextmanager
async def noted(
    entries: Entries, doer: Doer, action: str, detail: dict[str, Any], telling: Telling
) -> AsyncIterator[dict[str, Any]]:
    """Note an action. What is put into the entry is added to its detail."""
    entry = dict(detail)
    number = await entries.begin(doer.actor, doer.role, doer.address, action, _text(entry))
    outcome = UNFORESEEN
    try:
        yield entry
        outcome = DONE
    except Exception as error:
        outcome = telling.status_of(error)
        raise
    finally:
        try:
            await entries.end(number, outcome, _text(entry))
        except RedriveError as error:
            telling.on_unnoted(number, outcome, error)


def _text(detail: dict[str, Any]) -> str:
    text = json.dumps(detail)
    if len(text) > _LONGEST:
        text = json.dumps(_with_shorter_lists(detail))
    if len(text) > _LONGEST:
        text = json.dumps({"cut": storable(text, _LONGEST // 2)})
    return text


def _with_shorter_lists(detail: Any) -> Any:
    """Of many letters the first: what stands beside them, the reason and the outcome, is worth
    more than the last ids."""
    if isinstance(detail, dict):
        return {name: _with_shorter_lists(each) for name, each in detail.items()}
    if isinstance(detail, list) and len(detail) > _NAMED:
        return [*detail[:_NAMED], f"and {len(detail) - _NAMED:,} more"]
    return detail
