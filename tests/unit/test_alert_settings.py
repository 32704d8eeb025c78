"""Alerts in the settings: defaults replaced and switched off, slips said at start, no secrets."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.domain.alerting import DEFAULT_RULES, Severity
from redrive.errors import SettingsError
from redrive.settings import Settings, load
from redrive.settings.alerts import rules_by


def loaded(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "redrive.toml"
    file.write_text(text)
    return load(config=file, environ={"HOME": "/home/x"}).settings


def test_without_any_rule_the_defaults_are_in_force(tmp_path: Path) -> None:
    assert rules_by(loaded(tmp_path, "").alert) == DEFAULT_RULES


def test_a_rule_of_the_same_name_takes_the_place_of_a_default(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[[alert]]\nname = "DLQBacklogGrowing"\ncondition = "dlq_backlog > 5"\nfor = "10m"\n'
        '[[alert]]\nname = "NewFailureGroup"\nenabled = false\n'
        '[[alert]]\nname = "CollectorStopped"\nfor = "10m"\nrepeat = "1h"\n'
        '[[alert]]\nname = "Own"\ncondition = "dlq_failed > 1"\nseverity = "critical"\n',
    )
    rules = {rule.name: rule for rule in rules_by(settings.alert)}
    assert len(rules) == len(DEFAULT_RULES)
    assert rules["DLQBacklogGrowing"].condition.text == "dlq_backlog > 5"
    assert rules["DLQBacklogGrowing"].hold == timedelta(minutes=10)
    assert rules["DLQBacklogGrowing"].severity is Severity.CRITICAL
    assert rules["CollectorStopped"].condition.text == "collecting_queues < 1"
    assert rules["CollectorStopped"].repeat == timedelta(hours=1)
    assert rules["Own"].summary == "dlq_failed > 1"
    assert "NewFailureGroup" not in rules


HOOK = '[[alert_sink]]\nname = "hook"\nkind = "webhook"\nurl = "https://x.example/h"\n'

MAIL = '[[alert_sink]]\nname = "mail"\nkind = "email"\nurl = "smtp://x.example"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[[alert]]\nname = "A"\ncondition = "dlq_backlog >"\n',
            "alert A: condition: expected a measure or a number, at character 14",
        ),
        ('[[alert]]\nname = "A"\n', "alert A: expected a condition, got nothing"),
        (
            '[[alert]]\nname = "A"\ncondition = "dlq_backlog > 1"\nsinks = ["pager"]\n',
            "there is no [[alert_sink]] 'pager'",
        ),
        (
            '[[alert]]\nname = "LedgerBroken"\nsinks = ["nope"]\n',
            "alert LedgerBroken: sinks: there is no [[alert_sink]] 'nope'",
        ),
        ('[[alert]]\nname = "A B"\ncondition = "dlq_backlog > 1"\n', "alert[0].name"),
        ('[[alert]]\nname = "A"\nfor = "soon"\n', "alert[0].for"),
        ('[[alert]]\nname = "A"\nhold = "5m"\n', "unknown setting 'alert[0].hold'"),
        ('[[alert]]\nname = "A"\nseverity = "bad"\n', "expected 'info', 'warning' or 'critical'"),
        (HOOK + HOOK, "expected every name once"),
        (HOOK.replace("hook", "log", 1), "none 'log'"),
        (HOOK.replace("https", "smtp"), "expected http:// or https:// for webhook"),
        (
            HOOK.replace("webhook", "email").replace("https", "smtp"),
            "expected 'sender' and 'to' for e-mail",
        ),
        (
            MAIL + 'sender = "a@["\nto = ["b@example.com"]\n',
            "expected an address, such as 'redrive@example.com', got 'a@['",
        ),
        (
            MAIL + 'sender = "a@example.com"\nto = ["b@example.com", "c@d,e"]\n',
            "alert_sink[0].to[1]",
        ),
        ('[server]\npublic_url = "https://u:p@x.example"\n', "server.public_url"),
    ],
)
def test_what_is_wrong_is_said_at_start(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, text)
    assert problem in str(refused.value)


def test_no_secret_of_a_sink_is_shown(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[[alert_sink]]\nname = "s"\nkind = "slack"\nurl = "https://hooks.example/T0/s3cret"\n'
        '[[alert_sink]]\nname = "w"\nkind = "webhook"\nurl = "https://x.example/"\n'
        'secret = "s3cret"\n'
        '[[alert_sink]]\nname = "m"\nkind = "email"\nurl = "smtp://me:s3cret@mail.example:587"\n'
        'sender = "a@b.example"\nto = ["c@d.example"]\n',
    )
    shown = repr(settings) + json.dumps(settings.model_dump(mode="json"))
    assert "s3cret" not in shown
    assert "https://hooks.example/****" in shown
    assert settings.alert_sink[2].url.reveal() == "smtp://me:s3cret@mail.example:587"


@pytest.mark.parametrize(
    "sink",
    [
        'url = "http://ops:s3cret@x.example/hook"',
        'url = "HTTPS://s3cret@x.example/hook"',
        'url = "https://hooks.example/services/T0/B0 s3cret"',
        'url = "https://hooks.example/services/T0/B0\\ns3cret"',
        'url = "htps://hooks.example/services/T0/B0/s3cret"',
        'url = "https://hooks.example:s3cret/"',
        'url = "https://[s3cret/"',
        'url = ["https://hooks.example/s3cret"]',
        f'url = "https://x.example/"\nsecret = "s3cret{"x" * 1000}"',
        'url = "https://x.example/"\nsecret = ["s3cret"]',
    ],
)
def test_a_sink_that_is_refused_shows_nothing_of_its_secrets(tmp_path: Path, sink: str) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, f'[[alert_sink]]\nname = "s"\nkind = "webhook"\n{sink}\n')
    (line,) = str(refused.value).splitlines()
    assert line.startswith("alert_sink[0].")
    assert "s3cret" not in line
    assert "hooks.example" not in line


@pytest.mark.parametrize("text", ['[{"url": "https://x.example/s3cret"', '["https://x/s3cret"]'])
def test_sinks_that_are_not_tables_show_nothing_of_their_secrets(text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(environ={"HOME": "/home/x", "REDRIVE_ALERT_SINK": text})
    assert "alert_sink" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "address", ["ops@example.com", "jörg@bücher.example", "Ops<o@example.com>", "a@[127.0.0.1]"]
)
def test_what_mail_can_be_sent_to_is_an_address(tmp_path: Path, address: str) -> None:
    settings = loaded(tmp_path, f'{MAIL}sender = "{address}"\nto = ["{address}"]\n')
    assert settings.alert_sink[0].to == (address,)
