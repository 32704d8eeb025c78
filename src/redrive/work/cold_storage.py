"""Cold storage: letters in files of a folder, for as long as anybody keeps the folder.

    archive/2026/05/019c….-1000.jsonl.zst     (the year and the month in which it was written)
    archive/2026/05/019c….-1000.json

Guarantees: files are never changed and never replaced by others; folders are made with mode 0700,
files with 0600. What `write` has returned is on the disk. A process that dies while it writes
leaves a `.part` that the next one removes, or a file without a manifest, which nobody relies on.
One process writes at a time; the lock ends with its holder.

Everything here waits for the disk: call it in a thread.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from redrive._version import __version__
from redrive.domain.letter import Change, Kept
from redrive.domain.lifecycle import State, require
from redrive.errors import ColdStorageError
from redrive.work.cold_file import (
    FORMAT,
    PART,
    SUFFIX,
    Checked,
    Digest,
    Manifest,
    check,
    digest_of,
    manifest_path,
    manifest_text,
    read_sound,
    settle,
    sync_folder,
    write_lines,
    write_part,
)
from redrive.work.export import read_line, write_line
from redrive.work.redact import NO_REDACTION

_LOCK: Final = ".lock"
_REMEDIES: Final = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room on that disk",
    errno.EACCES: "let this user write there, or set [retention] cold_storage",
    errno.EPERM: "let this user write there, or set [retention] cold_storage",
    errno.EROFS: "make it writable, or set [retention] cold_storage",
}


@dataclass(frozen=True, slots=True)
class Written:
    """What became of letters that were to be written."""

    name: str | None
    """The file, by its path inside the folder; None if there was nothing to write."""
    left_out: tuple[str, ...] = ()
    """Letters that no line can hold without loss."""


class ColdStorage:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # In

    def write(self, letters: Sequence[Kept], *, why: str, now: datetime) -> Written:
        """Write letters to a new file; `ColdStorageError` if that cannot be done."""
        lines: list[bytes] = []
        ids: list[str] = []
        left_out: list[str] = []
        for kept in letters:
            line = write_line(kept, NO_REDACTION).content
            if read_line(line) == kept:
                lines.append(line)
                ids.append(kept.letter.id)
            else:
                left_out.append(kept.letter.id)
        if not lines:
            return Written(None, tuple(left_out))
        with self._for_writing():
            folder = self.folder / now.astimezone(UTC).strftime("%Y/%m")
            self._make(folder)
            with self._alone():
                _remove_parts(folder)
                path = _write(folder, lines, ids, why=why, now=now)
        return Written(path.relative_to(self.folder).as_posix(), tuple(left_out))

    def _make(self, folder: Path) -> None:
        missing = [folder, *folder.parents]
        for each in reversed(missing[: [path.exists() for path in missing].index(True)]):
            each.mkdir(mode=0o700, exist_ok=True)
            sync_folder(each.parent)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _for_writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ColdStorageError(
                f"cold storage cannot be written: {self.folder}: {error.strerror}",
                remedy=_REMEDIES.get(error.errno or 0, "check [retention] cold_storage"),
            ) from error

    # Out

    def read_back(self, name: str, wanted: Collection[str] | None = None) -> list[Kept]:
        """The letters of a file, or those that are wanted, once all of it was found to be what was
        written; `ColdStorageError` if it is not."""
        try:
            return read_sound(self.folder / name, wanted)
        except ColdStorageError as error:
            raise ColdStorageError(
                f"{self.folder / name}: {error}", remedy="see 'redrive archive verify'"
            ) from None

    def names(self) -> list[str]:
        """Every file, also those of which only the manifest is there."""
        try:
            os.scandir(self.folder).close()  # a glob passes over what it may not read
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ColdStorageError(f"{self.folder} cannot be read: {error.strerror}") from None
        found = set(self.folder.glob(f"*/*/*{SUFFIX}"))
        manifests = self.folder.glob("*/*/*.json")
        found |= {path.with_name(path.name[: -len(".json")] + SUFFIX) for path in manifests}
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def path(self, given: Path) -> Path:
        """A file by its name, or by its path, here or elsewhere."""
        inside = self.folder / given
        return given if given.exists() and not inside.exists() else inside

    def shown(self, path: Path) -> str:
        """A file's name, if it is one of this folder; else its path."""
        inside = path.is_relative_to(self.folder)
        return (path.relative_to(self.folder) if inside else path).as_posix()

    def check(self, name: str) -> Checked:
        """Every byte of a file."""
        return check(self.folder / name)


def _write(
    folder: Path, lines: Sequence[bytes], ids: Sequence[str], *, why: str, now: datetime
) -> Path:
    stem = f"{ids[0]}-{len(ids)}"
    part, (file, content) = write_part(folder / stem, lambda out: write_lines(out, lines))
    try:
        path = _free(folder, stem, file)
        settle(part, path)
    finally:
        part.unlink(missing_ok=True)
    manifest = Manifest(
        format=FORMAT,
        redrive=__version__,
        why=why,
        created_at=now,
        letters=len(ids),
        first_id=ids[0],
        last_id=ids[-1],
        file=file,
        content=content,
    )
    beside = manifest_path(path)
    part, _ = write_part(beside, lambda out: out.write(manifest_text(manifest)))
    settle(part, beside)
    return path


def _free(folder: Path, stem: str, file: Digest) -> Path:
    """A name that no other file has. One that is the same to the last byte is the same: it was
    written before a crash."""
    for number in itertools.count(1):
        path = folder / (stem + (f"-{number}" if number > 1 else "") + SUFFIX)
        taken = path.exists() or manifest_path(path).exists()
        if not taken or (path.exists() and digest_of(path) == file):
            break
    return path


def _remove_parts(folder: Path) -> None:
    """Of writers that died: nobody else writes now."""
    for part in folder.glob(f".*{PART}"):
        part.unlink(missing_ok=True)


# Back into the store


def as_restored(kept: Kept, *, now: datetime, actor: str, name: str) -> Kept:
    """A letter of a file as it comes back: archived, and new to retention."""
    letter = kept.letter
    if letter.status is not State.ARCHIVED:
        require(letter.status, State.ARCHIVED)
    change = Change(
        at=now,
        actor=actor,
        before=letter.status,
        after=State.ARCHIVED,
        reason=f"brought back from {name}",
    )
    return replace(
        kept,
        letter=replace(
            letter,
            status=State.ARCHIVED,
            next_retry_at=None,
            updated_at=now,
        ),
        history=(*kept.history, change),
    )
