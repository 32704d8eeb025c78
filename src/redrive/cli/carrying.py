"""Letters out to a file and in again, streaming: what `letters export` and `import` do.

Guarantees: a file appears under its name only when it is complete, private to the user, and never
replaces another. Of an import every line is checked before the first letter is written, so that a
broken file changes nothing; should the store fail in between, what was added stays, and importing
again adds the rest. Letters come with their own history, which has no word of the import: so who
imported which file is in the audit log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

from redrive import runtime
from redrive.cli import wording
from redrive.cli.auditing import audited
from redrive.cli.filters import Selection
from redrive.domain.letter import Kept
from redrive.errors import RedriveError
from redrive.work.export import Unusable, read_line, write_line
from redrive.work.redact import Redaction

if TYPE_CHECKING:
    from redrive.settings import Settings

_AT_ONCE: Final = 100
_BYTES_AT_ONCE: Final = 16 * 2**20
_LONGEST_LINE: Final = 2**30
_MOST_PROBLEMS: Final = 10
_STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Exported:
    """How many letters were written, and of how many something is hidden."""

    letters: int
    redacted: int


@dataclass(frozen=True, slots=True)
class Imported:
    """How many letters a file has and how many were added; or what is wrong with it."""

    read: int
    added: int
    problems: tuple[str, ...]


# Out


async def export_letters(
    settings: Settings, selection: Selection, to: Path | None, redaction: Redaction
) -> Exported:
    """Write the letters that match to a new file, or to stdout."""
    count = redacted = 0
    with _target(to) as out, _Progress("exported") as progress:
        async with runtime.store(settings) as store:
            filters = await selection.filters(store.letters)
            async for kept in store.letters.stream(filters):
                line = write_line(kept, redaction)
                out.write(line.content)
                count += 1
                redacted += line.redacted
                progress.show(count)
                if count == selection.limit:
                    break
    return Exported(count, redacted)


@contextlib.contextmanager
def _target(to: Path | None) -> Iterator[IO[bytes]]:
    """Where to write. A file of that name is there afterwards only if something was written."""
    if to is None:
        yield sys.stdout.buffer
        return
    if os.path.lexists(to):
        raise RedriveError(f"{to} exists already", remedy="remove it, or give another name")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{to.name}.", suffix=".part", dir=to.parent)
    except OSError as error:
        raise RedriveError(f"{to} cannot be written: {error.strerror}") from None
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if part.stat().st_size:
            _publish(part, to)
    except OSError as error:
        raise RedriveError(f"{to} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _publish(part: Path, to: Path) -> None:
    try:
        # A link, unlike a rename, does not replace what somebody else has written meanwhile.
        to.hardlink_to(part)
    except FileExistsError:
        raise RedriveError(f"{to} was made by somebody else meanwhile") from None
    except OSError:  # a file system without links
        part.rename(to)


# In


async def import_letters(settings: Settings, file: Path) -> Imported:
    """Read all of a file, then add its letters."""
    with _source(file) as lines:
        count, problems = _check(lines, file)
        if problems or not count:
            return Imported(count, 0, problems)
        lines.seek(0)
        added = 0
        with _Progress("imported") as progress:
            told = {"file": _name(file), "letters": count}
            async with (
                runtime.store(settings, make=True) as store,
                audited(store.audit_log, "letters.import", told) as entry,
            ):
                done = 0
                for batch in _batches(lines, file):
                    added += await store.letters.restore(batch)
                    entry["added"] = added
                    done += len(batch)
                    progress.show(done)
    return Imported(count, added, ())


@contextlib.contextmanager
def _source(file: Path) -> Iterator[IO[bytes]]:
    """The file, to be read twice: what cannot be, as a pipe, is first copied to disk."""
    with contextlib.ExitStack() as stack:
        try:
            is_stdin = file == _STDIN
            given = sys.stdin.buffer if is_stdin else stack.enter_context(file.open("rb"))
            if not is_stdin and given.seekable():
                yield given
                return
            spool = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(given, spool)
            spool.seek(0)
        except OSError as error:
            raise RedriveError(f"{_name(file)} cannot be read: {error.strerror}") from None
        yield spool


def _name(file: Path) -> str:
    return "stdin" if file == _STDIN else str(file)


def _check(lines: IO[bytes], file: Path) -> tuple[int, tuple[str, ...]]:
    """How many letters there are, and what is wrong with which line."""
    count = 0
    problems: list[str] = []
    with _Seen() as seen:
        for number, line in _numbered(lines):
            answer = _read(line)
            if not isinstance(answer, Unusable):
                answer = seen.differently(answer, number, line) or answer
            if not isinstance(answer, Unusable):
                count += 1
            elif len(problems) < _MOST_PROBLEMS:
                problems.append(f"{_name(file)}, line {number}: {answer.reason}")
            else:
                problems.append("… and more")
                break
    return count, tuple(problems)


class _Seen:
    """Which letters a file has had; on disk, so that memory does not grow with the file."""

    def __enter__(self) -> Self:
        self._lines = sqlite3.connect("")
        self._lines.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, number INT, digest BLOB)")
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def differently(self, kept: Kept, number: int, line: bytes) -> Unusable | None:
        """Whether the letter stood on another line, and not so: nobody knows which one counts."""
        id_, digest = kept.letter.id, blake2b(line.strip(), digest_size=16).digest()
        known = self._lines.execute("SELECT number, digest FROM seen WHERE id = ?", (id_,))
        found: tuple[int, bytes] | None = known.fetchone()
        if found is None:
            self._lines.execute("INSERT INTO seen VALUES (?, ?, ?)", (id_, number, digest))
        elif found[1] != digest:
            return Unusable(f"has the letter {id_} of line {found[0]} again, and differently")
        return None


def _numbered(lines: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := lines.readline(_LONGEST_LINE):
        number += 1
        if line.strip():
            yield number, line


def _read(line: bytes) -> Kept | Unusable:
    if len(line) >= _LONGEST_LINE:
        return Unusable("is longer than any letter")
    return read_line(line)


def _batches(lines: IO[bytes], file: Path) -> Iterator[list[Kept]]:
    batch: list[Kept] = []
    held = 0
    for number, line in _numbered(lines):
        answer = _read(line)
        if isinstance(answer, Unusable):
            name = _name(file)
            raise RedriveError(f"{name} changed while it was read: line {number} {answer.reason}")
        if batch and (len(batch) == _AT_ONCE or held + len(line) > _BYTES_AT_ONCE):
            yield batch
            batch, held = [], 0
        batch.append(answer)
        held += len(line)
    if batch:
        yield batch


# While it lasts


class _Progress:
    """A counter on stderr, where that is a terminal."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._wanted = sys.stderr.isatty()
        self._shown_at = time.monotonic()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, count: int) -> None:
        if self._wanted and time.monotonic() - self._shown_at > 0.5:
            sys.stderr.write(f"\r\x1b[K{self._verb} {wording.plural(count, 'letter')} …")
            sys.stderr.flush()
            self._shown_at = time.monotonic()
            self._shown = True
