"""What commands change is in the audit log, in the words of the API, with who did it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.cli.actor import actor
from redrive.domain.access import AuditEntry, Role
from redrive.store.store import Store
from tests.services.failing import failing
from tests.services.moving import declare
from tests.services.plugin import Vhost
from tests.services.replaying import Replaying, dead, replaying
from tests.services.retrying import declare_topology, topology

PASSWORD = "correct horse"


@pytest.fixture
def site(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Replaying:
    return replaying(vhost, tmp_path, capsys)


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is typed, as often as it is asked for."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n" * 9))


def log(site: Replaying) -> list[AuditEntry]:
    """All entries, oldest first."""

    async def work(store: Store) -> list[AuditEntry]:
        return list(reversed((await store.audit_log.page(limit=100)).items))

    return site.with_store(work)


def told(site: Replaying) -> list[tuple[str, dict[str, Any], int | None]]:
    return [(each.action, json.loads(each.detail), each.outcome) for each in log(site)]


def test_a_policy_of_a_teams_own_table_is_deleted_where_there_is_no_store_yet(
    site: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = sqlite3.connect(site.folder / "team.db")
    with contextlib.closing(team), team:
        team.execute(
            "CREATE TABLE dlq_event_config"
            " (id integer PRIMARY KEY, name varchar(100), max_retries integer)"
        )
        team.execute("INSERT INTO dlq_event_config VALUES (1, 'order.*', 3)")
    monkeypatch.setenv("REDRIVE_POLICY_TABLE__URL", f"sqlite:///{site.folder / 'team.db'}")
    elsewhere = ("--store-url", f"sqlite:///{site.folder / 'new.db'}")
    assert site("policy", "delete", "order.*", "--yes", *elsewhere).code == 0
    assert site("policy", "delete", "order.*", "--yes", *elsewhere).code == 3


def test_what_commands_change_is_in_the_audit_log_as_the_api_would_have_it(
    site: Replaying,
) -> None:
    assert site("user", "set", "ann", "--role", "admin").code == 0
    assert site("user", "set", "bob", "--role", "viewer").code == 0
    assert site("user", "set", "bob", "--role", "operator", "--keep-password").code == 0
    assert site("user", "delete", "bob").code == 0
    token = site.json("token", "create", "ci", "--role", "viewer", "--days", "7")
    assert site("token", "revoke", "ci").code == 0
    wanted = ("--max-retries", "4", "--return-to", "exchange", "--retry-expired")
    assert site("policy", "set", "order.*", *wanted).code == 0
    assert site("policy", "set", "order.*", "--max-retries", "5").code == 0
    assert site("policy", "delete", "order.*", "--yes").code == 0
    assert site("breakers", "force", "orders", "open").code == 0
    assert site("breakers", "release", "orders").code == 0
    silence = ("alerts", "silence", "BreakerOpen")
    assert site(*silence, "--for", "120m", "--reason", "deploy").code == 0
    assert site(*silence, "--end").code == 0
    whole = {"name": "order.*", "maxRetries": 4, "returnTo": "exchange", "retryExpired": True}
    assert told(site) == [
        ("users.set", {"name": "ann", "role": "admin", "password": True}, 200),
        ("users.set", {"name": "bob", "role": "viewer", "password": True}, 200),
        ("users.set", {"name": "bob", "role": "operator", "password": False}, 200),
        ("users.delete", {"name": "bob"}, 200),
        ("tokens.create", {"name": "ci", "role": "viewer", "days": 7, "id": token["id"]}, 200),
        ("tokens.revoke", {"id": token["id"]}, 200),
        ("policies.set", whole, 200),
        ("policies.set", {"name": "order.*", "maxRetries": 5}, 200),
        ("policies.delete", {"name": "order.*"}, 200),
        ("breakers.force", {"queue": "orders", "position": "open"}, 200),
        ("breakers.release", {"queue": "orders"}, 200),
        ("alerts.silence", {"name": "BreakerOpen", "for": "2h", "reason": "deploy"}, 200),
        ("alerts.hear", {"name": "BreakerOpen"}, 200),
    ]
    for entry in log(site):
        by = (entry.actor, entry.role, entry.address)
        assert by == (actor(), Role.ADMIN, socket.gethostname())
    assert actor().startswith("cli:")
    written = "\n".join(site.rows())
    assert PASSWORD not in written
    assert token["token"] not in written


def test_what_commands_do_to_replays_is_in_the_audit_log(vhost: Vhost, site: Replaying) -> None:
    asyncio.run(declare_topology(vhost.url, topology("quorum")))
    asyncio.run(declare(vhost.url, "orders", "quorum"))
    site.add(dead("a"), dead("b"))
    detached = ("replay", "--yes", "--detach", "--output", "json", "--queue")
    first = site(*detached, "orders").document["id"]
    assert site("replays", "pause", first, "--reason", "lunch").code == 0
    assert site("replays", "resume", first, "--detach").code == 0
    assert site("replays", "pause", first).code == 0
    assert site("replays", "resume", first).code == 0
    assert sorted(site.taken()) == ["a", "b"]
    site.add(dead("c"))
    second = site(*detached, "orders").document["id"]
    assert site("replays", "cancel", second, "--reason", "enough").code == 0
    assert site("replays", "pause", second).code != 0
    assert told(site) == [
        ("replays.pause", {"replay": first, "reason": "lunch"}, 200),
        ("replays.resume", {"replay": first}, 200),
        ("replays.pause", {"replay": first, "reason": ""}, 200),
        ("replays.resume", {"replay": first}, 200),
        ("replays.cancel", {"replay": second, "reason": "enough"}, 200),
        ("replays.pause", {"replay": second, "reason": ""}, 409),
    ]


def test_who_imports_letters_is_in_the_audit_log_with_their_number(site: Replaying) -> None:
    site.add(dead("a"), dead("b"))
    file = site.folder / "letters.jsonl"
    assert site("letters", "export", "--to", str(file)).code == 0
    file.write_bytes(file.read_bytes().replace(b'"id":"0', b'"id":"1', 1))
    assert site("letters", "import", str(file)).code == 0
    assert site("letters", "import", str(site.folder / "missing.jsonl")).code == 1
    assert told(site) == [
        ("letters.import", {"file": str(file), "letters": 2, "added": 1}, 200),
    ]


def test_what_is_refused_or_not_there_is_in_the_audit_log_with_the_status_of_the_api(
    site: Replaying,
) -> None:
    assert site("user", "set", "ann", "--role", "admin").code == 0
    assert site("user", "delete", "ann").code == 1  # the last admin
    assert site("user", "delete", "bob").code == 3
    assert site("user", "set", "bob", "--role", "viewer", "--keep-password").code == 3
    assert site("policy", "delete", "order.*", "--yes").code == 3
    assert [(action, outcome) for action, _, outcome in told(site)] == [
        ("users.set", 200),
        ("users.delete", 409),
        ("users.delete", 404),
        ("users.set", 404),
        ("policies.delete", 404),
    ]


def test_what_is_wrong_use_or_only_looks_is_not_in_the_audit_log(site: Replaying) -> None:
    site("user", "set", "ann", "--role", "admin")
    for words in (
        ["user", "list"],
        ["token", "list"],
        ["token", "revoke", "nobody's"],
        ["policy", "list"],
        ["policy", "set", "x" * 101, "--max-retries", "1"],
        ["policy", "delete", "order.*"],  # and nobody to ask
        ["breakers", "list"],
        ["breakers", "release", "orders"],
        ["alerts", "list"],
        ["alerts", "silence", "NoSuchAlert"],
    ):
        site(*words)
    assert [action for action, _, _ in told(site)] == ["users.set"]


SET = ("user", "set", "ann", "--role", "admin")


async def test_what_cannot_be_noted_is_not_begun(site: Replaying) -> None:
    async with failing(site.store_url, "INSERT", "redrive_audit"):
        ran = await asyncio.to_thread(site, *SET)
    assert ran.code == 1
    assert (await asyncio.to_thread(site, "user", "list")).code == 3


async def test_the_entry_is_there_before_the_change_begins(site: Replaying) -> None:
    async with failing(site.store_url, "INSERT", "redrive_user"):
        ran = await asyncio.to_thread(site, *SET)
    assert ran.code == 1
    (entry,) = await asyncio.to_thread(told, site)
    assert entry == ("users.set", {"name": "ann", "role": "admin", "password": True}, 503)


async def test_a_change_whose_outcome_is_not_noted_is_done_and_that_is_said(
    site: Replaying,
) -> None:
    async with failing(site.store_url, "UPDATE", "redrive_audit"):
        ran = await asyncio.to_thread(site, *SET)
    assert (ran.code, ran.out) == (0, "added ann: admin\n")
    assert "entry 1 of the audit log has no outcome: " in ran.err
    assert [outcome for _, _, outcome in await asyncio.to_thread(told, site)] == [None]
