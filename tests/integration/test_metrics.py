"""`/metrics` as a scraper sees it: what it says, and to whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive.domain import metrics
from redrive.domain.access import Role
from redrive.domain.metrics import METRICS
from tests.services.letters import failed
from tests.services.plugin import Vhost
from tests.services.serving import Server, serving, settings_for


def parsed(text: str) -> dict[str, float]:
    """Samples by name and labels, as a scraper reads them."""
    return {
        sample.name + "".join(f"|{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
async def guarded(vhost: Vhost, tmp_path: Path) -> AsyncIterator[Server]:
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db")
    async with serving(settings, loopback=False) as up:
        yield up


async def test_a_scraper_reads_every_metric_by_its_name_and_labels(server_on_each: Server) -> None:
    await server_on_each.add(*(failed('a "quoted"\nreason', queue="or\\ders") for _ in range(3)))
    async with server_on_each.client() as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = parsed(answer.text)
    assert found["redrive_letters_received_total"] == 3
    assert found["redrive_letters|or\\ders|pending"] == 3
    assert found["redrive_open_letters|TIMEOUT_ERROR"] == 3
    assert found["redrive_time_in_dlq_seconds_count"] == 0
    assert found["redrive_letters_entered_total|manual"] == 0
    shown = {family.name for family in text_string_to_metric_families(answer.text)}
    left_to_the_janitor = (metrics.FASTEST, metrics.DIFFERENCE, metrics.CHECKED)
    assert shown == {
        metric.name.removesuffix("_total")
        for metric in METRICS
        if metric not in left_to_the_janitor
    }


async def test_where_people_log_in_a_scraper_needs_a_token_of_a_viewer(guarded: Server) -> None:
    async with guarded.client() as nobody:
        refused = await nobody.get("/metrics")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    async with await guarded.client_as(Role.VIEWER) as viewer:
        assert (await viewer.get("/metrics")).status_code == 200


async def test_a_page_elsewhere_cannot_read_the_metrics_of_a_local_server(server: Server) -> None:
    async with server.client(headers={"Host": "evil.example"}) as client:
        assert (await client.get("/metrics")).status_code == 403
