"""Rules for Prometheus: the measures as recording rules, the alerts as alerting rules.

Guarantees: what Prometheus judges is what Redrive judges, by the same definitions; only that
Prometheus extrapolates rates, and sees what it has scraped. The text is YAML, with every string
quoted as JSON quotes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from redrive.domain.alerting import Rule
from redrive.domain.durations import format_duration
from redrive.domain.measures import MEASURES


def prometheus_rules(rules: Iterable[Rule]) -> str:
    """A file of rules."""
    return "\n".join(_lines(rules)) + "\n"


def _lines(rules: Iterable[Rule]) -> Iterator[str]:
    yield "# Made by 'redrive export prometheus-rules'. Redrive itself judges the same alerts."
    yield "groups:"
    yield "  - name: redrive-measures"
    yield "    rules:"
    for measure in MEASURES.values():
        yield f"      - record: {_text(measure.record)}"
        yield f"        expr: {_text(measure.promql)}"
    yield "  - name: redrive-alerts"
    yield "    rules:"
    for rule in rules:
        yield f"      - alert: {_text(rule.name)}"
        yield f"        expr: {_text(rule.condition.promql())}"
        if rule.hold:
            yield f"        for: {_text(format_duration(rule.hold))}"
        yield "        labels:"
        yield f"          severity: {_text(rule.severity.value)}"
        yield '          service: "redrive"'
        yield "        annotations:"
        yield f"          summary: {_text(_plain(rule.summary))}"
        yield f"          condition: {_text(_plain(rule.condition.text))}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _plain(text: str) -> str:
    """Annotations are templates: what looks like one is quoted."""
    return text.replace("{{", '{{"{{"}}')
