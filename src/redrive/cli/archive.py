"""`redrive archive`: the files of cold storage.

Guarantees: no file is ever changed. `verify` reads every byte of a file. `restore` checks all that
it is given before the first letter goes into the store, and takes nothing if something is not
sound; a letter whose id is there already is left as it is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.actor import actor
from redrive.cli.app import group
from redrive.cli.filters import NOTHING_MATCHED, SHORTEST_ID
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import Cell, Column, Marked, note, print_json, print_table
from redrive.errors import ColdStorageError
from redrive.work.cold_file import Checked, Manifest, check, read_manifest
from redrive.work.cold_storage import ColdStorage, as_restored
from redrive.work.times import rfc3339

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("archive")

_FAILED: Final = 1
_AT_ONCE: Final = 100
_Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE…", help="By name, as listed, or by path; all by default."),
]


def _storage(settings: Settings) -> ColdStorage:
    folder = settings.retention.cold_storage
    if folder is None:
        raise ColdStorageError(
            "there is no folder for cold storage", remedy="set [retention] cold_storage"
        )
    return ColdStorage(folder)


# List


@app.command("list")
@invoked
def list_(invocation: Invocation) -> None:
    """List the files of cold storage, oldest first."""
    storage = _storage(invocation.load().settings)
    listed = [_Listed.at(storage.folder / name, name) for name in storage.names()]
    if invocation.output is Output.JSON:
        items = [each.document() for each in listed]
        print_json({"folder": str(storage.folder), "items": items, "next": None})
    elif listed:
        now = datetime.now(UTC)
        columns = (
            Column("FILE", whole=True),
            Column("LETTERS", right=True),
            Column("WHY"),
            Column("WRITTEN"),
            Column("SIZE", right=True),
        )
        print_table(columns, [[each.row(now) for each in listed]])
    for each in listed:
        if each.problem:
            note(f"{each.name}: {each.problem}")
    if not listed:
        note(f"there is no file in {storage.folder}")
        raise typer.Exit(NOTHING_MATCHED)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A file, as far as its manifest and its size tell."""

    name: str
    manifest: Manifest | None
    size: int | None
    problem: str | None

    @classmethod
    def at(cls, path: Path, name: str) -> _Listed:
        manifest: Manifest | None = None
        size: int | None = None
        problem: str | None = None
        try:
            size = path.stat().st_size
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
        try:
            manifest = read_manifest(path)
        except ColdStorageError as error:
            problem = str(error)
        return cls(name, manifest, size, problem)

    def row(self, now: datetime) -> tuple[Cell, ...]:
        size = Marked("missing", "bold red") if self.size is None else wording.size(self.size)
        manifest = self.manifest
        if manifest is None:
            return (self.name, "?", "?", "?", size)
        written = wording.ago(manifest.created_at, now)
        return (self.name, f"{manifest.letters:,}", manifest.why, written, size)

    def document(self) -> dict[str, Any]:
        manifest = self.manifest
        return {
            "file": self.name,
            "size": self.size,
            "letters": manifest and manifest.letters,
            "why": manifest and manifest.why,
            "createdAt": manifest and rfc3339(manifest.created_at),
            "firstId": manifest and manifest.first_id,
            "lastId": manifest and manifest.last_id,
            "contentSize": manifest and manifest.content.bytes,
            "redrive": manifest and manifest.redrive,
            "problem": self.problem,
        }


# Verify


@app.command()
@invoked
def verify(invocation: Invocation, files: _Files = None) -> None:
    """Read every byte of files, and say what is wrong with them and where."""
    storage = _storage(invocation.load().settings)
    checked = _check(storage, files or [Path(name) for name in storage.names()])
    sound = all(each.sound for _, each in checked)
    if invocation.output is Output.JSON:
        items = [
            {
                "file": storage.shown(path),
                "letters": len(each.ids),
                "sound": each.sound,
                "problems": list(each.problems),
            }
            for path, each in checked
        ]
        print_json({"sound": sound, "items": items})
    elif checked:
        rows = [
            (
                storage.shown(path),
                f"{len(each.ids):,}",
                Marked("sound", "green") if each.sound else Marked("not sound", "bold red"),
            )
            for path, each in checked
        ]
        columns = (Column("FILE", whole=True), Column("LETTERS", right=True), Column("STATE"))
        print_table(columns, [rows])
    if not checked:
        note(f"there is no file in {storage.folder}")
        raise typer.Exit(NOTHING_MATCHED)
    if not sound:
        _tell_problems(storage, checked)
        raise typer.Exit(_FAILED)


def _check(storage: ColdStorage, files: Sequence[Path]) -> list[tuple[Path, Checked]]:
    paths = list(dict.fromkeys(storage.path(given) for given in files))
    found: list[tuple[Path, Checked]] = []
    shown = sys.stderr.isatty() and len(paths) > 1
    for number, path in enumerate(paths, 1):
        if shown:
            sys.stderr.write(f"\r\x1b[Kreading file {number:,} of {len(paths):,} …")
            sys.stderr.flush()
        found.append((path, check(path)))
    if shown:
        sys.stderr.write("\r\x1b[K")
    return found


def _tell_problems(storage: ColdStorage, checked: Sequence[tuple[Path, Checked]]) -> None:
    for path, each in checked:
        for problem in each.problems:
            note(f"{storage.shown(path)}: {problem}")


# Restore


@app.command()
@invoked
def restore(
    invocation: Invocation,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="By name, as listed, or by path.")
    ],
    *,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="ID", help="Only this letter, or those that begin so; repeatable."
        ),
    ] = None,
) -> None:
    """Bring letters of cold storage back into the store, as archived letters.

    A letter whose id is there already is left as it is. 'letters restore' makes an archived letter
    manual, so that it can be sent. The files stay.
    """
    settings = invocation.load().settings
    storage = _storage(settings)
    beginnings = [_beginning(given) for given in ids or []]
    checked = _check(storage, files)
    if not all(each.sound for _, each in checked):
        _tell_problems(storage, checked)
        note("nothing was restored; 'zstd -dc FILE' shows what can be read")
        raise typer.Exit(_FAILED)
    _require_all(beginnings, checked)
    wanted = [(path, _chosen(each.ids, beginnings)) for path, each in checked]
    read = sum(len(some) for _, some in wanted)
    added = runtime.run_async(_restore(settings, storage, wanted))
    if invocation.output is Output.JSON:
        print_json({"read": read, "added": added, "present": read - added})
    else:
        also = f"; {wording.plural(read - added, 'letter')} there already" if read > added else ""
        note(f"restored {wording.plural(added, 'letter')} as archived{also}")


def _beginning(given: str) -> str:
    wanted = given.strip().lower()
    if len(wanted) < SHORTEST_ID:
        raise typer.BadParameter(
            f"{given!r} is too short for an id: give its first {SHORTEST_ID} characters or more"
        )
    return wanted


def _require_all(beginnings: Sequence[str], checked: Sequence[tuple[Path, Checked]]) -> None:
    there = [id_ for _, each in checked for id_ in each.ids]
    missing = [one for one in beginnings if not any(id_.startswith(one) for id_ in there)]
    for one in missing:
        note(f"no letter of these files has an id that begins with {one!r}")
    if missing:
        note("nothing was restored")
        raise typer.Exit(NOTHING_MATCHED)


def _chosen(ids: Sequence[str], beginnings: Sequence[str]) -> list[str]:
    return [id_ for id_ in ids if not beginnings or id_.startswith(tuple(beginnings))]


async def _restore(
    settings: Settings, storage: ColdStorage, wanted: Sequence[tuple[Path, Sequence[str]]]
) -> int:
    added = 0
    who = actor()
    async with runtime.store(settings, make=True) as store:
        now = await store.expiry.now()
        for path, ids in wanted:
            if not ids:
                continue
            letters = await asyncio.to_thread(storage.read_back, str(path), frozenset(ids))
            back = [
                as_restored(kept, now=now, actor=who, name=storage.shown(path)) for kept in letters
            ]
            for start in range(0, len(back), _AT_ONCE):
                added += await store.letters.restore(back[start : start + _AT_ONCE])
    return added
