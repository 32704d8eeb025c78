"""Alerts by the API and by the command line: seen, silenced, heard again, tested."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.domain.access import Role
from redrive.domain.alerting import DEFAULT_RULES
from redrive.store.store import Store
from tests.services.alerting import desk
from tests.services.letter_commands import LetterCommands, nothing_of_this_machine
from tests.services.letters import failed
from tests.services.receiving import Receiver
from tests.services.serving import V1, Server


@pytest.fixture
def redrive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LetterCommands:
    nothing_of_this_machine(tmp_path, monkeypatch)
    return LetterCommands(capsys, tmp_path)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    made.up()
    yield made
    made.down()


async def test_the_api_lists_alerts_those_that_fire_first(server: Server) -> None:
    await server.add(failed("boom"))
    await desk(server.store, DEFAULT_RULES).watch.round()
    async with server.client() as client:
        found = (await client.get(f"{V1}/alerts")).json()
    assert {each["name"] for each in found["items"]} == {rule.name for rule in DEFAULT_RULES}
    first = found["items"][0]
    assert (first["name"], first["phase"], first["for"]) == ("OldestPendingTooOld", "firing", "0s")
    assert found["waiting"] == [{"sink": "log", "messages": 1, "error": None}]


async def test_an_operator_silences_an_alert_and_ends_that_and_the_log_tells(
    server: Server,
) -> None:
    async with await server.client_as(Role.OPERATOR) as client:
        silence = {"name": "BreakerOpen", "for": "2h", "reason": "deploy"}
        answer = await client.post(f"{V1}/alerts/silence", json=silence)
        assert answer.status_code == 200
        assert answer.json()["silence"]["reason"] == "deploy"
        heard = await client.post(f"{V1}/alerts/hear", json={"name": "BreakerOpen"})
        assert heard.json()["silence"] is None
        unknown = await client.post(f"{V1}/alerts/silence", json={"name": "No", "for": "2h"})
        assert unknown.status_code == 404
        wrong = await client.post(f"{V1}/alerts/silence", json={**silence, "for": "soon"})
        assert wrong.status_code == 422
        actions = (await client.get(f"{V1}/audit")).json()["items"]
    assert [each["action"] for each in actions] == ["alerts.hear", "alerts.silence"]
    async with await server.client_as(Role.VIEWER) as client:
        refused = await client.post(f"{V1}/alerts/silence", json=silence)
        assert refused.status_code == 403


def test_the_command_line_lists_and_silences_alerts(redrive: LetterCommands) -> None:
    async def judge(store: Store) -> None:
        await store.letters.add([failed("boom")])
        await desk(store, DEFAULT_RULES).watch.round()

    redrive.with_store(judge)
    code, out, err = redrive("alerts", "list")
    assert code == 0
    assert "OldestPendingTooOld" in out.splitlines()[1]
    assert "firing" in out.splitlines()[1]
    assert "sink log has not taken 1 message yet" in err
    code, out, _ = redrive("alerts", "silence", "OldestPendingTooOld", "--for", "3h")
    assert (code, "firing, silenced" in out) == (0, True)
    code, _, err = redrive("alerts", "silence", "Nothing")
    assert (code, "there is no alert 'Nothing'" in err) == (2, True)
    assert redrive("alerts", "silence", "OldestPendingTooOld", "--end")[0] == 0
    assert redrive("alerts", "silence", "OldestPendingTooOld", "--end")[0] == 3


def test_a_test_message_goes_to_every_sink_and_says_which_failed(
    redrive: LetterCommands, receiver: Receiver
) -> None:
    redrive.add(failed("boom"))
    (redrive.folder / "redrive.toml").write_text(
        f'[[alert_sink]]\nname = "up"\nkind = "webhook"\nurl = "{receiver.url}"\n'
        '[[alert_sink]]\nname = "down"\nkind = "webhook"\nurl = "http://127.0.0.1:9/"\n'
    )
    code, out, _ = redrive("alerts", "test", "BreakerOpen", "--output", "json")
    assert code == 1
    outcomes = {each["sink"]: each["error"] for each in json.loads(out)["items"]}
    assert outcomes == {"log": None, "up": None, "down": "connection refused"}
    assert receiver.told == [("BreakerOpen", "test")]


def test_rules_and_the_dashboard_are_written_without_a_store(redrive: LetterCommands) -> None:
    (redrive.folder / "redrive.toml").write_text(
        '[[alert]]\nname = "Own"\ncondition = "dlq_backlog > 5"\n'
    )
    code, out, _ = redrive("export", "prometheus-rules")
    assert code == 0
    assert 'alert: "Own"' in out
    assert redrive.json("export", "grafana")["title"] == "Redrive"
    assert not (redrive.folder / "redrive.db").exists()


def _read_until(terminal: int, *words: bytes) -> bytes:
    """What a terminal shows, until it has shown all words; without any, until nobody writes to it
    any more."""
    text, deadline = b"", time.monotonic() + 60
    while not words or not all(word in text for word in words):
        left = max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([terminal], [], [], left)
        assert ready, f"it went on for a minute, and showed {text[-1000:]!r}"
        try:
            text += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    return text


def test_watching_on_a_terminal_is_a_live_view(redrive: LetterCommands) -> None:
    redrive.add(failed("Order 1 not found"))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "redrive", "stats", "--watch", "--store-url", redrive.url]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment
    ) as watching:
        os.close(theirs)
        try:
            text = _read_until(ours, b"backlog", b"Order")
            watching.send_signal(signal.SIGINT)
            _read_until(ours)
            _, err = watching.communicate(timeout=30)
        finally:
            watching.kill()
    os.close(ours)
    assert (watching.returncode, err) == (130, b"")
    assert b"A SECOND" in text
