"""Where RabbitMQ is installed, and Erlang's port mapper: what a private node stands on.

An installation is this machine's, or that of a folder with a whole system in it (a chroot, as root:
other versions of RabbitMQ). What runs in such a folder has its own mount namespace, so its mounts
end with it. A RabbitMQ that is not there raises CannotStart and says what to install.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from redrive.broker.processes import GuardedProcess, free_ports
from redrive.errors import CannotStart

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SCRIPT_FOLDERS = (
    "usr/lib/rabbitmq/bin",
    "opt/rabbitmq/sbin",
    "usr/local/opt/rabbitmq/sbin",
    "opt/homebrew/opt/rabbitmq/sbin",
)

# In a mount namespace of its own: the mounts end with the process, nothing is left to unmount.
_IN_ROOT = (
    'root=$1; shared=$2; shift 2; mount -t proc proc "$root/proc" '
    '&& mount --bind "$shared" "$root$shared" && exec chroot "$root" "$@"'
)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Where RabbitMQ is: on this machine, or in a folder that holds a whole system (as root)."""

    scripts: str
    root: Path | None = None

    @classmethod
    def find(cls, root: Path | None = None) -> Self:
        """The package's own scripts: the wrappers in sbin would change to the user rabbitmq."""
        for folder in _SCRIPT_FOLDERS:
            if ((root or Path("/")) / folder / "rabbitmq-server").exists():
                return cls(scripts=f"/{folder}", root=root)
        raise CannotStart(
            f"RabbitMQ is not installed{f' in {root}' if root else ''}",
            remedy="install it: apt-get install rabbitmq-server",
        )

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command as it must be run to be inside `root`. Temporary files keep their paths."""
        if self.root is None:
            return list(argv)
        shared = tempfile.gettempdir()
        (self.root / shared.lstrip("/")).mkdir(parents=True, exist_ok=True)
        outer = ["unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", _IN_ROOT]
        return [*outer, "sh", str(self.root), shared, *argv]


@dataclass
class Epmd:
    """Erlang's port mapper, one for all nodes of a cluster."""

    installation: Installation
    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    _process: GuardedProcess | None = None

    def environment(self) -> dict[str, str]:
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int:
        if self._process is None:
            raise CannotStart("this epmd was never started")
        return self._process.pid

    def start(self) -> None:
        """Start it unless it runs. In the foreground: a daemon would have a pid we do not know."""
        if not self.running:
            self._process = GuardedProcess(
                self.installation.command(["epmd"]),
                env=self.environment(),
                cwd=self.folder,
                output=self.folder / "epmd.log",
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()


def log_end(path: Path, lines: int) -> str:
    """The last lines of a log; of a failed boot those before Erlang's own crash report."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 64 * 1024))
            text = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    causes = [number for number, line in enumerate(text, 1) if "Error during startup" in line]
    return "\n".join(text[: causes[-1] if causes else None][-lines:])
