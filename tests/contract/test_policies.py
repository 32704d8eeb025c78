"""The policies of the database: one suite that SQLite and PostgreSQL both pass, for real."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
import structlog
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from redrive.cli import main
from redrive.domain.policy import PolicyBook
from redrive.errors import (
    PolicyRefused,
    SchemaMissing,
    SchemaNewer,
    SchemaOlder,
    SettingsError,
    StoreError,
    StoreReadOnly,
    StoreUnreachable,
)
from redrive.settings import PolicySettings
from redrive.store import engine
from redrive.store.engine import open_database
from redrive.store.policies import PolicyChange, PolicyTable, open_policy_table
from redrive.store.policy_files import PolicyFiles
from redrive.store.policy_watch import PolicyWatch
from redrive.store.schema import REVISION, VERSION_TABLE, metadata
from redrive.store.upgrade import open_store, upgrade
from tests.services.commands import Ran
from tests.services.empty_stores import prepare
from tests.services.eventually import eventually_async
from tests.services.postgres import PrivatePostgres

SEED_TABLE = """
CREATE TABLE dlq_event_config (id int NOT NULL PRIMARY KEY, name varchar(100), max_retries integer)
"""
WITHIN = 5.0
"""Seconds in which a change must have reached whoever runs."""


@dataclass(frozen=True)
class Place:
    """A database of one kind, at first without a table, and a way around Redrive into it."""

    url: str
    read_only_url: str

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run SQL as another program would; the rows of the last statement."""
        rows: list[tuple[Any, ...]] = []
        with self._connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
            connection.commit()
        return rows

    def names(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT id, name, max_retries FROM dlq_event_config ORDER BY id")

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        if self.is_sqlite:
            Path(self.url.removeprefix("sqlite:///")).parent.mkdir(exist_ok=True)
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
                yield connection
        else:
            with psycopg.connect(self.url) as connection:
                yield connection


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/a store/redrive.db"
        yield Place(url, f"{url}?mode=ro")
        return
    url = request.getfixturevalue("database")
    role = f"reader_{secrets.token_hex(4)}"
    place = Place(url, url.replace("//redrive@", f"//{role}@"))
    place.execute(f"CREATE ROLE {role} LOGIN")
    yield place
    place.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def prepared(place: Place) -> Place:
    """With Redrive's tables, as `redrive db upgrade` makes them."""
    if place.is_sqlite:
        Path(place.url.removeprefix("sqlite:///")).parent.mkdir(exist_ok=True)
    asyncio.run(prepare(place.url))
    return place


async def _upgrade(url: str) -> None:
    store = open_database(url, ours=True)
    try:
        await upgrade(store)
    finally:
        await store.close()


@pytest.fixture
def store(place: Place) -> Place:
    return prepared(place)


@asynccontextmanager
async def opened(place: Place, elsewhere: str | None = None) -> AsyncIterator[PolicyTable]:
    table = await open_policy_table(place.url, elsewhere)
    try:
        yield table
    finally:
        await table.close()


async def book_of(table: PolicyTable) -> PolicyBook:
    return PolicyBook(await table.read())


# Set, list, delete


async def test_a_policy_is_added_changed_read_and_deleted(store: Place) -> None:
    async with opened(store) as table:
        assert await table.set(PolicyChange(name="order.*", max_retries=4)) == "added"
        assert await table.set(PolicyChange(name="it's %s \" ü", max_retries=0)) == "added"
        assert await table.set(PolicyChange(name="order.*", max_retries=5)) == "changed"
        assert store.names() == [(1, "order.*", 5), (2, "it's %s \" ü", 0)]
        book = await book_of(table)
        policy = book.find("order.created")
        assert policy is not None
        assert (policy.max_retries, policy.return_to, policy.retry_expired) == (5, "queue", False)
        assert await table.delete("order.*") == 1
        assert await table.delete("order.*") == 0
        assert store.names() == [(2, "it's %s \" ü", 0)]


async def test_what_redrive_adds_stays_as_it_was_unless_it_is_given(store: Place) -> None:
    async def current() -> tuple[int, str, bool]:
        policy = (await book_of(table)).find("a")
        assert policy is not None
        return policy.max_retries, policy.return_to, policy.retry_expired

    async with opened(store) as table:
        await table.set(
            PolicyChange(name="a", max_retries=1, return_to="exchange", retry_expired=True)
        )
        assert await current() == (1, "exchange", True)
        await table.set(PolicyChange(name="a", max_retries=2))
        assert await current() == (2, "exchange", True)
        await table.set(PolicyChange(name="a", max_retries=2, return_to="queue"))
        assert await current() == (2, "queue", True)
        await table.delete("a")
        await table.set(PolicyChange(name="a", max_retries=2))
        assert await current() == (2, "queue", False)


async def test_what_is_left_of_a_policy_deleted_by_others_does_not_come_back(store: Place) -> None:
    async with opened(store) as table:
        await table.set(PolicyChange(name="a", max_retries=1, retry_expired=True))
        store.execute("DELETE FROM dlq_event_config")
        assert await table.read() == []
        await table.set(PolicyChange(name="a", max_retries=1))
        (row,) = await table.read()
        assert not row.retry_expired


@pytest.mark.parametrize(("name", "number"), [("x" * 101, 1), ("a", -1), ("", 1), ("a\0", 1)])
async def test_what_the_table_cannot_hold_is_refused_before_it_is_tried(
    store: Place, name: str, number: int
) -> None:
    async with opened(store) as table:
        with pytest.raises(PolicyRefused):
            await table.set(PolicyChange(name=name, max_retries=number))
    assert store.names() == []


async def test_where_the_highest_id_is_taken_that_is_said(store: Place) -> None:
    store.execute("INSERT INTO dlq_event_config VALUES (2147483647, 'last', 1)")
    async with opened(store) as table:
        with pytest.raises(PolicyRefused, match="highest id"):
            await table.set(PolicyChange(name="a", max_retries=1))
        assert await table.set(PolicyChange(name="last", max_retries=2)) == "changed"


async def test_twenty_connections_that_add_at_once_get_twenty_ids(store: Place) -> None:
    async def add(number: int) -> None:
        async with opened(store) as table:
            await table.set(PolicyChange(name=f"n.{number}", max_retries=number))

    await asyncio.gather(*(add(number) for number in range(20)))
    rows = store.names()
    assert [id_ for id_, _, _ in rows] == list(range(1, 21))
    assert {name: number for _, name, number in rows} == {f"n.{n}": n for n in range(20)}


async def test_connections_that_set_one_new_name_at_once_make_one_row(store: Place) -> None:
    async def add(number: int) -> str:
        async with opened(store) as table:
            return await table.set(PolicyChange(name="same", max_retries=number))

    outcomes = await asyncio.gather(*(add(number) for number in range(10)))
    assert sorted(outcomes) == ["added"] + ["changed"] * 9
    assert len(store.names()) == 1


def test_processes_that_add_at_once_get_different_ids_also_on_a_new_store(
    place: Place, tmp_path: Path
) -> None:
    if not place.is_sqlite:  # PostgreSQL is upgraded only when asked
        prepared(place)
    processes = [
        subprocess.Popen(
            [*REDRIVE, "policy", "set", f"n.{number}", "--max-retries", "1"],
            env=environment(place, tmp_path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert said == [""] * 4
    assert [id_ for id_, _, _ in place.names()] == list(range(1, 5))


# A team's own table


async def test_a_table_that_was_there_is_used_as_it_is(place: Place) -> None:
    place.execute(
        SEED_TABLE,
        "INSERT INTO dlq_event_config VALUES (3, 'a', 1), (10, 'a', 2), (7, 'a', 3)",
        "INSERT INTO dlq_event_config VALUES (4, NULL, 1), (5, 'null', NULL), (6, 'neg', -2)",
        "INSERT INTO dlq_event_config VALUES (8, 'neg', 6), (9, 'neg', -3), (1, 'zero', 0)",
    )
    before = place.names()
    await _upgrade(place.url)
    assert place.names() == before
    async with opened(place) as table:
        book = await book_of(table)
        assert {
            key: policy.max_retries
            for key in ("a", "null", "neg", "zero")
            if (policy := book.find(key))
        } == {"a": 2, "null": 3, "neg": 6, "zero": 0}
        assert {problem.place for problem in book.problems} == {"id 6", "id 9"}

        await table.set(PolicyChange(name="a", max_retries=9))
        await table.set(PolicyChange(name="neg", max_retries=1))
        await table.set(PolicyChange(name="new", max_retries=1))
        rows = {id_: (name, number) for id_, name, number in place.names()}
        assert (rows[3], rows[7], rows[10]) == (("a", 1), ("a", 3), ("a", 9))
        assert (rows[8], rows[9], rows[11]) == (("neg", 6), ("neg", 1), ("new", 1))
        assert await table.delete("a") == 3
        assert len(place.names()) == len(before) - 2


async def test_a_table_with_other_columns_and_types_is_read_too(place: Place) -> None:
    place.execute(
        "CREATE TABLE dlq_event_config"
        " (id bigint PRIMARY KEY, owner text, name text, max_retries smallint)",
        "INSERT INTO dlq_event_config VALUES (5000000000, 'us', 'a', 2)",
    )
    await _upgrade(place.url)
    async with opened(place) as table:
        policy = (await book_of(table)).find("a")
        assert policy is not None
        assert policy.max_retries == 2


@pytest.fixture
def own_store(tmp_path: Path) -> Place:
    """A store apart from the policy table."""
    url = f"sqlite:///{tmp_path}/own/redrive.db"
    return Place(url, url)


async def test_a_table_in_another_database_is_read_and_written_there_and_nothing_else_is(
    place: Place, own_store: Place
) -> None:
    place.execute(SEED_TABLE, "INSERT INTO dlq_event_config VALUES (41, 'a', 1)")
    async with opened(own_store, place.url) as table:
        await table.set(PolicyChange(name="a", max_retries=2, retry_expired=True))
        await table.set(PolicyChange(name="b", max_retries=3))
        assert place.names() == [(41, "a", 2), (42, "b", 3)]
        assert {row.name: row.retry_expired for row in await table.read()} == {
            "a": True,
            "b": False,
        }
        assert await table.delete("a") == 1
    assert own_store.names() == []
    assert own_store.execute("SELECT * FROM redrive_policy") == []
    tables = (
        "SELECT name FROM sqlite_master"
        if place.is_sqlite
        else "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    )
    assert {name for (name,) in place.execute(tables)} <= {
        "dlq_event_config",
        "sqlite_autoindex_dlq_event_config_1",
    }
    if place.is_sqlite:
        assert place.execute("PRAGMA journal_mode") == [("delete",)]


async def test_without_the_right_to_write_policies_are_read_and_a_change_is_refused(
    place: Place, own_store: Place
) -> None:
    place.execute(SEED_TABLE, "INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
    if not place.is_sqlite:
        place.execute("GRANT SELECT ON dlq_event_config TO PUBLIC")
    async with opened(own_store, place.read_only_url) as table:
        assert (await book_of(table)).find("a") is not None
        with pytest.raises(StoreReadOnly) as refused:
            await table.set(PolicyChange(name="b", max_retries=1, retry_expired=True))
        with pytest.raises(StoreReadOnly):
            await table.delete("a")
    assert "\n" not in str(refused.value)
    assert place.names() == [(1, "a", 1)]
    assert own_store.execute("SELECT * FROM redrive_policy") == []


async def test_a_database_without_the_table_is_refused_with_what_is_expected_there(
    place: Place, own_store: Place
) -> None:
    place.execute("CREATE TABLE other (id int)")
    async with opened(own_store, place.url) as table:
        with pytest.raises(SchemaMissing) as missing:
            await table.read()
        with pytest.raises(SchemaMissing):
            await table.set(PolicyChange(name="a", max_retries=1))
    assert "dlq_event_config(id, name, max_retries)" in missing.value.remedy


async def test_a_table_in_a_database_that_is_not_there_is_unreachable_and_not_made(
    tmp_path: Path, own_store: Place
) -> None:
    gone = tmp_path / "gone.db"
    async with opened(own_store, f"sqlite:///{gone}") as table:
        with pytest.raises(StoreUnreachable):
            await table.read()
    assert not gone.exists()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://redrive:hunter2@127.0.0.1:1/db",
        "postgres://redrive:hunter2@127.0.0.1:1/db",
        "postgresql://u:hunter2@127.0.0.1:port/db",
        "postgresql://u:hunter2@127.0.0.1:1/db?no_such_option=1",
        "postgresql://u:hunter2%zz@127.0.0.1:1/db",
        "postgresql://u:hunter2 @127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?password=hunter2%zz",
        "postgresql://u:hunter2@[127.0.0.1/db",
        "sqlite:////proc/nowhere/redrive.db",
    ],
)
async def test_a_store_that_does_not_answer_is_one_error_without_a_password(url: str) -> None:
    with pytest.raises(StoreUnreachable) as raised:
        await open_policy_table(url)
    told: BaseException | None = raised.value
    while told is not None:
        assert "hunter2" not in str(told)
        told = told.__cause__
    assert "[store] url" in raised.value.remedy
    assert "[policy_table]" not in raised.value.remedy


@pytest.mark.parametrize(
    "gone",
    [
        "postgresql://redrive@127.0.0.1:1/x",
        "postgresql://%zz",
        "sqlite:////nowhere/policies.db",
    ],
)
async def test_of_a_table_elsewhere_that_cannot_be_reached_its_own_setting_is_named(
    tmp_path: Path, gone: str
) -> None:
    with pytest.raises(StoreUnreachable) as raised:
        async with opened(Place(f"sqlite:///{tmp_path}/redrive.db", ""), gone) as table:
            await table.read()
    assert "[policy_table] url" in raised.value.remedy
    assert "[store]" not in raised.value.remedy


async def test_a_file_that_is_no_database_is_an_error_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "redrive.db"
    file.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(StoreUnreachable, match="not a database"):
        await open_policy_table(f"sqlite:///{file}")


# Versions of the schema


async def test_the_migrations_lead_to_the_schema(store: Place) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        return list(compare_metadata(context, metadata))

    database = open_database(store.url, ours=True)
    async with database.reading() as connection:
        assert await connection.run_sync(differences) == []
    await database.close()


def test_the_newest_revision_is_the_one_that_the_code_asks_for() -> None:
    config = Config()
    config.set_main_option("script_location", "redrive.store:migrations")
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_current_head() == REVISION
    assert all(script.revision.isdecimal() for script in scripts.walk_revisions())


async def test_upgrades_at_once_wait_for_each_other(place: Place) -> None:
    await asyncio.gather(*(_upgrade(place.url) for _ in range(5)))
    assert place.execute(f"SELECT version_num FROM {VERSION_TABLE}") == [(REVISION,)]


async def test_upgrades_of_several_databases_at_once_do_not_mix(
    place: Place, database: str, tmp_path: Path
) -> None:
    others = [f"sqlite:///{tmp_path}/other-{number}.db" for number in range(4)]
    urls = [place.url, database, *others]
    await asyncio.gather(*(_upgrade(url) for url in dict.fromkeys(urls)))
    for url in urls:
        found = Place(url, url).execute(f"SELECT version_num FROM {VERSION_TABLE}")
        assert found == [(REVISION,)]


@pytest.mark.parametrize("revision", ["9999", "what"])
async def test_a_newer_schema_is_refused_and_not_touched(store: Place, revision: str) -> None:
    store.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
    with pytest.raises(SchemaNewer, match=f"has schema {revision}"):
        await open_policy_table(store.url)
    with pytest.raises(SchemaNewer):
        await _upgrade(store.url)
    assert store.execute(f"SELECT version_num FROM {VERSION_TABLE}") == [(revision,)]


async def test_postgresql_is_upgraded_only_when_asked(database: str) -> None:
    with pytest.raises(SchemaOlder) as refused:
        await open_policy_table(database)
    assert refused.value.remedy == "run 'redrive db upgrade'"
    await _upgrade(database)
    await (await open_policy_table(database)).close()


async def test_sqlite_is_upgraded_by_itself_after_a_copy(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/redrive.db", "")
    place.execute(SEED_TABLE, "INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
    store = open_database(place.url, ours=True)
    done = await upgrade(store)
    again = await upgrade(store)
    await store.close()
    assert (done.before, done.after, again.backup) == (None, REVISION, None)
    assert done.backup is not None
    assert stat.S_IMODE(done.backup.stat().st_mode) == 0o600
    copy = Place(f"sqlite:///{done.backup}", "")
    assert copy.names() == [(1, "a", 1)]
    assert copy.execute("SELECT name FROM sqlite_master WHERE name LIKE 'redrive%'") == []


# SQLite's own


async def test_a_sqlite_store_is_private_and_survives_a_power_cut(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        async with opened(Place(f"sqlite:///{tmp_path}/new/redrive.db", "")) as table:
            await table.set(PolicyChange(name="a", max_retries=1))
            modes = {
                file.name: stat.S_IMODE(file.stat().st_mode)
                for file in (tmp_path / "new").iterdir()
            }
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert set(modes) >= {"redrive.db", "redrive.db-wal", "redrive.db-shm"}
    assert set(modes.values()) == {0o600}


async def test_sqlite_is_set_up_to_lose_nothing(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/redrive.db")
    async with store.writing() as connection:
        found = {
            pragma: (await connection.exec_driver_sql(f"PRAGMA {pragma}")).scalar_one()
            for pragma in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    await store.close()
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 10_000,
    }


async def test_sqlite_needs_no_folder_for_temporary_files(tmp_path: Path) -> None:
    """A container whose files cannot be written has none, but for that of the store."""
    store = await open_store(f"sqlite:///{tmp_path}/redrive.db")
    async with store.writing() as connection:
        found = (await connection.exec_driver_sql("PRAGMA temp_store")).scalar_one()
    await store.close()
    assert found == 2  # in memory


async def test_a_writer_takes_the_database_before_it_reads(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/redrive.db")
    async with store.writing():
        other = sqlite3.connect(tmp_path / "redrive.db", timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.execute("SELECT * FROM dlq_event_config").fetchall()
        other.close()
    await store.close()


async def test_writers_of_one_file_take_turns_whichever_store_of_the_process_they_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    one, other = await open_store(url), await open_store(url)
    order: list[int] = []

    async def write(number: int) -> None:
        async with (one, other)[number % 2].writing() as connection:
            insert = f"INSERT INTO dlq_event_config VALUES ({number}, 'n{number}', 1)"
            await connection.exec_driver_sql(insert)
            order.append(number)

    await asyncio.gather(*map(write, range(20)))
    assert order == list(range(20))
    monkeypatch.setattr(engine, "_BUSY_SECONDS", 0.05)
    async with one.writing():
        with pytest.raises(StoreUnreachable, match="another change of this process takes long"):
            await write(20)
    await one.close()
    await other.close()


async def test_a_transaction_that_raises_leaves_nothing(store: Place) -> None:
    database = open_database(store.url, ours=True)
    insert = "INSERT INTO dlq_event_config VALUES (1, 'a', 1)"

    async def interrupted() -> None:
        async with database.writing() as connection:
            await connection.exec_driver_sql(insert)
            raise KeyError

    async def conflicting() -> None:
        async with database.writing() as connection:
            await connection.exec_driver_sql(insert)
            await connection.exec_driver_sql(insert)

    with pytest.raises(KeyError):
        await interrupted()
    with pytest.raises(StoreError):
        await conflicting()
    await database.close()
    assert store.names() == []


# The watch


@asynccontextmanager
async def watching(
    url: str, files: PolicyFiles | None = None, **options: Any
) -> AsyncIterator[PolicyWatch]:
    watch = PolicyWatch(lambda: open_policy_table(url), files or PolicyFiles((), None), **options)
    await watch.start()
    try:
        yield watch
    finally:
        await watch.stop()


def retries(watch: PolicyWatch, key: str) -> Callable[[], int | None]:
    def look() -> int | None:
        policy = watch.book.find(key)
        return policy.max_retries if policy else None

    return look


async def test_a_change_reaches_whoever_runs_within_five_seconds(store: Place) -> None:
    async with watching(store.url) as watch, opened(store) as table:
        assert watch.book.find("a") is None
        await table.set(PolicyChange(name="a", max_retries=7))
        await eventually_async(lambda: retries(watch, "a")() == 7, within=WITHIN)
        store.execute("UPDATE dlq_event_config SET max_retries = 8")
        await eventually_async(lambda: retries(watch, "a")() == 8, within=WITHIN)
        await table.delete("a")
        await eventually_async(lambda: watch.book.find("a") is None, within=WITHIN)


async def test_a_book_stays_the_same_object_while_nothing_changes(store: Place) -> None:
    reads = asyncio.Event()

    class Counted(PolicyTable):
        seen = 0

        async def read(self) -> list[Any]:
            self.seen += 1
            if self.seen > 3:
                reads.set()
            return await super().read()

    async def open_counted() -> PolicyTable:
        return Counted(await open_store(store.url))

    store.execute("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
    watch = PolicyWatch(open_counted, PolicyFiles((), None), every=timedelta(milliseconds=20))
    await watch.start()
    book = watch.book
    await asyncio.wait_for(reads.wait(), 60)
    assert watch.book is book
    await watch.stop()


async def test_a_watch_does_not_start_without_the_table_and_may_try_again(
    place: Place,
) -> None:
    unreachable = place.url + ("/x" if place.is_sqlite else "_gone")
    watch = PolicyWatch(lambda: open_policy_table(unreachable), PolicyFiles((), None))
    if place.is_sqlite:
        place.execute("SELECT 1")
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            await watch.start()
    await watch.stop()


async def test_start_and_stop_are_safe_to_call_twice(store: Place) -> None:
    async with watching(store.url) as watch:
        await watch.start()
        await watch.stop()
        await watch.stop()
        await watch.start()


def test_a_database_that_dies_leaves_the_last_policies_in_force_until_it_is_back(
    postgres: PrivatePostgres, database: str
) -> None:
    place = prepared(Place(database, database))
    place.execute("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")

    async def scenario(said: list[Any]) -> None:
        def events(name: str) -> list[Any]:
            return [entry for entry in said if entry["event"] == name]

        async with watching(database, every=timedelta(milliseconds=100)) as watch:
            await asyncio.to_thread(postgres.kill)
            await eventually_async(lambda: events("policies.unreachable"))
            assert retries(watch, "a")() == 1
            await asyncio.to_thread(postgres.restart)
            await asyncio.to_thread(place.execute, "UPDATE dlq_event_config SET max_retries = 2")
            await eventually_async(lambda: retries(watch, "a")() == 2)
            assert len(events("policies.unreachable")) == 1
            assert len(events("policies.reachable")) == 1

    try:
        with structlog.testing.capture_logs() as said:
            asyncio.run(scenario(said))
    finally:
        postgres.start()


def test_a_database_that_hangs_neither_stops_the_policies_nor_the_end_of_the_watch(
    postgres: PrivatePostgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = prepared(Place(database, database))
    place.execute("INSERT INTO dlq_event_config VALUES (1, 'a', 1)")
    monkeypatch.setattr("redrive.store.policy_watch._PATIENCE", 1.0)

    async def scenario(said: list[Any]) -> None:
        async with watching(database, every=timedelta(milliseconds=100)) as watch:
            postgres.pause()
            await eventually_async(
                lambda: [entry for entry in said if entry["event"] == "policies.unreachable"],
            )
            assert retries(watch, "a")() == 1
            async with asyncio.timeout(60):
                await watch.stop()

    try:
        with structlog.testing.capture_logs() as said:
            asyncio.run(scenario(said))
    finally:
        postgres.resume()


async def test_a_refused_row_is_reported_once(store: Place) -> None:
    store.execute("INSERT INTO dlq_event_config VALUES (5, 'a', -1)")
    with structlog.testing.capture_logs() as said:
        async with watching(store.url, every=timedelta(milliseconds=20)) as watch:
            store.execute("INSERT INTO dlq_event_config VALUES (6, 'b', 1)")
            await eventually_async(lambda: watch.book.find("b"))
    refused = [entry for entry in said if entry["event"] == "policies.refused"]
    assert [(entry["place"], entry["name"]) for entry in refused] == [("id 5", "a")]


async def test_a_properties_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "application.properties"
    file.write_text("redrive.policy.a=1\nredrive.policy.b=1\n")
    files = PolicyFiles([PolicySettings(name="b", max_retries=9)], file)
    url = f"sqlite:///{tmp_path}/redrive.db"
    with structlog.testing.capture_logs() as said:
        async with watching(url, files, every=timedelta(milliseconds=50)) as watch:
            assert (retries(watch, "a")(), retries(watch, "b")()) == (1, 9)
            file.write_text("redrive.policy.a=22\n")
            await eventually_async(lambda: retries(watch, "a")() == 22)
            file.unlink()
            await eventually_async(
                lambda: any(entry["event"] == "policies.unreachable" for entry in said),
            )
            assert retries(watch, "a")() == 22
            file.write_text("redrive.policy.a=333\n")
            await eventually_async(lambda: retries(watch, "a")() == 333)


async def test_a_watch_does_not_start_without_the_properties_file(tmp_path: Path) -> None:
    files = PolicyFiles((), tmp_path / "gone.properties")
    watch = PolicyWatch(lambda: open_policy_table(f"sqlite:///{tmp_path}/redrive.db"), files)
    with pytest.raises(SettingsError, match=r"gone\.properties: cannot be read: No such file"):
        await watch.start()


# The commands

REDRIVE = (sys.executable, "-m", "redrive")


def environment(place: Place, tmp_path: Path, **variables: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "REDRIVE_STORE__URL": place.url,
        **variables,
    }


@pytest.fixture
def redrive(
    place: Place,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Ran]:
    """The command, run in this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **variables: str) -> Ran:
        given = environment(place, tmp_path, **variables)
        capsys.readouterr()
        with patch.dict(os.environ, given, clear=True), pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    return run


def test_the_commands_set_list_and_delete(
    redrive: Callable[..., Ran], place: Place, tmp_path: Path
) -> None:
    if not place.is_sqlite:
        refused = redrive("policy", "list")
        assert refused.code == 1
        assert refused.err.count("\n") == 1
        assert "run 'redrive db upgrade'" in refused.err
    assert json.loads(redrive("db", "upgrade", "--output", "json").out)["after"] == REVISION
    done = redrive("policy", "set", "order.*", "--max-retries", "4", "--retry-expired")
    assert (done.code, done.out) == (0, "added order.*: max retries 4\n")
    done = redrive("policy", "set", "order.*", "--max-retries", "4", "--return-to", "exchange")
    assert (done.code, done.out) == (0, "changed order.*: max retries 4, return to exchange\n")
    place.execute("INSERT INTO dlq_event_config VALUES (2, 'bad', -1), (3, 'null', NULL)")
    (tmp_path / "redrive.toml").write_text('[[policy]]\nname = "order.*"\nmax_retries = 1\n')
    properties = tmp_path / "application.properties"
    properties.write_text("redrive.policy.p=2\nredrive.policy.q=x\n")
    variables = {"REDRIVE_POLICY_TABLE__PROPERTIES": str(properties)}

    listed = redrive("policy", "list", "--output", "json", **variables)
    assert listed.err == ""
    assert [
        (item["name"], item["maxRetries"], item["source"], item["state"])
        for item in json.loads(listed.out)["items"]
    ] == [
        ("order.*", 4, "database", "in force"),
        ("bad", -1, "database", "refused"),
        ("null", None, "database", "in force"),
        ("order.*", 1, "file", "shadowed"),
        ("p", 2, "properties", "in force"),
        ("q", None, "properties", "refused"),
    ]
    table = redrive("policy", "list", **variables).out
    assert "refused has max_retries -1, which is negative" in table
    assert "3 (default)" in table

    assert redrive("policy", "delete", "order.*").code == 2
    done = redrive("policy", "delete", "order.*", "--yes")
    assert (done.code, done.out) == (0, "deleted order.*: 1 row\n")
    assert redrive("policy", "delete", "order.*", "--yes").code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x" * 101, "--max-retries", "1"], "at most 100 characters"),
        (["a", "--max-retries", "-1"], "expected max retries from 0"),
        (["a"], "Missing option '--max-retries'"),
        (["a", "--max-retries", "1", "--return-to", "home"], "Invalid value for '--return-to'"),
    ],
)
def test_a_wrong_policy_is_wrong_use(
    redrive: Callable[..., Ran], arguments: list[str], said: str
) -> None:
    done = redrive("policy", "set", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_without_the_right_to_write_the_command_says_so_in_one_line(
    redrive: Callable[..., Ran], place: Place, tmp_path: Path
) -> None:
    place.execute(SEED_TABLE)
    if not place.is_sqlite:
        place.execute("GRANT SELECT ON dlq_event_config TO PUBLIC")
    variables = {
        "REDRIVE_STORE__URL": f"sqlite:///{tmp_path}/own.db",
        "REDRIVE_POLICY_TABLE__URL": place.read_only_url,
    }
    done = redrive("policy", "set", "a", "--max-retries", "1", **variables)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert "grant this user the right to write" in done.err
