"""`redrive archive` on real files and a real store: what it prints, and exits with."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.cli import main
from redrive.domain.letter import Kept
from redrive.domain.lifecycle import State
from redrive.store.store import Store
from redrive.work.cold_storage import ColdStorage
from redrive.work.retention import Retention
from tests.services.letters import books_are_exact, letter_store
from tests.services.retiring import CHANGED, PERIODS, letter_in

BODIES = (b'{"order": 1}', b"\xff\x00\n")


class Redrive:
    """Runs the command in this process; cold storage is beside the store."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self._url = f"sqlite:///{folder / 'redrive.db'}"
        self.storage = ColdStorage(folder / "archive")

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["archive", *arguments, "--store-url", self._url])
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    def json(self, *arguments: str, code: int = 0) -> Any:
        ended, out, _ = self(*arguments, "--output", "json")
        assert ended == code
        return json.loads(out)

    def with_store(self, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            async with letter_store(self._url) as store:
                return await work(store)

        return asyncio.run(run())

    def retire(self) -> tuple[list[Kept], str]:
        """Archived letters whose time is over, as they were; and the file that they are in."""

        async def work(store: Store) -> list[Kept]:
            ids = [await letter_in(store, State.ARCHIVED, body, edits=[body]) for body in BODIES]
            letters = await store.expiry.read(ids, State.ARCHIVED, CHANGED)
            store.clock.ahead = timedelta(days=3650)
            done = await Retention(store.expiry, self.storage, PERIODS).round()
            assert done.deleted == len(BODIES)
            return letters

        letters: list[Kept] = self.with_store(work)
        (name,) = self.storage.names()
        return letters, name

    def letters(self, ids: list[str]) -> list[Kept]:
        async def work(store: Store) -> list[Kept]:
            assert await books_are_exact(store)
            return await store.expiry.read(ids, State.ARCHIVED, await store.expiry.now())

        found: list[Kept] = self.with_store(work)
        return found


@pytest.fixture
def redrive(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Redrive:
    for name in os.environ:
        if name.startswith("REDRIVE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Redrive(capsys, tmp_path)


def damage(redrive: Redrive, name: str) -> None:
    path = redrive.storage.folder / name
    path.write_bytes(path.read_bytes()[:-5])


# List


def test_files_are_listed_with_what_is_in_them(redrive: Redrive) -> None:
    _, name = redrive.retire()
    code, out, err = redrive("list")
    assert (code, err) == (0, "")
    heading, row = out.splitlines()
    assert heading.split() == ["FILE", "LETTERS", "WHY", "WRITTEN", "SIZE"]
    assert row.split()[:5] == [name, "2", "archived", "for", "365d"]


def test_files_are_listed_for_programs(redrive: Redrive) -> None:
    letters, name = redrive.retire()
    listed = redrive.json("list")
    assert listed["folder"] == str(redrive.storage.folder)
    (item,) = listed["items"]
    assert item["file"] == name
    assert item["size"] == (redrive.storage.folder / name).stat().st_size
    assert (item["letters"], item["why"], item["problem"]) == (2, "archived for 365d", None)
    assert (item["firstId"], item["lastId"]) == tuple(kept.letter.id for kept in letters)


def test_a_file_without_a_manifest_is_listed_as_such(redrive: Redrive) -> None:
    _, name = redrive.retire()
    (redrive.storage.folder / name.replace(".jsonl.zst", ".json")).unlink()
    code, out, err = redrive("list")
    assert code == 0
    assert name in out
    assert err == f"redrive: {name}: has no manifest: it was not finished, or that was lost\n"


@pytest.mark.parametrize("command", ["verify", "restore"])
def test_a_file_that_is_not_there_is_said_to_be_so_and_no_more(
    redrive: Redrive, command: str
) -> None:
    code, _, err = redrive(command, "nope.jsonl.zst")
    assert code == 1
    assert "nope.jsonl.zst: is not there\n" in err
    assert "manifest" not in err


@pytest.mark.parametrize("command", ["list", "verify"])
def test_an_empty_cold_storage_is_nothing_that_matches(redrive: Redrive, command: str) -> None:
    code, out, err = redrive(command)
    assert (code, out) == (3, "")
    assert err == f"redrive: there is no file in {redrive.storage.folder}\n"


def test_a_folder_that_cannot_be_read_is_told_of(redrive: Redrive) -> None:
    redrive.storage.folder.write_text("not a folder")
    code, _, err = redrive("list")
    assert code == 1
    assert err == f"redrive: {redrive.storage.folder} cannot be read: Not a directory\n"


# Verify


def test_sound_files_are_sound(redrive: Redrive) -> None:
    _, name = redrive.retire()
    code, out, err = redrive("verify")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == [name, "2", "sound"]


def test_what_is_wrong_is_said_and_where(redrive: Redrive) -> None:
    _, name = redrive.retire()
    damage(redrive, name)
    code, out, err = redrive("verify")
    assert code == 1
    assert "not sound" in out
    assert err == f"redrive: {name}: is cut short\n"
    (item,) = redrive.json("verify", code=1)["items"]
    assert (item["sound"], item["problems"]) == (False, ["is cut short"])


@pytest.mark.parametrize("by", ["name", "path", "path elsewhere"])
def test_a_file_is_given_by_its_name_or_its_path(redrive: Redrive, tmp_path: Path, by: str) -> None:
    _, name = redrive.retire()
    path = redrive.storage.folder / name
    if by == "path elsewhere":
        path = path.rename(tmp_path / path.name)
        manifest = (redrive.storage.folder / name).with_name(
            path.name.replace(".jsonl.zst", ".json")
        )
        manifest.rename(tmp_path / manifest.name)
    given = {"name": name, "path": str(path), "path elsewhere": path.name}[by]
    code, _, err = redrive("verify", given)
    assert (code, err) == (0, "")


def test_a_file_that_is_not_there_is_told_of(redrive: Redrive) -> None:
    code, _, err = redrive("verify", "2026/05/x-1.jsonl.zst")
    assert code == 1
    assert "redrive: 2026/05/x-1.jsonl.zst: is not there\n" in err


# Restore


def test_letters_come_back_as_archived_to_the_last_byte(redrive: Redrive) -> None:
    letters, name = redrive.retire()
    code, out, err = redrive("restore", name)
    assert (code, out, err) == (0, "", "redrive: restored 2 letters as archived\n")
    back = redrive.letters([kept.letter.id for kept in letters])
    for before, after in zip(letters, back, strict=True):
        assert after.letter.status is State.ARCHIVED
        assert after.history[-1].reason == f"brought back from {name}"
        assert after.history[-1].actor.startswith("cli:")
        same = replace(after.letter, updated_at=before.letter.updated_at)
        assert replace(after, letter=same, history=after.history[:-1]) == before


def test_one_letter_of_a_file_comes_back(redrive: Redrive) -> None:
    letters, name = redrive.retire()
    one, other = [kept.letter.id for kept in letters]
    assert redrive.json("restore", name, "--id", one) == {"read": 1, "added": 1, "present": 0}
    assert [kept.letter.id for kept in redrive.letters([one, other])] == [one]


def test_a_letter_that_is_there_is_left_as_it_is(redrive: Redrive) -> None:
    letters, name = redrive.retire()
    ids = [kept.letter.id for kept in letters]
    redrive("restore", name, "--id", ids[0])
    before = redrive.letters(ids[:1])
    code, _, err = redrive("restore", name)
    assert (code, err) == (0, "redrive: restored 1 letter as archived; 1 letter there already\n")
    assert redrive.letters(ids[:1]) == before


def test_nothing_comes_back_if_a_file_is_not_sound(redrive: Redrive, tmp_path: Path) -> None:
    letters, name = redrive.retire()
    (tmp_path / "other.jsonl.zst").write_bytes(b"")
    code, _, err = redrive("restore", name, "other.jsonl.zst")
    assert code == 1
    assert "redrive: other.jsonl.zst: is cut short\n" in err
    assert "redrive: nothing was restored" in err
    assert redrive.letters([kept.letter.id for kept in letters]) == []


def test_an_id_that_is_in_no_file_is_told_of_and_nothing_comes_back(redrive: Redrive) -> None:
    letters, name = redrive.retire()
    one = letters[0].letter.id
    code, _, err = redrive("restore", name, "--id", one, "--id", "ffffffff")
    assert code == 3
    assert "no letter of these files has an id that begins with 'ffffffff'" in err
    assert redrive.letters([one]) == []


def test_an_id_that_is_too_short_is_wrong_use(redrive: Redrive) -> None:
    _, name = redrive.retire()
    code, _, err = redrive("restore", name, "--id", "019c")
    assert code == 2
    assert "'019c' is too short for an id" in err
