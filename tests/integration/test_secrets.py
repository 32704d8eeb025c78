"""Secrets stay where they were put: commands, what they write, and what they say when they fail.

A broker user, a database role and a user of Redrive with planted passwords, sinks with planted
URLs. Every command that reads settings is run and does what it is for, and some fail; nothing of a
secret may be in what they print or leave behind. tests/unit/test_settings_secrets.py does the same
for settings that are wrong, and tests/acceptance/test_secrets_of_processes.py for `redrive run` and
the API.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from redrive.broker.processes import free_ports
from redrive.domain.access import LEAST_PASSWORD, MOST_PASSWORD
from redrive.domain.filters import Filters
from redrive.domain.letter import Arrival
from redrive.domain.lifecycle import State
from redrive.domain.replay import ReplayOrder
from redrive.store.store import Store
from redrive.work.cold_storage import ColdStorage
from redrive.work.retention import Retention
from scripts.commands_page import all_commands
from tests.services.collecting import dead_messages
from tests.services.commands import Ran, Redrive
from tests.services.foreign import Foreign
from tests.services.letter_commands import nothing_of_this_machine
from tests.services.letters import failed, letter_store
from tests.services.moving import publish
from tests.services.planting import Garden, sinks
from tests.services.plugin import Vhost
from tests.services.postgres import PrivatePostgres
from tests.services.receiving import Receiver
from tests.services.retiring import PERIODS, letter_in
from tests.services.sending import new_id


@pytest.fixture(scope="module")
def garden() -> Garden:
    return Garden()


@pytest.fixture(scope="module")
def guarded(garden: Garden) -> Iterator[PrivatePostgres]:
    """A PostgreSQL that asks `keeper` for a password."""
    with PrivatePostgres() as server:
        rules = server.folder / "data" / "pg_hba.conf"
        asks = "host all keeper 127.0.0.1/32 scram-sha-256\n"
        rules.write_text(asks + rules.read_text())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            password = sql.Literal(garden["store"].value)
            connection.execute(
                sql.SQL("CREATE ROLE keeper SUPERUSER LOGIN PASSWORD {}").format(password)
            )
            connection.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def guarded_store(guarded: PrivatePostgres) -> str:
    """`host:port/database` of an empty database in it."""
    return f"127.0.0.1:{guarded.port}/{guarded.create_database()}"


@pytest.fixture
def broker(vhost: Vhost, garden: Garden) -> Iterator[str]:
    """`host:port/vhost` of a broker on which the user `mover` has the planted password."""
    user = {"password": garden["broker"].value, "tags": "administrator"}
    vhost.node.api("PUT", "users/mover", user)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    vhost.node.api("PUT", f"permissions/{quote(vhost.name, safe='')}/mover", everything)
    yield vhost.url.rpartition("@")[2]
    vhost.node.api("DELETE", "users/mover")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver(status=403)
    receiver.up()
    yield receiver
    receiver.down()


@dataclass(frozen=True)
class Planted:
    """The settings of these tests, with one thing wrong if told."""

    garden: Garden
    broker: str
    management: str
    store: str
    sinks: str

    def urls(self) -> dict[str, str]:
        of = self.garden
        return {
            "broker.url": f"amqp://mover:{of['broker'].in_url}@{self.broker}",
            "broker.management_url": f"http://mover:{of['broker'].in_url}@{self.management}",
            "store.url": f"postgresql://keeper:{of['store'].in_url}@{self.store}",
        }

    def toml(self, **wrong: str) -> str:
        urls = self.urls() | {key.replace("__", "."): value for key, value in wrong.items()}
        return (
            f"[broker]\nurl = {json.dumps(urls['broker.url'])}\n"
            f"management_url = {json.dumps(urls['broker.management_url'])}\n"
            f"[store]\nurl = {json.dumps(urls['store.url'])}\n"
            f'[topology]\nqueue_type = "classic"\n{self.sinks}'
        )


@pytest.fixture
def planted(
    garden: Garden, broker: str, vhost: Vhost, guarded_store: str, receiver: Receiver
) -> Planted:
    (nobody,) = free_ports(1)
    return Planted(
        garden,
        broker,
        vhost.management_url.removeprefix("http://"),
        guarded_store,
        sinks(garden, f"127.0.0.1:{receiver.port}", f"127.0.0.1:{nobody}"),
    )


@pytest.fixture
def redrive(
    planted: Planted,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Redrive:
    nothing_of_this_machine(tmp_path, monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Redrive(tmp_path, capsys, planted.toml())


COMMANDS = """
config show
db upgrade
topology plan
topology apply
topology check
topology export
topology enroll orders
topology unenroll orders
policy set order.* --max-retries 2
policy list
policy delete order.* --yes
doctor
letters list
letters show LETTER
letters edit LETTER --set-header tenant=acme
letters archive LETTER
letters restore LETTER
letters resolve LETTER
letters export --to letters.jsonl
letters import letters.jsonl
letters discard --queue waste --yes
groups list
groups show GROUP
stats
stats --ledger
classify LETTER
breakers force orders open
breakers list
breakers release orders
replay --queue orders --dry-run
replay --queue orders --yes --ignore-health
replays list
replays show REPLAY
replays pause REPLAY
replays resume REPLAY --ignore-health
replays cancel OTHER
peek dlq-queue
sweep dlq-queue --dry-run
move dlq-queue elsewhere
archive list
archive verify
archive restore FILE
alerts list
alerts test Always
alerts silence Always
alerts silence Always --end
export prometheus-rules
export grafana
token create ci --role viewer
token create monitoring --role viewer
token list
user set ops --role viewer
user list
user delete ops
token revoke ci
topology delete --yes
"""
NOT_HERE = {"redrive run", "redrive demo"}
"""The first has a test of its own; the second reads no settings, and its broker is its own."""
ENDS = {"doctor": 1, "alerts test Always": 1}
"""What does not end with 0: it finds something, and a sink takes nothing."""


def _command(words: str) -> str:
    """The command that these words run."""
    first = ["redrive", *words.split()]
    return next(name for n in (3, 2) if (name := " ".join(first[:n])) in all_commands())


def test_no_command_is_left_out() -> None:
    listed = {_command(words) for words in COMMANDS.strip().splitlines()}
    assert listed == set(all_commands()) - NOT_HERE


async def _letters(store: Store, vhost: str) -> dict[str, str]:
    """Letters and replays, by what COMMANDS calls them."""

    def here(queue: str) -> Arrival:
        one = failed("no such currency", queue=queue)
        letter, envelope = replace(one.letter, vhost=vhost), replace(one.envelope, vhost=vhost)
        return replace(one, letter=letter, envelope=envelope)

    one, *_ = await store.letters.add(
        [here(each) for each in ("orders", "orders", "bills", "waste")]
    )
    names = {"LETTER": one.letter.id, "GROUP": one.letter.fingerprint}
    order = ReplayOrder(actor="me", described="bills")
    for name in ("REPLAY", "OTHER"):
        names[name] = new_id()
        assert await store.replays.create(names[name], vhost, Filters(queue="bills"), order)
    return names


async def _retired(store: Store, archive: Path) -> str:
    """A file of cold storage, with a letter that is in the store no more."""
    storage = ColdStorage(archive)
    await letter_in(store, State.ARCHIVED)
    store.clock.ahead = PERIODS[State.ARCHIVED] * 10
    await Retention(store.expiry, storage, PERIODS).round()
    store.clock.ahead = timedelta()
    (name,) = storage.names()
    return name


async def _fill(planted: Planted, vhost: Vhost, archive: Path) -> dict[str, str]:
    """Something for every command to do; the names of it."""
    await publish(vhost.url, dead_messages(["one", "two", "three"], "dlq-queue"))
    async with letter_store(planted.urls()["store.url"]) as store:
        file = await _retired(store, archive)
        return {"FILE": file, **await _letters(store, vhost.name)}


@pytest.fixture
def ran(
    redrive: Redrive,
    planted: Planted,
    vhost: Vhost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> dict[str, Ran]:
    """Every command as it ended, in one output."""
    for line in ("db upgrade", "topology apply"):
        assert redrive(*line.split()).code == 0
    for queue in ("orders", "bills", "elsewhere"):
        Foreign(vhost).declare(queue, "classic")
    names = asyncio.run(_fill(planted, vhost, tmp_path / "redrive" / "archive"))
    password = planted.garden["password of a user"].value
    ran = {}
    for line in COMMANDS.strip().splitlines():
        _typed(monkeypatch, password)
        words = [names.get(word, word) for word in line.split()]
        ran[line] = redrive(*words, "--output", request.param)
    return ran


def _typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What a command reads that reads stdin."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))


@pytest.mark.parametrize("ran", ["table", "json"], indirect=True)
def test_no_command_shows_or_writes_a_secret(
    ran: dict[str, Ran], planted: Planted, tmp_path: Path, receiver: Receiver
) -> None:
    garden = planted.garden
    ended = {words: (each.code, each.err) for words, each in ran.items()}
    assert {words: end for words, end in ended.items() if end[0] != ENDS.get(words, 0)} == {}
    leaked = {words: garden.found_in(each.out + each.err) for words, each in ran.items()}
    assert {words: names for words, names in leaked.items() if names} == {}
    assert "****" in ran["config show"].out
    # What the sinks were told, and what is left in files, holds nothing that is another's.
    assert receiver.received
    for each in receiver.received:
        assert garden.found_in(each.body + json.dumps(each.headers).encode()) == []
    settings = frozenset({tmp_path / "redrive.toml"})
    assert garden.found_in_files(tmp_path, but=settings) == []
    assert garden.found_in(_everything_in(planted)) == []


def _everything_in(planted: Planted) -> str:
    """Every row of every table of the store, as text."""
    texts = []
    with psycopg.connect(planted.urls()["store.url"]) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in tables.fetchall():
            query = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(table))
            texts += [row for (row,) in connection.execute(query).fetchall()]
    assert texts
    return "\n".join(texts)


def _wrong(planted: Planted) -> dict[str, dict[str, str]]:
    """Ways to be refused, with planted passwords that are not the right ones too."""
    other = planted.garden["wrong password"].in_url
    right = planted.garden["broker"].in_url
    (nobody,) = free_ports(1)
    return {
        "a broker that is not there": {
            "broker__url": f"amqp://mover:{right}@127.0.0.1:{nobody}/",
        },
        "a broker of no such name": {"broker__url": f"amqp://mover:{right}@no.such.invalid/"},
        "a wrong password for the broker": {
            "broker__url": f"amqp://mover:{other}@{planted.broker}",
        },
        "a vhost that is not there": {
            "broker__url": f"amqp://mover:{right}@{planted.broker.partition('/')[0]}/nowhere",
        },
        "an option that is none": {
            "broker__url": f"amqp://mover:{right}@{planted.broker}?password={other}",
        },
        "a management API that is not there": {
            "broker__management_url": f"http://mover:{right}@127.0.0.1:{nobody}",
        },
        "a wrong password for the management API": {
            "broker__management_url": f"http://mover:{other}@{planted.management}",
        },
        "a database that does not answer": {
            "store__url": f"postgresql://keeper:{right}@127.0.0.1:{nobody}/redrive",
        },
        "a wrong password for the database": {
            "store__url": f"postgresql://keeper:{other}@{planted.store}",
        },
        "a database that is not there": {
            "store__url": planted.urls()["store.url"].rpartition("/")[0] + "/nowhere",
        },
        "a database whose password is misspelt": {
            "store__url": planted.urls()["store.url"] + f"?pasword={other}",
        },
    }


def test_no_failure_shows_a_secret(
    redrive: Redrive, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    garden = planted.garden
    failures = 0
    for why, wrong in _wrong(planted).items():
        for words in (("topology", "check"), ("doctor",), ("stats",), ("db", "upgrade")):
            ran = redrive(*words, settings=planted.toml(**wrong))
            failures += ran.code != 0
            assert garden.found_in(ran.out + ran.err) == [], (why, words)
        # The same from the environment, where the file is right.
        for key, value in wrong.items():
            monkeypatch.setenv(f"REDRIVE_{key.upper()}", value)
            ran = redrive("doctor", "--output", "json")
            assert garden.found_in(ran.out + ran.err) == [], why
            monkeypatch.delenv(f"REDRIVE_{key.upper()}")
    assert failures >= len(_wrong(planted)), "each of these fails at least one command"
    assert not [name for name in os.environ if name.startswith("REDRIVE_")]


def test_no_password_that_is_not_taken_is_shown(
    redrive: Redrive, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = planted.garden["password of a user"]
    away = planted.toml(**_wrong(planted)["a database that does not answer"])
    for password, settings, code in (
        (secret.value * MOST_PASSWORD, planted.toml(), 2),
        (secret.tail[: LEAST_PASSWORD - 1], planted.toml(), 2),
        (secret.value, away, 1),
    ):
        _typed(monkeypatch, password)
        ran = redrive("user", "set", "ops", "--role", "viewer", settings=settings)
        assert ran.code == code
        assert password not in ran.out + ran.err
        assert planted.garden.found_in(ran.out + ran.err) == []
