"""A dashboard for Grafana: what comes in, what waits, what becomes of it, and how Redrive does.

Every query is made of the metrics and measures that there are; none depends on recording rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from redrive.domain import metrics
from redrive.domain.measures import COUNTERS, MEASURES
from redrive.domain.metrics import Metric

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _ROW = 8, 8, 24


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: what it shows, in what unit, by which queries."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Each with its legend."""
    kind: str = "timeseries"


def _by(metric: Metric, *labels: str) -> str:
    """A gauge by labels; of several servers, which all show the same, one."""
    names = ", ".join(labels)
    return f"max by ({names}) (sum by (instance, {names}) ({metric.name}))"


def _rate(metric: Metric, *labels: str) -> str:
    """A counter by labels, a second."""
    by = f" by ({', '.join(labels)})" if labels else ""
    inner = f" by (instance{''.join(f', {label}' for label in labels)})"
    return f"max{by} (sum{inner} (rate({metric.name}[5m])))"


def _quantile(metric: Metric, share: float, window: str) -> str:
    inner = f"max by (le) (rate({metric.name}_bucket[{window}]))"
    return f"histogram_quantile({share:g}, {inner})"


def _mean(metric: Metric, window: str) -> str:
    total = f"max(rate({metric.name}_sum[{window}]))"
    return f"{total} / (max(rate({metric.name}_count[{window}])) > 0) or vector(0)"


def _measure(name: str) -> str:
    return MEASURES[name].promql


PANELS: Final[tuple[Panel, ...]] = (
    Panel("Backlog", "short", ((_measure("dlq_backlog"), "letters"),), "stat"),
    Panel(
        "Alerts that fire",
        "short",
        ((f"count(max by (alert) ({metrics.FIRING.name})) or vector(0)", "alerts"),),
        "stat",
    ),
    Panel("Oldest pending letter", "s", ((_measure("dlq_oldest_pending"), "age"),), "stat"),
    Panel(
        "Letters a second",
        "ops",
        (
            (_rate(metrics.RECEIVED), "received"),
            (COUNTERS["letters_resolved"].promql("rate", "5m"), "resolved"),
            (_rate(metrics.RETURNED), "came back"),
        ),
    ),
    Panel("Letters by state", "short", ((_by(metrics.LETTERS, "state"), "{{state}}"),)),
    Panel("Letters by queue", "short", ((_by(metrics.LETTERS, "queue"), "{{queue}}"),)),
    Panel(
        "Open letters by error type",
        "short",
        ((_by(metrics.OPEN, "error_type"), "{{error_type}}"),),
    ),
    Panel(
        "Resolved for each that came in, and replays that succeeded",
        "percentunit",
        (
            (f"({_measure('dlq_resolution_rate')}) or vector(0)", "resolution"),
            (f"({_measure('dlq_replay_success_rate')}) or vector(0)", "replays"),
        ),
    ),
    Panel(
        "Time in the DLQ",
        "s",
        (
            (_quantile(metrics.TIME_IN_DLQ, 0.5, "1h"), "median"),
            (_quantile(metrics.TIME_IN_DLQ, 0.95, "1h"), "95 %"),
            (_mean(metrics.TIME_IN_DLQ, "1h"), "mean"),
        ),
    ),
    Panel(
        "Letters that entered a state, a second",
        "ops",
        ((_rate(metrics.ENTERED, "state"), "{{state}}"),),
    ),
    Panel("Sendings a second", "ops", ((_rate(metrics.ATTEMPTS, "result"), "{{result}}"),)),
    Panel("Fastest group", "ops", ((_measure("dlq_fastest_group_rate"), "letters a second"),)),
    Panel("Retries a second, by tier", "ops", ((_rate(metrics.RETRIES, "tier"), "tier {{tier}}"),)),
    Panel(
        "The retrier, a second",
        "ops",
        ((_rate(metrics.RETRIED), "returned"), (_rate(metrics.DEAD), "dead-lettered")),
    ),
    Panel(
        "Confirms",
        "s",
        (
            (_quantile(metrics.CONFIRMS, 0.5, "5m"), "median"),
            (_quantile(metrics.CONFIRMS, 0.99, "5m"), "99 %"),
        ),
    ),
    Panel("Breakers", "short", ((_by(metrics.BREAKERS, "position"), "{{position}}"),)),
    Panel(
        "Processes",
        "short",
        (
            (_by(metrics.PROCESSES, "role"), "{{role}}"),
            (_measure("collecting_queues"), "queues collected"),
        ),
    ),
    Panel(
        "Trouble, an hour",
        "short",
        (
            (COUNTERS["reconnects"].promql("increase", "1h"), "reconnects"),
            (COUNTERS["publishes_in_doubt"].promql("increase", "1h"), "publishes in doubt"),
            (COUNTERS["replays_in_doubt"].promql("increase", "1h"), "sendings in doubt"),
            (COUNTERS["lease_takeovers"].promql("increase", "1h"), "lease takeovers"),
        ),
    ),
    Panel(
        "Sweeps, an hour",
        "short",
        ((f"max by (outcome) (increase({metrics.SWEPT.name}[1h]))", "{{outcome}}"),),
    ),
    Panel("Ledger difference", "short", ((_measure("ledger_difference"), "letters"),), "stat"),
    Panel(
        "Alert messages, an hour",
        "short",
        ((f"max by (outcome) (increase({metrics.ALERT_MESSAGES.name}[1h]))", "{{outcome}}"),),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard, to be imported."""
    return {
        "title": "Redrive",
        "uid": "redrive",
        "tags": ["redrive", "rabbitmq"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    across = _ROW // _WIDTH
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": {
            "h": _HEIGHT,
            "w": _WIDTH,
            "x": number % across * _WIDTH,
            "y": number // across * _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }
