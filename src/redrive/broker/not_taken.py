"""What quorum queues hold that no count on the wire has: messages that they dead-letter at least
once, and that nothing has taken yet.

The management API counts them (`messages_dlx`), late: a queue is measured every 5 s
(`quorum_tick_interval`), and the last measure shown every 5 s (`collect_statistics_interval`). So a
0 may be ten seconds old. Nothing says how old; but a queue does some work to be measured, so its
`reductions` tell one measure from the next. The first new one that is shown may be older than our
question; the second was made after it.

That long is waited only for a queue whose dead letter exchange is gone, or has nothing bound to it.
Where there is a way on, the broker sends what is dead-lettered at once, and it is counted at the
other end; what a full or broken queue there does not take is known when the API shows it. A queue
that is not shown at all yet, as after a restart of the broker, is waited for in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from redrive.broker.management import Management

_WITHIN: Final = 15.0  # seconds: 10 with the broker's default intervals, and some
_STEP: Final = 0.2
_COLUMNS: Final = (
    *("name", "arguments", "effective_policy_definition"),
    *("messages_dlx", "reductions"),
)


@dataclass(slots=True)
class _Queue:
    """A queue that dead-letters at least once, as it was last shown."""

    has_way: bool
    count: int | None = None
    work: int | None = None
    news: int = 0
    """How many new measures were shown since the first question."""

    def show(self, row: dict[str, Any]) -> None:
        work = row.get("reductions")
        self.news += work != self.work
        self.count, self.work = row.get("messages_dlx"), work

    @property
    def is_known(self) -> bool:
        return self.count is not None and (self.has_way or self.news > 1)


async def not_taken(
    names: Collection[str], management: Management, *, patient: bool
) -> dict[str, str]:
    """Of these queues, those that hold such messages, or may: what there is to say of each.

    Unless `patient`, what is shown now has to do.
    """
    queues = await _at_least_once(names, management)
    time = asyncio.get_running_loop().time
    deadline = time() + _WITHIN
    while patient and _are_worth_waiting_for(queues) and time() < deadline:
        await _look_again(queues, management)
    if any(queue.news for queue in queues.values()):
        await _look_again(queues, management)  # the figures of one measure come one by one
    said = {name: _said(queue, patient=patient) for name, queue in queues.items()}
    return {name: what for name, what in said.items() if what}


def _are_worth_waiting_for(queues: dict[str, _Queue]) -> bool:
    """Whether some are not known, and none is known to hold any: that one is enough."""
    return not any(queue.count for queue in queues.values()) and not all(
        queue.is_known for queue in queues.values()
    )


def _said(queue: _Queue, *, patient: bool) -> str:
    if queue.count:
        return f"{queue.count} of its messages are dead-lettered, and not taken yet"
    if patient and not queue.has_way and not queue.is_known:
        return (
            "what it dead-letters has no way on, and the management API does not tell in time"
            " whether it holds any"
        )
    return ""


async def _at_least_once(names: Collection[str], management: Management) -> dict[str, _Queue]:
    found: dict[str, _Queue] = {}
    for row in await management.queues(*_COLUMNS):
        if row["name"] not in names:
            continue
        terms = dict(row.get("effective_policy_definition") or {})
        for name, value in (row.get("arguments") or {}).items():
            terms[name.removeprefix("x-")] = value
        exchange = terms.get("dead-letter-exchange")
        if exchange is None or terms.get("dead-letter-strategy") != "at-least-once":
            continue
        has_way = await _leads_on(exchange, terms.get("dead-letter-routing-key"), management)
        queue = _Queue(has_way, count=row.get("messages_dlx"), work=row.get("reductions"))
        found[row["name"]] = queue
    return found


async def _leads_on(exchange: str, key: str | None, management: Management) -> bool:
    if not exchange:  # the default exchange; with their own keys, nobody knows where they go
        return key is not None and await management.queue(key) is not None
    return bool(await management.bindings_from(exchange))


async def _look_again(queues: dict[str, _Queue], management: Management) -> None:
    await asyncio.sleep(_STEP)
    shown = {row["name"]: row for row in await management.queues(*_COLUMNS)}
    for name in list(queues):
        if name in shown:
            queues[name].show(shown[name])
        else:
            del queues[name]  # somebody deleted it
