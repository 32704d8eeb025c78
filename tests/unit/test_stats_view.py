"""The live view of `redrive stats --watch`."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from rich.console import Console

from redrive.cli.stats_view import StatsView
from redrive.domain import metrics
from redrive.domain.filters import Group, Ledger
from redrive.domain.lifecycle import State
from redrive.domain.metrics import Readings
from redrive.work.stats import Stats

AT = datetime(2026, 2, 11, tzinfo=UTC)
GROUP = Group(
    fingerprint="beefbeefbeefbeef",
    error_type="TIMEOUT",
    reason="no answer\x1b[31m from <host>",
    queue="orders",
    counts={State.PENDING: 7},
    first_seen_at=AT,
    last_seen_at=AT,
)


def seen(view: StatsView, received: int, at: float) -> None:
    ledger = Ledger(received=received, returned=0, states={State.PENDING: received}, deleted=0)
    readings = Readings({metrics.RECEIVED.name: {(): received}})
    firing = {"name": "DLQBacklogGrowing", "phase": "firing"}
    view.see(Stats(ledger, (GROUP,), True, None, 0), readings, [firing], at)


def drawn(view: StatsView, width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(view)
    return console.export_text()


def test_rates_backlog_groups_and_alerts_are_on_one_screen() -> None:
    view = StatsView()
    seen(view, 100, 0.0)
    assert view.rate(metrics.RECEIVED) is None
    seen(view, 150, 10.0)
    text = drawn(view)
    assert view.rate(metrics.RECEIVED) == 5.0
    assert "5.0" in text
    assert "backlog" in text
    assert "beefbeef" in text
    assert "firing: DLQBacklogGrowing" in text
    assert "\x1b" not in text


def test_a_groups_id_is_whole_however_narrow_the_screen_is() -> None:
    view = StatsView()
    seen(view, 100, 0.0)
    assert GROUP.fingerprint in drawn(view, width=40)


def test_rates_are_of_the_last_half_minute() -> None:
    view = StatsView()
    for second in range(0, 100, 2):
        seen(view, 1000 if second < 50 else 1000 + (second - 50) * 3, float(second))
    rate = view.rate(metrics.RECEIVED)
    assert rate is not None
    assert 2.9 < rate <= 3.0
