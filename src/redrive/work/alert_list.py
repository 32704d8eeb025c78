"""How every alert stands, for `redrive alerts` and the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.domain.alerting import Phase, Rule, Silence
from redrive.domain.durations import format_duration
from redrive.store.alert_messages import Waiting
from redrive.store.alerts import AlertOf
from redrive.store.store import Store
from redrive.work.times import rfc3339, rfc3339_or_none


async def list_alerts(store: Store, rules: Sequence[Rule]) -> dict[str, Any]:
    """The alerts of the rules, those that fire first, and the sinks that have messages to take."""
    known = {alert.name: alert for alert in await store.alerts.all()}
    silences = await store.alerts.silences()
    items = [alert_document(rule, known.get(rule.name), silences.get(rule.name)) for rule in rules]
    order = [phase.value for phase in (Phase.FIRING, Phase.PENDING, Phase.QUIET)]
    items.sort(key=lambda item: order.index(item["phase"]))
    waiting = [waiting_document(each) for each in await store.alert_messages.waiting()]
    return {"items": items, "waiting": waiting}


def alert_document(rule: Rule, known: AlertOf | None, silence: Silence | None) -> dict[str, Any]:
    """One alert."""
    return {
        "name": rule.name,
        "severity": rule.severity.value,
        "summary": rule.summary,
        "condition": rule.condition.text,
        "for": format_duration(rule.hold),
        "phase": (known.standing.phase if known else Phase.QUIET).value,
        "since": rfc3339_or_none(known.standing.since if known else None),
        "toldAt": rfc3339_or_none(known.standing.told_at if known else None),
        "value": known.value if known else None,
        "unit": rule.condition.unit,
        "judgedAt": rfc3339_or_none(known.updated_at if known else None),
        "silence": None if silence is None else silence_document(silence),
    }


def silence_document(silence: Silence) -> dict[str, Any]:
    return {
        "until": rfc3339(silence.until),
        "reason": silence.reason,
        "by": silence.created_by,
        "at": rfc3339(silence.created_at),
    }


def waiting_document(waiting: Waiting) -> dict[str, Any]:
    return {"sink": waiting.sink, "messages": waiting.messages, "error": waiting.error or None}
