"""Secrets stay where they were put: commands, what they write, and what they say when they fail.

A broker user and a database role with planted passwords, sinks with planted URLs. Every command
that reads settings is run, well and in failure; nothing of a secret may be in what it prints or
leaves behind. tests/unit/test_settings_secrets.py does the same for settings that are wrong, and
tests/acceptance/test_secrets_of_processes.py for `redrive run` and the API.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from redrive.broker.processes import free_ports
from tests.services.commands import Ran, Redrive
from tests.services.letter_commands import nothing_of_this_machine
from tests.services.letters import failed, letter_store
from tests.services.planting import Garden, sinks
from tests.services.plugin import Vhost
from tests.services.postgres import PrivatePostgres
from tests.services.receiving import Receiver


@pytest.fixture(scope="module")
def garden() -> Garden:
    return Garden()


@pytest.fixture(scope="module")
def guarded_store(garden: Garden) -> Iterator[str]:
    """A PostgreSQL that asks for a password: `host:port/database` of a store in it."""
    with PrivatePostgres() as server:
        rules = server.folder / "data" / "pg_hba.conf"
        asks = "host all keeper 127.0.0.1/32 scram-sha-256\n"
        rules.write_text(asks + rules.read_text())
        database = server.create_database()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            password = sql.Literal(garden["store"].value)
            connection.execute(
                sql.SQL("CREATE ROLE keeper SUPERUSER LOGIN PASSWORD {}").format(password)
            )
            connection.execute("SELECT pg_reload_conf()")
        yield f"127.0.0.1:{server.port}/{database}"


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


# Nothing here ends with 2: all of it is understood, and most of it is done.
COMMANDS = """
config show
db upgrade
topology plan
topology apply
topology check
topology export
policy set order.* --max-retries 2
policy list
doctor
letters list
letters export
letters show LETTER
groups list
stats
stats --ledger
classify LETTER
breakers list
replay --queue orders --dry-run
replay --queue orders --yes
replays list
peek dlq-queue
sweep dlq-queue --dry-run
move dlq-queue elsewhere
archive list
alerts list
alerts test Always
export prometheus-rules
export grafana
token create ci --role viewer
token list
token revoke ci
user list
letters discard --queue orders --yes
policy delete order.* --yes
topology delete --yes
"""


def test_no_command_shows_or_writes_a_secret(
    redrive: Redrive, planted: Planted, tmp_path: Path, receiver: Receiver
) -> None:
    garden = planted.garden
    assert redrive("db", "upgrade").code == 0

    async def add() -> str:
        async with letter_store(planted.urls()["store.url"]) as store:
            one, _ = await store.letters.add([failed("no such currency"), failed("too slow")])
            return one.letter.id

    letter = asyncio.run(add())
    ran: dict[str, Ran] = {}
    for words in COMMANDS.replace("LETTER", letter).strip().splitlines():
        for output in ("table", "json"):
            ran[f"{words} {output}"] = redrive(*words.split(), "--output", output)
    assert [f"{words}: {each.err}" for words, each in ran.items() if each.code == 2] == []
    leaked = {words: garden.found_in(each.out + each.err) for words, each in ran.items()}
    assert {words: names for words, names in leaked.items() if names} == {}
    assert "****" in ran["config show table"].out
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
