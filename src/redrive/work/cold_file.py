"""One file of cold storage: letters as lines of an export, compressed, and a manifest beside it.

    019c….-1000.jsonl.zst     what `letters export --exact` would write of these letters
    019c….-1000.json          the manifest: how many, which, when, why, and two checksums

Guarantees: both are complete, on the disk and private to the user when they appear under their
names, the manifest last; so a file without one was not finished. Nothing of a file is given out
whose checksums are not those of its manifest. The lines need no Redrive to be read: `zstd -dc` and
`sha256sum` tell the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Final, TypeVar

from redrive.domain.letter import Kept
from redrive.errors import ColdStorageError
from redrive.work.exact import NotExact, from_document, to_document
from redrive.work.export import Unusable, read_line

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_Told = TypeVar("_Told")

FORMAT: Final = 1
SUFFIX: Final = ".jsonl.zst"
PART: Final = ".part"

_LONGEST_LINE: Final = 2**30
_LARGEST_MANIFEST: Final = 2**16
_CHUNK: Final = 2**20
_MOST_PROBLEMS: Final = 10


@dataclass(frozen=True, slots=True)
class Digest:
    """How many bytes there are, and their checksum."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a file holds, as the manifest beside it says."""

    format: int
    redrive: str
    """The version that wrote it."""
    why: str
    created_at: datetime
    letters: int
    first_id: str
    last_id: str
    file: Digest
    """Of the file as it is."""
    content: Digest
    """Of the lines, uncompressed."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at every byte of a file has found."""

    manifest: Manifest | None
    ids: tuple[str, ...]
    """Of the letters that can be read."""
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.problems


# Writing


def write_part(path: Path, fill: Callable[[IO[bytes]], _Told]) -> tuple[Path, _Told]:
    """Write a new file that is not yet `path`, private to the user; it, and what `fill` told. It is
    on the disk, or gone if that fails."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=PART, dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            told = fill(out)
            out.flush()
            os.fsync(out.fileno())
            if hasattr(os, "posix_fadvise"):  # so that it is the disk that is read back
                os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part, told


def write_lines(out: IO[bytes], lines: Iterable[bytes]) -> tuple[Digest, Digest]:
    """Compress lines into a file; what the file and its content are."""
    hashing = _Hashing(out.write)
    content = _Hashing(lambda _: None)
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    for line in lines:
        content(line)
        hashing(compressor.compress(line))
    hashing(compressor.flush())
    return hashing.digest(), content.digest()


def settle(part: Path, path: Path) -> None:
    """Give a complete file its name, for good."""
    part.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What was made or renamed in a folder is there after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Hashing:
    """Passes bytes on, and knows their digest."""

    def __init__(self, then: Callable[[bytes], object]) -> None:
        self._then = then
        self._sha256 = hashlib.sha256()
        self._bytes = 0

    def __call__(self, data: bytes) -> None:
        self._sha256.update(data)
        self._bytes += len(data)
        self._then(data)

    def digest(self) -> Digest:
        return Digest(self._bytes, self._sha256.hexdigest())


def digest_of(path: Path) -> Digest:
    """Of a file as it is."""
    hashing = _Hashing(lambda _: None)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hashing(chunk)
    return hashing.digest()


# The manifest


def manifest_path(path: Path) -> Path:
    """Where the manifest of a file is."""
    return path.with_name(path.name.removesuffix(SUFFIX) + ".json")


def manifest_text(manifest: Manifest) -> bytes:
    return json.dumps(to_document(manifest), indent=2).encode() + b"\n"


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file; `ColdStorageError` if there is none that can be read."""
    try:
        with manifest_path(path).open("rb") as file:
            document = json.loads(file.read(_LARGEST_MANIFEST))
        return _manifest(document)
    except FileNotFoundError:
        raise ColdStorageError("has no manifest: it was not finished, or that was lost") from None
    except OSError as error:
        raise ColdStorageError(f"has a manifest that cannot be read: {error.strerror}") from None
    except NotExact as error:
        raise ColdStorageError(f"has a manifest that is not sound: {error}") from None
    except (ValueError, RecursionError):
        raise ColdStorageError("has a manifest that is no JSON") from None


def _manifest(document: object) -> Manifest:
    if isinstance(document, dict) and document.get("format", FORMAT) != FORMAT:
        raise NotExact("format", f"{FORMAT}, which is what this version reads")
    return from_document(Manifest, document)


# Reading


class Reading:
    """One way through a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _Hashing(lambda _: None)
        self._content = _Hashing(lambda _: None)

    def lines(self) -> Iterator[bytes]:
        """Its lines; `ColdStorageError` where it cannot be read any further."""
        try:
            with self._path.open("rb") as raw:
                decompressor = zstd.ZstdDecompressor()
                held: list[bytes] = []
                while chunk := raw.read(_CHUNK):
                    self._file(chunk)
                    for data in _decompressed(decompressor, chunk):
                        yield from self._split(data, held)
                if held:
                    yield b"".join(held)
                if not decompressor.eof:
                    raise ColdStorageError("is cut short")
        except FileNotFoundError:
            raise ColdStorageError("is not there") from None
        except OSError as error:
            raise ColdStorageError(f"cannot be read: {error.strerror}") from None
        except zstd.ZstdError:
            raise ColdStorageError("is damaged: it cannot be decompressed") from None

    def _split(self, data: bytes, held: list[bytes]) -> Iterator[bytes]:
        self._content(data)
        *whole, rest = data.split(b"\n")
        for line in whole:
            yield b"".join((*held, line, b"\n"))
            held.clear()
        if rest:
            held.append(rest)
        if sum(map(len, held)) > _LONGEST_LINE:
            raise ColdStorageError("has a line that is longer than any letter")

    def differences(self, manifest: Manifest) -> Iterator[str]:
        """What is not as the manifest says, once all lines were read."""
        for name, found, expected in (
            ("file", self._file.digest(), manifest.file),
            ("content", self._content.digest(), manifest.content),
        ):
            if found.bytes != expected.bytes:
                yield f"{name}: expected {expected.bytes} bytes, got {found.bytes}"
            elif found.sha256 != expected.sha256:
                yield f"{name}: expected sha256 {expected.sha256}, got {found.sha256}"


def _decompressed(decompressor: zstd.ZstdDecompressor, chunk: bytes) -> Iterator[bytes]:
    """A little at a time, however much is in it. What stands behind the end is left to the
    checksum."""
    while not decompressor.eof:
        data = decompressor.decompress(chunk, _CHUNK)
        chunk = b""
        if data:
            yield data
        if decompressor.needs_input:
            return


def check(path: Path) -> Checked:
    """Read every byte; what is wrong, and where."""
    if not os.path.lexists(path):
        return Checked(None, (), ("is not there",))
    problems: list[str] = []
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(path)
    except ColdStorageError as error:
        problems.append(str(error))
    reading = Reading(path)
    ids: list[str] = []
    try:
        for number, line in enumerate(reading.lines(), 1):
            answer = read_line(line)
            if not isinstance(answer, Unusable):
                ids.append(answer.letter.id)
            elif len(problems) < _MOST_PROBLEMS:
                problems.append(f"line {number} {_of_a_line(answer.reason)}")
    except ColdStorageError as error:
        problems.append(str(error))
    else:
        if manifest is not None:
            problems += reading.differences(manifest)
            problems += _miscounted(manifest, ids)
    return Checked(manifest, tuple(ids), tuple(problems))


def _of_a_line(reason: str) -> str:
    return reason if reason.startswith(("is ", "has ", "was ")) else f"is not sound: {reason}"


def _miscounted(manifest: Manifest, ids: list[str]) -> Iterator[str]:
    if manifest.letters != len(ids):
        yield f"expected {manifest.letters} letters, got {len(ids)}"
    elif ids and (manifest.first_id, manifest.last_id) != (ids[0], ids[-1]):
        yield f"expected {manifest.first_id} to {manifest.last_id}, got {ids[0]} to {ids[-1]}"


def read_sound(path: Path, wanted: Collection[str] | None = None) -> list[Kept]:
    """The letters of a file, or those of them that are wanted, after all of it was read and found
    to be what its manifest says; `ColdStorageError` if it is not."""
    manifest = read_manifest(path)
    reading = Reading(path)
    found: list[Kept] = []
    letters = 0
    for number, line in enumerate(reading.lines(), 1):
        answer = read_line(line)
        if isinstance(answer, Unusable):
            raise ColdStorageError(f"line {number} {_of_a_line(answer.reason)}")
        letters += 1
        if wanted is None or answer.letter.id in wanted:
            found.append(answer)
    for difference in reading.differences(manifest):
        raise ColdStorageError(difference)
    if letters != manifest.letters:
        raise ColdStorageError(f"expected {manifest.letters} letters, got {letters}")
    return found
