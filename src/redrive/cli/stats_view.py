"""The live view of `redrive stats --watch`: rates, backlog, groups and alerts on one screen.

Rates are told from the counters of two looks, over the last half minute: it needs no history, and
shows none until the second look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from redrive.cli import wording
from redrive.cli.rendering import one_line
from redrive.domain import metrics
from redrive.domain.alerting import Phase
from redrive.domain.lifecycle import BACKLOG, State
from redrive.domain.metrics import Metric, Readings
from redrive.work.stats import Stats, open_letters

_OVER: Final = 30.0
_ID_WIDTH: Final = 16
_RATES: Final[tuple[tuple[str, Metric, tuple[str, ...]], ...]] = (
    ("received", metrics.RECEIVED, ()),
    ("resolved", metrics.ENTERED, (State.RESOLVED.word,)),
    ("left to a person", metrics.ENTERED, (State.MANUAL.word,)),
    ("sent", metrics.ATTEMPTS, ("sent",)),
    ("came back", metrics.RETURNED, ()),
    ("retried", metrics.RETRIES, ()),
)


class StatsView:
    """What is shown; `see` has it look anew."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Readings]] = deque()
        self._stats: Stats | None = None
        self._alerts: Sequence[dict[str, Any]] = ()

    def see(
        self, stats: Stats, readings: Readings, alerts: Sequence[dict[str, Any]], at: float
    ) -> None:
        """The numbers of a moment; `at` is in seconds, of any clock that only goes on."""
        self._stats, self._alerts = stats, alerts
        self._looks.append((at, readings))
        while len(self._looks) > 2 and at - self._looks[1][0] > _OVER:
            self._looks.popleft()

    def rate(self, metric: Metric, *labels: str) -> float | None:
        """How much a counter grew a second, of late; None after one look."""
        (began, before), (ended, now) = self._looks[0], self._looks[-1]
        if ended <= began:
            return None
        grown = now.total(metric.name, *labels) - before.total(metric.name, *labels)
        return max(0.0, grown) / (ended - began)

    def __rich__(self) -> RenderableType:
        if self._stats is None:
            return Text("…")
        beside = Table.grid(padding=(0, 4))
        beside.add_row(self._states(), self._flow())
        parts: list[RenderableType] = [
            Text(f"redrive stats  {wording.clock(datetime.now(UTC))}", style="bold"),
            Text(""),
            beside,
            Text(""),
        ]
        firing = self._firing()
        if firing is not None:
            parts += [firing, Text("")]
        parts.append(self._groups())
        return Group(*parts)

    def _states(self) -> Table:
        assert self._stats is not None
        states = self._stats.ledger.states
        table = _table("STATE", "LETTERS")
        for state in State:
            table.add_row(
                Text(state.word, style=wording.STYLES[state]), f"{states.get(state, 0):,}"
            )
        backlog = sum(states.get(state, 0) for state in BACKLOG)
        table.add_row(Text("backlog", style="bold"), Text(f"{backlog:,}", style="bold"))
        return table

    def _flow(self) -> Table:
        table = _table("RATE", "A SECOND")
        for name, metric, labels in _RATES:
            found = self.rate(metric, *labels)
            table.add_row(name, "-" if found is None else f"{found:,.1f}")
        collecting = self._looks[-1][1].total(metrics.COLLECTING.name)
        table.add_row("queues collected", f"{collecting:,.0f}")
        return table

    def _firing(self) -> Text | None:
        names = [each["name"] for each in self._alerts if each["phase"] == Phase.FIRING.value]
        return Text(f"firing: {', '.join(names)}", style="bold red") if names else None

    def _groups(self) -> Table:
        assert self._stats is not None
        table = _table("GROUP", "OPEN", "QUEUE", "ERROR")
        for group in self._stats.top:
            table.add_row(
                group.fingerprint,
                f"{open_letters(group):,}",
                one_line(group.queue or "-"),
                one_line(f"{group.error_type}: {group.reason}"),
            )
        return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = column in ("LETTERS", "A SECOND", "OPEN")
        # An id that is cut cannot be given to any command: of a narrow screen texts get less.
        least = _ID_WIDTH if column == "GROUP" else None
        table.add_column(
            column, justify="right" if number else "left", no_wrap=True, min_width=least
        )
    return table
