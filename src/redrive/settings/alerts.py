"""Alerts in the settings: rules, and the sinks that are told.

Guarantees: a rule that exists has a condition that can be judged, and names only sinks that exist.
What is wrong is said at start, with the place in the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from redrive.domain.alerting import (
    DEFAULT_RULES,
    LOG_SINK,
    NAME_PATTERN,
    Rule,
    Severity,
    SinkKind,
)
from redrive.domain.condition_reader import ConditionRefused, parse
from redrive.settings.section import Section
from redrive.settings.values import (
    Duration,
    Expected,
    Secret,
    SinkUrl,
    mail_address,
    read_secret,
    read_sink_url,
)

_Name = Annotated[
    str,
    Field(pattern=rf"^{NAME_PATTERN}$"),
    Expected("a name of 1 to 100 letters, digits and underscores, not beginning with a digit"),
]
_Address = Annotated[
    str, Field(max_length=320, pattern=r"^[^\s@]+@[^\s@]+$"), AfterValidator(mail_address)
]
_DEFAULTS: Final = {rule.name: rule for rule in DEFAULT_RULES}


class AlertSettings(Section):
    """A rule. One with the name of a default takes its place, and has its values where it says
    nothing else."""

    name: _Name
    condition: Annotated[
        str | None,
        Field(min_length=1, max_length=1000),
        Expected("a condition such as 'dlq_backlog > 10000'"),
    ] = None
    hold: Annotated[
        Duration | None,
        Field(alias="for", ge=timedelta(), le=timedelta(days=7)),
        Expected("a duration from 0s to 7d"),
    ] = None
    severity: Annotated[Severity | None, Expected("'info', 'warning' or 'critical'")] = None
    summary: Annotated[
        str | None, Field(min_length=1, max_length=500), Expected("a sentence for people")
    ] = None
    repeat: Annotated[
        Duration | None,
        Field(ge=timedelta(minutes=1), le=timedelta(days=30)),
        Expected("a duration from 1m to 30d"),
    ] = None
    sinks: Annotated[tuple[str, ...] | None, Expected("a list of names of [[alert_sink]]")] = None
    enabled: Annotated[bool, Expected("true or false")] = True


class AlertSinkSettings(Section):
    """Somebody who is told of alerts."""

    name: _Name
    kind: Annotated[SinkKind, Expected("'webhook', 'slack', 'email' or 'alertmanager'")]
    url: Annotated[
        SinkUrl,
        BeforeValidator(read_sink_url),
        Expected(
            "an http:// or https:// URL without white space, user or password ('secret' signs a"
            " webhook); for e-mail smtp:// or smtps://, with user and password if the server wants"
            " them"
        ),
    ]
    secret: Annotated[
        Secret | None,
        BeforeValidator(read_secret),
        Expected("text of 1 to 1000 characters, which a webhook is signed with"),
    ] = None
    sender: Annotated[_Address | None, Expected("an address, such as 'redrive@example.com'")] = None
    to: Annotated[
        tuple[_Address, ...],
        Expected("a list of addresses, such as ['ops@example.com']"),
    ] = ()


def rules_by(alerts: Sequence[AlertSettings]) -> tuple[Rule, ...]:
    """The rules in force: the defaults, and what the settings say."""
    rules = dict(_DEFAULTS)
    for alert in alerts:
        rules.pop(alert.name, None)
        if alert.enabled:
            rules[alert.name] = _rule(alert)
    return tuple(rules.values())


def _rule(alert: AlertSettings) -> Rule:
    base = _DEFAULTS.get(alert.name)
    text = alert.condition
    if text is None:
        assert base is not None  # checked when the settings were read
        condition = base.condition
    else:
        condition = parse(text)
    usual = base or Rule(name=alert.name, condition=condition)
    summary = alert.summary or ("" if text is not None else usual.summary)
    return Rule(
        name=alert.name,
        condition=condition,
        hold=usual.hold if alert.hold is None else alert.hold,
        severity=alert.severity or usual.severity,
        summary=summary or f"{condition.text}",
        repeat=alert.repeat or usual.repeat,
        sinks=alert.sinks,
    )


def why_not_alerts(
    alerts: Sequence[AlertSettings], sinks: Sequence[AlertSinkSettings]
) -> str | None:
    """What is wrong with alerts, one sentence; None if they are right."""
    for problem in (_why_not_sinks(sinks), *(_why_not(alert, sinks) for alert in alerts)):
        if problem is not None:
            return problem
    names = [alert.name for alert in alerts]
    twice = next((name for name in names if names.count(name) > 1), None)
    return f"alert: expected every name once, got {twice!r} twice" if twice else None


def _why_not(alert: AlertSettings, sinks: Sequence[AlertSinkSettings]) -> str | None:
    if alert.condition is None and alert.name not in _DEFAULTS:
        return f"alert {alert.name}: expected a condition, got nothing"
    if alert.condition is not None:
        try:
            parse(alert.condition)
        except ConditionRefused as refused:
            return f"alert {alert.name}: condition: {refused}"
    known = {LOG_SINK, *(sink.name for sink in sinks)}
    unknown = next((name for name in alert.sinks or () if name not in known), None)
    if unknown is not None:
        return f"alert {alert.name}: sinks: there is no [[alert_sink]] {unknown!r}"
    return None


def _why_not_sinks(sinks: Sequence[AlertSinkSettings]) -> str | None:
    names = [LOG_SINK, *(sink.name for sink in sinks)]
    for sink in sinks:
        if names.count(sink.name) > 1:
            return f"alert_sink: expected every name once, and none {LOG_SINK!r}; got {sink.name!r}"
        by_mail = sink.url.reveal().startswith("smtp")
        if by_mail is not (sink.kind is SinkKind.EMAIL):
            wanted = "smtp:// or smtps://" if sink.kind is SinkKind.EMAIL else "http:// or https://"
            return f"alert_sink {sink.name}: url: expected {wanted} for {sink.kind.value}"
        if by_mail and not (sink.to and sink.sender):
            return f"alert_sink {sink.name}: expected 'sender' and 'to' for e-mail"
    return None
