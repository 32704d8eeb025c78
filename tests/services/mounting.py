"""File systems that tests mount: a small disk, a folder that cannot be written.

The whole machine sees them, ours included, which opens their files. That takes root: who is not
root gets it by `sudo`, as the set-up does for packages, and without a question, since nobody would
see it under pytest. Where that is not to be had, the test fails and says what to do.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A folder, made for it, with a disk of its own meanwhile, which this user may write to."""
    folder.mkdir()
    mine = f"mode=0700,uid={os.geteuid()},gid={os.getegid()}"
    _as_root("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,{mine}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _as_root("umount", "--lazy", str(folder))


def grow(disk: Path, megabytes: int) -> None:
    """Make a small disk as large as this."""
    _as_root("mount", "-o", f"remount,size={megabytes}m", str(disk))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that nobody can write to meanwhile, root neither."""
    _as_root("mount", "--bind", str(folder), str(folder))
    try:
        _as_root("mount", "-o", "remount,bind,ro", str(folder))
        yield
    finally:
        _as_root("umount", "--lazy", str(folder))


def _as_root(*command: str) -> None:
    ask = [] if os.geteuid() == 0 else ["sudo", "--non-interactive", "--"]
    try:
        ran = subprocess.run([*ask, *command], capture_output=True, text=True)  # noqa: PLW1510
        problem = ran.stderr.strip() or f"exit code {ran.returncode}" if ran.returncode else None
    except FileNotFoundError as error:
        problem = str(error)
    assert problem is None, (
        f"{' '.join(command)}: {problem}; tests mount file systems: run them as root, or as a user"
        " who may use sudo (where it asks for a password, after 'sudo -v' in the same terminal)"
    )
