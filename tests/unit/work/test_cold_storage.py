"""Files of cold storage: what is written is there whole, and damage of any kind is found."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import __version__
from redrive.domain.ids import letter_id
from redrive.domain.letter import Kept
from redrive.domain.lifecycle import State
from redrive.errors import ColdStorageError, TransitionRefused
from redrive.work import cold_file
from redrive.work.cold_file import check, manifest_path, read_sound
from redrive.work.cold_storage import ColdStorage, as_restored
from redrive.work.export import write_line
from redrive.work.redact import NO_REDACTION
from tests.unit.work.letters import NOON, a_kept, an_envelope, any_kept

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOW = datetime(2026, 5, 31, 23, 59, tzinfo=UTC)
LETTERS = [
    a_kept(an_envelope(body), id=letter_id(NOON, number), status=State.FAILED)
    for number, body in enumerate((b"\xff\x00\n", b"", b'{"amount": 1}' * 1000))
]


@pytest.fixture
def storage(tmp_path: Path) -> ColdStorage:
    return ColdStorage(tmp_path / "state" / "archive")


def write(storage: ColdStorage, letters: list[Kept] = LETTERS, why: str = "failed for 90d") -> Path:
    name = storage.write(letters, why=why, now=NOW).name
    assert name is not None
    return storage.folder / name


# Writing


def test_a_file_is_found_by_month_first_letter_and_count(storage: ColdStorage) -> None:
    path = write(storage)
    first = LETTERS[0].letter.id
    assert path == storage.folder / "2026" / "05" / f"{first}-3.jsonl.zst"
    assert storage.names() == [f"2026/05/{first}-3.jsonl.zst"]


def test_a_file_holds_the_lines_of_an_exact_export(storage: ColdStorage) -> None:
    content = zstd.decompress(write(storage).read_bytes())
    assert content == b"".join(write_line(kept, NO_REDACTION).content for kept in LETTERS)


def test_the_manifest_tells_what_is_in_the_file(storage: ColdStorage) -> None:
    path = write(storage)
    raw = path.read_bytes()
    content = zstd.decompress(raw)
    assert json.loads(manifest_path(path).read_text()) == {
        "format": 1,
        "redrive": __version__,
        "why": "failed for 90d",
        "createdAt": "2026-05-31T23:59:00.000000Z",
        "letters": 3,
        "firstId": LETTERS[0].letter.id,
        "lastId": LETTERS[2].letter.id,
        "file": {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()},
        "content": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()},
    }


def test_files_and_folders_are_private(storage: ColdStorage) -> None:
    before = os.umask(0)
    try:
        path = write(storage)
    finally:
        os.umask(before)
    for file in (path, manifest_path(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent, storage.folder, storage.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_was_written_before_is_not_written_twice(storage: ColdStorage) -> None:
    assert write(storage) == write(storage)
    assert len(storage.names()) == 1


def test_a_file_is_never_replaced_by_another(storage: ColdStorage) -> None:
    first = write(storage)
    content = first.read_bytes()
    others = [*LETTERS[:2], a_kept(id=letter_id(NOON, 9))]
    second = write(storage, others)
    assert second.name == first.name.replace(".jsonl", "-2.jsonl")
    assert first.read_bytes() == content
    assert read_sound(second) == others


def test_a_file_that_was_not_finished_is_finished(storage: ColdStorage) -> None:
    path = write(storage)
    manifest_path(path).unlink()
    assert write(storage) == path
    assert check(path).sound


def test_what_a_writer_left_that_died_is_removed(storage: ColdStorage) -> None:
    left = write(storage).parent / ".019c-1.x.part"
    left.touch()
    write(storage, LETTERS[:1])
    assert not left.exists()


def test_nothing_to_write_makes_no_file(storage: ColdStorage) -> None:
    assert storage.write([], why="", now=NOW).name is None
    assert storage.names() == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on that disk"),
        (errno.EACCES, "let this user write there, or set [retention] cold_storage"),
        (errno.EIO, "check [retention] cold_storage"),
    ],
)
def test_a_disk_that_does_not_take_it_is_told_of_and_keeps_nothing(
    storage: ColdStorage, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    path = write(storage, LETTERS[:1])

    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ColdStorageError, match=os.strerror(number)) as raised:
        write(storage)
    assert str(storage.folder) in str(raised.value)
    assert raised.value.remedy == remedy
    assert sorted(path.parent.iterdir()) == sorted([path, manifest_path(path)])


# Reading


def test_letters_come_back_as_they_were(storage: ColdStorage) -> None:
    assert read_sound(write(storage)) == LETTERS


def test_some_letters_of_a_file_can_be_wanted(storage: ColdStorage) -> None:
    assert read_sound(write(storage), {LETTERS[1].letter.id}) == [LETTERS[1]]


@given(st.lists(any_kept, min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)  # it waits for the disk
def test_any_letters_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, letters: list[Kept]
) -> None:
    assert read_sound(write(ColdStorage(tmp_path_factory.mktemp("cold")), letters)) == letters


def test_a_line_longer_than_a_chunk_comes_back(
    storage: ColdStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_file, "_CHUNK", 7)
    path = write(storage)
    assert read_sound(path) == LETTERS
    assert check(path).sound


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert ColdStorage(tmp_path / "none").names() == []


def test_a_folder_that_is_none_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ColdStorageError, match="cannot be read: Not a directory"):
        ColdStorage(tmp_path / "file").names()


# Damage


def damage(file: Path, change: Callable[[bytes], bytes]) -> None:
    file.write_bytes(change(file.read_bytes()))


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def compressed(content: bytes) -> bytes:
    return zstd.compress(content)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a bit": (lambda path: damage(path, flip), "is damaged: it cannot be decompressed"),
    "its end": (lambda path: damage(path, lambda all_: all_[:-9]), "is cut short"),
    "all of it": (lambda path: damage(path, lambda _: b""), "is cut short"),
    "the file": (Path.unlink, "is not there"),
    "more behind it": (
        lambda path: damage(path, lambda all_: all_ + b"\n"),
        "file: expected ",
    ),
    "another content": (
        lambda path: damage(path, lambda all_: compressed(flip(zstd.decompress(all_)))),
        "file: expected ",
    ),
    "its manifest": (
        lambda path: manifest_path(path).unlink(),
        "has no manifest: it was not finished, or that was lost",
    ),
    "a manifest cut short": (
        lambda path: damage(manifest_path(path), lambda all_: all_[:50]),
        "has a manifest that is no JSON",
    ),
    "a manifest of another shape": (
        lambda path: manifest_path(path).write_text('{"format": 1}'),
        "has a manifest that is not sound: redrive: expected a value",
    ),
    "a manifest of a later format": (
        lambda path: manifest_path(path).write_text('{"format": 2}'),
        "has a manifest that is not sound: format: expected 1",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found_and_named(storage: ColdStorage, what: str) -> None:
    path = write(storage)
    harm, problem = DAMAGES[what]
    harm(path)
    found = check(path)
    assert not found.sound
    assert any(each.startswith(problem) for each in found.problems), found.problems


@pytest.mark.parametrize("what", DAMAGES)
def test_nothing_is_given_out_of_a_damaged_file(storage: ColdStorage, what: str) -> None:
    path = write(storage)
    DAMAGES[what][0](path)
    with pytest.raises(ColdStorageError):
        read_sound(path)


def rewritten(path: Path, content: bytes, **changes: Any) -> None:
    """As somebody would who mends the checksums too."""
    raw = compressed(content)
    path.write_bytes(raw)
    manifest = json.loads(manifest_path(path).read_text())
    for name, data in (("file", raw), ("content", content)):
        manifest[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest_path(path).write_text(json.dumps(manifest | changes))


def test_a_line_that_is_no_letter_is_found_by_its_number(storage: ColdStorage) -> None:
    path = write(storage)
    first, _, third = zstd.decompress(path.read_bytes()).splitlines(keepends=True)
    rewritten(path, first + b"{}\n" + third)
    found = check(path)
    assert found.problems[0].startswith("line 2 has format None")
    assert "expected 3 letters, got 2" in found.problems


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"letters": 4}, "expected 4 letters, got 3"),
        ({"firstId": "x"}, "expected x to "),
    ],
)
def test_a_manifest_that_tells_of_other_letters_is_found(
    storage: ColdStorage, changes: dict[str, Any], problem: str
) -> None:
    path = write(storage)
    rewritten(path, zstd.decompress(path.read_bytes()), **changes)
    (found,) = check(path).problems
    assert found.startswith(problem)


def test_a_manifest_without_its_file_is_found(storage: ColdStorage) -> None:
    path = write(storage)
    path.unlink()
    assert [storage.folder / name for name in storage.names()] == [path]


@given(st.data())
@settings(max_examples=50, deadline=None)  # it waits for the disk
def test_no_change_of_a_byte_goes_unseen(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = write(ColdStorage(tmp_path_factory.mktemp("cold")), LETTERS[:2])
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert not check(path).sound


# Back


@pytest.mark.parametrize("state", [State.FAILED, State.ARCHIVED])
def test_a_letter_comes_back_as_archived_with_a_word_in_its_history(state: State) -> None:
    kept = a_kept(status=state)
    back = as_restored(kept, now=NOW, actor="me", name="2026/05/x-1.jsonl.zst")
    assert (back.letter.status, back.letter.updated_at) == (State.ARCHIVED, NOW)
    change = back.history[-1]
    assert (change.at, change.actor, change.before, change.after, change.reason) == (
        NOW,
        "me",
        state,
        State.ARCHIVED,
        "brought back from 2026/05/x-1.jsonl.zst",
    )
    same = replace(back.letter, status=state, updated_at=kept.letter.updated_at)
    assert replace(back, letter=same, history=back.history[:-1]) == kept


def test_a_letter_that_could_not_be_archived_does_not_come_back() -> None:
    with pytest.raises(TransitionRefused):
        as_restored(a_kept(status=State.PROCESSING), now=NOW, actor="me", name="x")
