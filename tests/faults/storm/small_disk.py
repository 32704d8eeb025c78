"""A disk that can be filled: a few megabytes that only their guests see.

It is mounted in a mount namespace which one process holds, so it is gone with that process, and
that one with ours, however we end. Guests are started through `entrance`. Needs root.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from redrive.broker.processes import GuardedProcess
from tests.services.eventually import eventually

CHUNK: Final = bytes(1 << 20)


class SmallDisk:
    """A file system of some megabytes, seen at a folder by those who came through the entrance."""

    def __init__(self, folder: Path, megabytes: int, owner: tuple[int, int]) -> None:
        folder.mkdir()
        user, group = owner
        options = f"size={megabytes}m,mode=0700,uid={user},gid={group}"
        mount = f'mount -t tmpfs -o {options} redrive-storm "$0" && exec sleep infinity'
        self._folder = folder
        self._holder = GuardedProcess(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, str(folder)],
            env=dict(os.environ),
            cwd=folder.parent,
            output=folder.parent / "disk.log",
        )
        eventually(self._is_mounted, what="a small disk")

    @property
    def entrance(self) -> list[str]:
        """What stands before a command that is to see the disk. It execs: the pid stays."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--"]

    def fill(self) -> None:
        """Leave no byte free."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(CHUNK):
                pass

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        self._holder.kill()

    @property
    def _inside(self) -> Path:
        """The disk as we can reach it, who are outside."""
        return Path(f"/proc/{self._holder.pid}/root{self._folder}")

    @property
    def _ballast(self) -> Path:
        return self._inside / "ballast"

    def _is_mounted(self) -> bool:
        assert self._holder.alive, "mount was refused"
        return "redrive-storm" in Path(f"/proc/{self._holder.pid}/mounts").read_text()
