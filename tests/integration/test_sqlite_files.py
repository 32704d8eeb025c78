"""`redrive` on SQLite files that are no store, are not whole, or cannot be written."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from redrive.store.schema import REVISION, VERSION_TABLE
from tests.services.letter_commands import LetterCommands, nothing_of_this_machine
from tests.services.letters import failed
from tests.services.mounting import read_only, small_disk

Redrive = LetterCommands


@pytest.fixture
def redrive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Redrive:
    nothing_of_this_machine(tmp_path, monkeypatch)
    folder = tmp_path / "stores"
    folder.mkdir()
    return Redrive(capsys, folder)


def execute(file: Path, *statements: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        return [row for each in statements for row in connection.execute(each).fetchall()]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# No store


@pytest.mark.parametrize(
    "statements",
    [
        [],
        ["CREATE TABLE customers (a)"],
        ["PRAGMA journal_mode = WAL", "CREATE TABLE customers (a)"],
    ],
    ids=["empty", "foreign", "foreign-wal"],
)
@pytest.mark.parametrize(
    "command", [["letters", "list"], ["stats"], ["policy", "list"], ["token", "list"]]
)
def test_a_command_that_reads_makes_no_store_of_a_file_that_is_none(
    redrive: Redrive, statements: list[str], command: list[str]
) -> None:
    (redrive.folder / "redrive.db").touch()
    execute(redrive.folder / "redrive.db", *statements)
    before = contents(redrive.folder)
    code, out, err = redrive(*command)
    assert (code, out) == (1, "")
    assert err.startswith(f"redrive: {redrive.url}: there is no store; 'redrive run' makes it")
    assert contents(redrive.folder) == before


def test_a_database_with_tables_of_others_may_be_made_a_store(redrive: Redrive) -> None:
    execute(redrive.folder / "redrive.db", "CREATE TABLE customers (a)")
    assert redrive("db", "upgrade")[0] == 0
    assert redrive("letters", "list") == (3, "", "redrive: no letter matches\n")
    assert execute(redrive.folder / "redrive.db", "SELECT * FROM customers") == []


@pytest.mark.parametrize("command", [["letters", "list"], ["db", "upgrade"]])
def test_nothing_is_left_beside_a_file_that_is_no_database(
    redrive: Redrive, command: list[str]
) -> None:
    (redrive.folder / "redrive.db").write_text("root:x:0:0:root:/root:/bin/bash\n" * 100)
    before = contents(redrive.folder)
    assert redrive(*command) == (
        1,
        "",
        (
            f"redrive: {redrive.url}: file is not a database; check [store] url; if that is the"
            " right file, restore a backup of it\n"
        ),
    )
    assert contents(redrive.folder) == before


# Not whole


def test_of_a_file_that_was_cut_the_error_says_to_restore_a_backup(redrive: Redrive) -> None:
    redrive.add(failed("x"))
    file = redrive.folder / "redrive.db"
    with file.open("r+b") as store:
        store.truncate(file.stat().st_size // 2)
    code, out, err = redrive("stats")
    assert (code, out) == (1, "")
    assert err.startswith(
        f"redrive: {redrive.url}: database disk image is malformed; restore a backup of the file"
    )


# Not to be written


def test_a_store_on_a_read_only_file_system_can_be_read(redrive: Redrive) -> None:
    (letter_id,) = redrive.add(failed("x"))
    (redrive.folder / "redrive.db.lock").unlink()
    with read_only(redrive.folder):
        assert redrive.json("letters", "list")["items"][0]["id"] == letter_id
        assert redrive.json("stats")["received"] == 1
        assert redrive("policy", "list")[0] == 0
        code, _, err = redrive("letters", "discard", letter_id, "--yes")
    assert code == 1
    assert "attempt to write a readonly database; grant this user the right to write" in err
    assert "copy the file to a folder that can be written" in err


def test_of_a_full_disk_the_error_says_to_look_at_the_disk(redrive: Redrive) -> None:
    redrive.add(failed("x"))
    with small_disk(redrive.folder / "disk", megabytes=8) as disk:
        shutil.copy(redrive.folder / "redrive.db", disk)
        with (disk / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        code, out, err = redrive("letters", "list", store=f"sqlite:///{disk}/redrive.db")
    assert (code, out) == (1, "")
    assert "disk is full" in err
    assert "that the database runs" not in err


def test_what_is_only_in_the_log_is_read_on_a_read_only_file_system_or_nothing_is(
    redrive: Redrive,
) -> None:
    """As a process leaves it that was killed."""
    (first,) = redrive.add(failed("x"))
    live, left = redrive.folder / "redrive.db", redrive.folder / "left.db"
    with contextlib.closing(sqlite3.connect(live)) as holding:
        holding.execute("SELECT * FROM redrive_letter").fetchall()
        (second,) = redrive.add(failed("y"))
        for end in ("", "-wal", "-shm"):
            shutil.copy(f"{live}{end}", f"{left}{end}")
    link = redrive.folder / "link.db"
    link.symlink_to(left)
    url = f"sqlite:///{link}"
    with read_only(redrive.folder):
        code, out, _ = redrive("letters", "list", store=url)
    assert code == 0
    assert first in out
    assert second in out
    Path(f"{left}-shm").unlink()
    with read_only(redrive.folder):
        code, out, err = redrive("letters", "list", store=url)
    assert (code, out) == (1, "")
    assert "copy the file, and the -wal file if there is one, to a folder that can" in err


def test_what_has_to_write_says_that_the_store_belongs_elsewhere(redrive: Redrive) -> None:
    redrive.add()
    (redrive.folder / "redrive.db.lock").unlink()
    refusal = (
        1,
        "",
        (
            f"redrive: {redrive.folder}/redrive.db.lock: cannot be made: Read-only file system;"
            " copy the store to a folder that can be written, and set [store] url to it\n"
        ),
    )
    with read_only(redrive.folder):
        assert redrive("db", "upgrade") == refusal
    older = f"UPDATE {VERSION_TABLE} SET version_num = '{int(REVISION) - 1:04}'"
    execute(redrive.folder / "redrive.db", older)
    with read_only(redrive.folder):
        assert redrive("stats") == refusal
