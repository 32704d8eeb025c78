"""Backups and upgrades as docs/how-to/backup.md has them: its commands, on real databases."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, inspect, text

from redrive.domain import metrics
from redrive.domain.filters import Filters
from redrive.domain.letter import Kept, Result
from redrive.domain.lifecycle import State
from redrive.domain.replay import Destination, Replay, ReplayOrder, ReplayState
from redrive.errors import SchemaNewer, SchemaOlder
from redrive.store.engine import open_database
from redrive.store.schema import REVISION, VERSION_TABLE, redrive_letter
from redrive.store.sendings import Outcome
from redrive.store.store import Store, open_letter_store
from tests.services.letters import BEGAN, failed, letter_store
from tests.services.postgres import PrivatePostgres
from tests.services.sending import (
    LEASE,
    VERDICT_AFTER,
    VHOST,
    all_is_consistent,
    claimed,
    come_back,
    later,
    new_id,
    sent,
    stored,
)

PAGE = Path(__file__).parents[2] / "docs/how-to/backup.md"
RULE_SINCE = "0003"
"""That one made a table anew, which nobody had filled yet."""
REVISIONS = [f"{number:04}" for number in range(1, int(REVISION) + 1)]


def on_the_page(beginning: str) -> str:
    """The command of the page that begins so."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith(beginning)]
    return found


def shell(line: str, **environment: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


async def filled(store: Store) -> None:
    """Letters in several states, some of them being sent."""
    await stored(store, 6)
    await store.letters.add([failed("no such currency")])
    claims = await sent(store, limit=3)
    await come_back(store, claims[:1])
    await claimed(store, limit=2)


async def content(store: Store) -> list[Kept]:
    return [kept async for kept in store.letters.stream(Filters())]


class SqliteFile:
    """A store in a file, which the commands of the page back up and restore."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._backup = folder / "var", folder / "backup"
        self._folder.mkdir()
        self._backup.mkdir()
        self.url = f"sqlite:///{self._folder}/redrive.db"

    async def back_up(self) -> None:
        python = "/opt/redrive/bin/python"
        await self._do(on_the_page(f"{python} -c").replace(python, sys.executable))

    async def restore(self) -> None:
        await self._do(on_the_page("rm --force"))
        line = on_the_page("install --owner redrive")
        await self._do(line.replace("--owner redrive --group redrive ", ""))

    async def _do(self, line: str) -> None:
        here = line.replace("/var/lib/redrive", str(self._folder))
        await asyncio.to_thread(shell, here.replace("/backup", str(self._backup)))


async def test_a_sqlite_store_is_backed_up_while_it_is_used_and_restored(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path)
    async with letter_store(file.url) as store:
        await filled(store)
        before = await content(store)
        await file.back_up()
        await stored(store, 3)  # after the backup
        assert len(await content(store)) == len(before) + 3
    await file.restore()
    async with letter_store(file.url) as store:
        assert await content(store) == before
        await all_is_consistent(store)
        assert await claimed(store), "it is worked with as ever"


def of_redrive_only() -> str:
    """What the page says for `pg_dump` where the database has other tables too."""
    (found,) = re.findall(r"`(--table [^`]+)`", PAGE.read_text(encoding="utf-8"))
    return f" {found}"


@pytest.mark.parametrize("tables", ["", of_redrive_only()], ids=["all tables", "only Redrive's"])
async def test_a_postgresql_store_is_dumped_while_it_is_used_and_restored(
    postgres: PrivatePostgres, database: str, tmp_path: Path, tables: str
) -> None:
    path = f"{postgres.bin}:{os.environ['PATH']}"
    async with letter_store(database) as store:
        async with store.database.writing() as connection:
            await connection.execute(text("CREATE TABLE of_others (id INTEGER PRIMARY KEY)"))
        await filled(store)
        before = await content(store)
        dump = on_the_page("pg_dump ").replace("/backup", str(tmp_path)) + tables
        await asyncio.to_thread(shell, dump, STORE_URL=database, PATH=path)
        await stored(store, 3)
    empty = postgres.create_database()
    url = postgres.url(empty)
    restore = on_the_page("pg_restore ").replace("/backup", str(tmp_path))
    await asyncio.to_thread(shell, restore, STORE_URL=url, PATH=path)
    async with letter_store(url) as store:
        assert await content(store) == before
        await all_is_consistent(store)
        assert await claimed(store)
        async with store.database.reading() as connection:
            restored = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        assert ("of_others" in restored) is (tables == "")
    postgres.drop_database(empty)


# A replay that ran


async def batch_of(store: Store, job: Replay, worker: str) -> list[str]:
    """A worker takes the job, and sends a batch of it; the letters of that."""
    ours = await store.replays.begin(job.id, worker, LEASE)
    batch = await store.replays.take_batch(
        ours, worker, lambda letter: Destination(queue=letter.queue)
    )
    outcomes = [Outcome(claim=claim, result=Result.SENT) for claim in batch.claims]
    await store.replays.record(worker, outcomes, verdict_after=VERDICT_AFTER)
    return [claim.letter.id for claim in batch.claims]


async def test_a_replay_that_ran_when_the_backup_was_taken_goes_on_unless_it_is_ended_before(
    tmp_path: Path,
) -> None:
    file = SqliteFile(tmp_path)
    async with letter_store(file.url) as store:
        ids = await stored(store, 4)
        order = ReplayOrder(actor="ann", described="all", batch_size=2)
        job = await store.replays.create(new_id(), VHOST, Filters(), order)
        assert job is not None
        assert await batch_of(store, job, "old") == ids[:2]
        await file.back_up()
        assert await batch_of(store, job, "old") == ids[2:]
        ended = await store.replays.get(job.id)
        assert ended is not None
        assert ended.state is ReplayState.DONE
    await file.restore()
    async with letter_store(file.url) as store:
        later(store, LEASE)  # it was restored long after the backup
        taken = await store.replays.take(VHOST, "new", LEASE)
        assert taken is not None
        assert (taken.id, taken.position) == (job.id, 2)
        assert await batch_of(store, taken, "new") == ids[2:], "they go a second time"
    for state in (ReplayState.CANCELLED, ReplayState.PAUSED):
        await file.restore()
        async with letter_store(file.url) as store:
            later(store, LEASE)
            if state is ReplayState.CANCELLED:
                await store.replays.cancel(job.id, "restored")
            else:
                await store.replays.pause(job.id, "restored")
            assert await store.replays.take(VHOST, "new", LEASE) is None
            found = await store.replays.get(job.id)
            assert found is not None
            assert (found.state, found.position) == (state, 2)
            await all_is_consistent(store)


# Old and new side by side


def _migrate_to(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", "redrive.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


async def migrated(url: str, revision: str) -> None:
    database = open_database(url, ours=True)
    async with database.writing() as connection:
        await connection.run_sync(_migrate_to, revision)
    await database.close()


Columns = dict[str, dict[str, tuple[str, bool, bool]]]


def _columns(connection: Connection) -> Columns:
    """Of each table, of each column: its type, whether it may be null, whether it has a default."""
    found = inspect(connection)
    return {
        table: {
            column["name"]: (
                str(column["type"]),
                bool(column["nullable"]),
                column["default"] is not None or bool(column.get("autoincrement") is True),
            )
            for column in found.get_columns(table)
        }
        for table in found.get_table_names()
    }


async def columns_at(url: str, revision: str) -> Columns:
    await migrated(url, revision)
    database = open_database(url, ours=True)
    async with database.reading() as connection:
        found = await connection.run_sync(_columns)
    await database.close()
    return found


async def test_every_upgrade_adds_only_what_the_version_before_need_not_know(database: str) -> None:
    before = await columns_at(database, RULE_SINCE)
    for revision in REVISIONS[REVISIONS.index(RULE_SINCE) + 1 :]:
        after = await columns_at(database, revision)
        for table, columns in before.items():
            assert table in after, f"{revision} removes {table}"
            for name, was in columns.items():
                assert after[table].get(name) == was, f"{revision} changes {table}.{name}"
            for name in after[table].keys() - columns.keys():
                _, null, default = after[table][name]
                assert null or default, f"{revision}: old versions cannot fill {table}.{name}"
        before = after


ROW = {
    **dict.fromkeys(("message_id", "vhost", "exchange", "routing_key", "collected_from"), "x"),
    **dict.fromkeys(("error_type", "error_reason", "fingerprint", "deaths", "source"), "x"),
    **dict.fromkeys(("retry_count", "priority", "size", "dlq_retry_count", "generation"), 0),
    **dict.fromkeys(("first_failed_at", "last_failed_at", "created_at", "updated_at"), BEGAN),
    "status": State.PENDING.value,
    "tags": "[]",
    "digest": b"",
}
"""A letter as schema 0006 demands it."""


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_the_possible_duplicates_of_before_are_counted_by_the_upgrade(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    """As `redrive stats` would otherwise say none of those that it lists."""
    files = f"sqlite:///{tmp_path}/redrive.db"
    url = files if engine == "sqlite" else request.getfixturevalue("database")
    await migrated(url, "0006")
    database = open_database(url, ours=True)
    async with database.writing() as connection:
        for marked in (True, False, True):
            row = ROW | {"id": str(uuid4()), "possible_duplicate": marked}
            await connection.execute(insert(redrive_letter).values(row))
    await database.close()
    await migrated(url, REVISION)
    store = await open_letter_store(url)
    assert await store.counts.total(metrics.POSSIBLE_DUPLICATES.name) == 2
    assert await store.decisions.count(Filters(possible_duplicate=True)) == 2
    await store.close()


def test_no_migration_takes_anything_away() -> None:
    config = Config()
    config.set_main_option("script_location", "redrive.store:migrations")
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert sorted(each.revision for each in scripts.walk_revisions()) == REVISIONS
    forbidden = re.compile(r"\bop\.(drop_\w+|alter_column|rename_table)\b|\bDROP\b|\bRENAME\b")
    for each in scripts.walk_revisions(base=RULE_SINCE):
        if each.revision == RULE_SINCE:
            continue
        assert not forbidden.search(Path(each.path).read_text(encoding="utf-8")), each.revision


async def test_a_process_that_runs_goes_on_after_somebody_else_has_upgraded(database: str) -> None:
    """As the next version would: it adds a table and columns, and says so in the version."""
    next_one = f"{int(REVISION) + 1:04}"
    async with letter_store(database) as store:
        await stored(store, 3)
        async with store.database.writing() as connection:
            for line in (
                "ALTER TABLE redrive_letter ADD COLUMN mood TEXT",
                "ALTER TABLE redrive_attempt ADD COLUMN weight INTEGER NOT NULL DEFAULT 1",
                "CREATE TABLE redrive_mood (letter_id UUID PRIMARY KEY, mood TEXT NOT NULL)",
                f"UPDATE {VERSION_TABLE} SET version_num = '{next_one}'",
            ):
                await connection.execute(text(line))
        await stored(store, 3)
        claims = await sent(store)
        assert len(claims) == 6
        await come_back(store, claims[:2])
        await all_is_consistent(store)
    with pytest.raises(SchemaNewer) as refused:
        await open_letter_store(database)
    assert f"has schema {next_one}, and this version of Redrive knows {REVISION}" in str(
        refused.value
    )


async def test_the_schema_before_is_refused_until_it_is_upgraded_and_the_letters_stay(
    database: str, tmp_path: Path
) -> None:
    last = REVISIONS[-2]
    await migrated(database, last)
    with pytest.raises(SchemaOlder) as refused:
        await open_letter_store(database)
    said = f"has schema {last}, and this version of Redrive needs {REVISION}"
    assert said in str(refused.value)
    assert f"{said}; {refused.value.remedy}" in PAGE.read_text(encoding="utf-8")
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "redrive", "db", "upgrade", "--store-url", database],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    async with letter_store(database) as store:
        await stored(store, 1)
        assert len(await content(store)) == 1
