"""Real Prometheus scrapes and judges, real Alertmanager receives."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redrive.domain import metrics
from redrive.domain.access import Role
from redrive.domain.alerting import DEFAULT_RULES, Phase, Rule
from redrive.domain.dashboard import PANELS, dashboard
from redrive.domain.filters import Filters
from redrive.domain.measures import MEASURES
from redrive.domain.prometheus_rules import prometheus_rules
from redrive.settings.alerts import AlertSinkSettings
from redrive.store.store import Store
from redrive.tally import Tally
from redrive.work.counting import Counting
from tests.services.alerting import DRIVES, STEP, Desk, desk, rule
from tests.services.eventually import eventually_async
from tests.services.letters import failed, letter_store
from tests.services.monitoring import Alertmanager, alertmanager, prometheus
from tests.services.plugin import Vhost
from tests.services.sending import later, sent, stored
from tests.services.serving import serving, settings_for


@pytest.fixture(scope="module")
def receiver() -> Iterator[Alertmanager]:
    with alertmanager() as up:
        yield up


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as opened:
        yield opened


# What Redrive judges, Alertmanager receives


@pytest.mark.parametrize("default", DEFAULT_RULES, ids=lambda default: default.name)
async def test_alertmanager_gets_a_default_alert_when_it_fires_and_when_it_resolves(
    store: Store, receiver: Alertmanager, default: Rule
) -> None:
    sink = AlertSinkSettings.model_validate(
        {"name": "am", "kind": "alertmanager", "url": receiver.url}
    )
    at, drive = desk(store, [default], [sink]), DRIVES[default.name]
    await at.judge()
    await drive.fire(at)
    await at.judge()
    assert await at.phase() is Phase.FIRING
    await _send_all(at)
    await eventually_async(lambda: default.name in receiver.firing(), what="it fires there")
    labels = receiver.alert(default.name)["labels"]
    assert labels["severity"] == default.severity.value
    assert receiver.alert(default.name)["annotations"]["summary"] == default.summary
    await drive.resolve(at)
    await at.judge()
    assert await at.phase() is Phase.QUIET
    await _send_all(at)
    await eventually_async(lambda: default.name not in receiver.firing(), what="it is resolved")
    assert await at.tell() == 0


async def _send_all(at: Desk) -> None:
    while await at.tell():
        later(at.store, timedelta(seconds=1))


async def test_an_alert_that_goes_on_is_told_to_alertmanager_every_minute(
    store: Store, receiver: Alertmanager
) -> None:
    sink = AlertSinkSettings.model_validate(
        {"name": "am", "kind": "alertmanager", "url": receiver.url}
    )
    at = desk(store, [rule("dlq_backlog > 2", "GoesOn")], [sink])
    await stored(store, 3)
    await at.judge()
    await _send_all(at)
    before = receiver.alert("GoesOn")["endsAt"]
    for _ in range(4):
        await at.judge(STEP)
    await _send_all(at)
    await eventually_async(lambda: receiver.alert("GoesOn")["endsAt"] > before)


# What Prometheus judges by the exported rules

SERIES = {
    "HighDLQIngestionRate": ("redrive_letters_received_total", "0x5 0+200x5 1000x10"),
    "DLQBacklogGrowing": ('redrive_letters{state="pending"}', "0x5 10001x5 9x10"),
    "LowResolutionRate": ("redrive_letters_received_total", "0x2 0+9x40 351x80"),
    "LetterNeedsPerson": (
        'redrive_letters_entered_total{state="manual"}',
        "0x5 1x20",
    ),
    "NewFailureGroup": ("redrive_groups_total", "4x5 5x20"),
    "FailureGroupGrowsFast": ("redrive_fastest_group_letters_per_second", "0x5 1x5 0x10"),
    "OldestPendingTooOld": (
        'redrive_oldest_letter_age_seconds{state="pending"}',
        "5x5 90000x5 _x20",
    ),
    "LedgerBroken": ("redrive_ledger_difference_letters", "0x5 2x5 0x10"),
    "CollectorStopped": ("redrive_collector_queues", "1x5 0x5 1x10"),
    "BreakerOpen": ('redrive_breakers{position="open"}', "0x5 1x5 0x10"),
}
"""Minute by minute: quiet, then what makes it fire, then what makes it resolve."""
AT = dict.fromkeys(SERIES, (4, 9, 19)) | {
    "LowResolutionRate": (2, 30, 125),
    "LetterNeedsPerson": (4, 7, 19),
    "NewFailureGroup": (4, 7, 19),
}
"""The minutes at which it is quiet, fires, and is quiet again."""


def test_promtool_finds_the_rules_right_and_each_default_fires_and_resolves(
    tmp_path: Path,
) -> None:
    (tmp_path / "rules.yml").write_text(prometheus_rules(DEFAULT_RULES))
    checked = subprocess.run(
        ["promtool", "check", "rules", "rules.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(MEASURES) + len(DEFAULT_RULES)} rules found" in checked.stdout
    assert set(SERIES) == {default.name for default in DEFAULT_RULES}
    tests = [_promtool_test(default) for default in DEFAULT_RULES]
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        # Left to promtool it is in no order, and an alert may see a measure a minute late.
        "group_eval_order": ["redrive-measures", "redrive-alerts"],
        "tests": tests,
    }
    (tmp_path / "tests.yml").write_text(json.dumps(document))
    tested = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _promtool_test(default: Rule) -> dict[str, Any]:
    series, values = SERIES[default.name]
    instance = series[:-1] + ', instance="a"}' if "{" in series else series + '{instance="a"}'
    resolved = 'redrive_letters_entered_total{state="resolved", instance="a"}'
    quiet, fires, again = AT[default.name]
    wanted = {
        "exp_labels": {"severity": default.severity.value, "service": "redrive"},
        "exp_annotations": {"summary": default.summary, "condition": default.condition.text},
    }
    return {
        "name": default.name,
        "interval": "1m",
        "input_series": [
            {"series": instance, "values": values},
            {"series": resolved, "values": "0x200"},
        ],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": default.name,
                "exp_alerts": [wanted] if minute == fires else [],
            }
            for minute in (quiet, fires, again)
        ],
    }


# Everything together


async def there(condition: Callable[[], object], what: str) -> None:
    """Wait without keeping the server, which is in this process, from answering."""
    await eventually_async(lambda: asyncio.to_thread(condition), what=f"answered: {what}")


async def test_prometheus_scrapes_with_a_token_and_its_alerts_reach_alertmanager(
    vhost: Vhost, tmp_path: Path, receiver: Alertmanager
) -> None:
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db")
    backlog = rule("dlq_backlog > 40", "FromPrometheus", summary="Letters wait.")
    async with serving(settings, loopback=False) as server:
        await _live_a_little(server.store)
        rules = prometheus_rules([*DEFAULT_RULES, backlog])
        token = await server.token(Role.VIEWER)
        with prometheus(server.address, rules, token=token, alerts_to=receiver.url) as scraper:
            await there(lambda: scraper.ask("redrive_letters_received_total"), "it is scraped")
            await server.store.letters.add([failed("boom") for _ in range(50)])
            await there(lambda: "FromPrometheus" in receiver.firing(), "it fires")
            for some in (await server.store.decisions.listed(Filters())).chunks():
                await server.store.decisions.discard(list(some.states), "me")
            await there(lambda: "FromPrometheus" not in scraper.firing(), "it resolves")
            queries = [query for panel in PANELS for query, _ in panel.queries]

            for query in queries:
                await there(partial(scraper.ask, query), query)
            for measure in MEASURES.values():
                await asyncio.to_thread(scraper.ask, measure.record)


async def _live_a_little(store: Store) -> None:
    """So that every metric has something to show."""
    await stored(store, 5)
    claims = await sent(store, limit=3)
    await store.decisions.resolve([claims[0].letter.id], "me")
    tally = Tally()
    tally.count(metrics.RETRIES, "1")
    tally.observe(metrics.CONFIRMS, 0.01)
    with tally.level(metrics.COLLECTING):
        await Counting("p1", {"collector"}, store.counts, tally).write()
    await desk(store, DEFAULT_RULES).watch.round()


def test_the_dashboard_is_what_grafana_takes() -> None:
    made = json.loads(json.dumps(dashboard()))
    assert made["uid"] == "redrive"
    assert len({panel["id"] for panel in made["panels"]}) == len(PANELS)
    for panel in made["panels"]:
        assert panel["targets"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
