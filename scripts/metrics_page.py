"""docs/reference/metrics.md, from the definitions of metrics, measures and default alerts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from redrive.domain.alerting import DEFAULT_RULES
from redrive.domain.durations import format_duration
from redrive.domain.measures import COUNTERS, MEASURES
from redrive.domain.metrics import METRICS, MOST_NAMES, Kind

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
_HEAD = f"""# Metrics

Generated from the code by `python -m scripts.reference`; a test checks that it is current.

`GET /metrics` on a process with the role `server`, in the text format of Prometheus. All figures
come from the store, so every server shows the same, whatever process counted them, and restarts
lose nothing: scrape one server, or all and take the largest. What processes count in memory is
added to the store every 10 s; a `kill -9` loses what it had counted since ([ADR
0011](../adr/0011-counts-in-the-store.md)).

It needs the role viewer, as the API does: make a token with `redrive token create prometheus
--role viewer` and give it to Prometheus as `authorization: {{credentials_file: …}}`. On
127.0.0.1, as long as there is no user and no token, nothing is needed.

Names of queues and error types are the {MOST_NAMES} with the most open letters, and `other` for
all the rest. They are on gauges only: as the label of a counter, a name that comes and goes would
look like a restart.

Counters begin with 0 when the store is brought to schema 0005; those of the books
(`redrive_letters_received_total`, `_returned_total`, `_deleted_total`) are older, and
`redrive_possible_duplicates_total` begins with those that the store has at schema 0008.
"""
_MEASURES = """## Measures

What the condition of an alert can speak of. [How to get alerts](../how-to/alerts.md) has the
language.
"""
_COUNTERS = """## Counters in conditions

For `rate(NAME, WINDOW)`, a second, and `increase(NAME, WINDOW)`, with windows from 1m to 24h.
"""
_ALERTS = """## Default alerts

A rule of the same name in `[[alert]]` takes the place of a default.
"""


def page() -> str:
    """The whole page."""
    metrics = _table(
        ("metric", "kind", "labels", "meaning"),
        (
            (
                f"`{metric.name}`",
                metric.kind.value,
                "; ".join(f"`{name}`: {says}" for name, says in metric.labels.items()) or "none",
                metric.help + _buckets(metric.bounds if metric.kind is Kind.HISTOGRAM else ()),
            )
            for metric in METRICS
        ),
    )
    measures = _table(
        ("measure", "unit", "meaning", "in Prometheus"),
        (
            (f"`{each.name}`", each.unit, each.help, f"`{each.record}`")
            for each in MEASURES.values()
        ),
    )
    counters = _table(
        ("counter", "of"), ((f"`{name}`", f"`{each.selector}`") for name, each in COUNTERS.items())
    )
    alerts = _table(
        ("alert", "condition", "for", "severity", "what is the matter"),
        (
            (
                f"`{rule.name}`",
                f"`{rule.condition.text}`",
                format_duration(rule.hold),
                rule.severity.value,
                rule.summary,
            )
            for rule in DEFAULT_RULES
        ),
    )
    parts = (_HEAD, metrics, _MEASURES, measures, _COUNTERS, counters, _ALERTS, alerts)
    return "\n".join(f"{part.strip()}\n" for part in parts)


def _buckets(bounds: tuple[float, ...]) -> str:
    return f" Buckets: {', '.join(f'{bound:g}' for bound in bounds)}." if bounds else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines
    )
