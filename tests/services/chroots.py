"""Folders that hold RabbitMQ 4.0 and 4.3 with the Debian release that has them.

A folder is made once, by debootstrap, and kept in the user's cache between runs. It is made under
another name and renamed when complete, under a lock: an interrupted run leaves nothing half-made,
and of two runs one waits for the other. debootstrap runs in a mount namespace of its own, so what
it mounts goes with it. Needs root. Whatever goes wrong raises CannotStart: a version that was asked
for and cannot be had fails the run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from redrive.broker.processes import GuardedProcess, remove_at_exit, removed
from redrive.errors import CannotStart

RELEASES = {"4.0": "trixie", "4.3": "sid"}
TIMEOUT = 900.0


def root_of(version: str) -> Path | None:
    """The folder with this version of RabbitMQ, made if need be; None for "", the machine's own."""
    if not version:
        return None
    if version not in RELEASES:
        raise CannotStart(
            f"no RabbitMQ {version!r} to test with",
            remedy=f"set REDRIVE_TEST_RABBITMQ to one of {', '.join(RELEASES)} or leave it empty",
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redrive"
    root = cache / f"rabbitmq-{version}"
    if root.is_dir():
        return root
    _check_tools()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"rabbitmq-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            for leftover in cache.glob(f"rabbitmq-{version}.making-*"):
                shutil.rmtree(leftover, ignore_errors=True)  # its reaper may be at it too
            _make(root, version)
    return root


def _check_tools() -> None:
    if os.geteuid() != 0:
        raise CannotStart("only root can make and use a chroot", remedy="run the matrix as root")
    if shutil.which("debootstrap") is None:
        raise CannotStart("debootstrap is missing", remedy="apt-get install debootstrap")


def _make(root: Path, version: str) -> None:
    making = Path(tempfile.mkdtemp(prefix=f"{root.name}.making-", dir=root.parent))
    remove_at_exit(making)
    making.chmod(0o755)
    log = making / "making.log"
    code = _debootstrap(RELEASES[version], making, log)
    if code != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise CannotStart(f"debootstrap {RELEASES[version]} failed (exit {code}):\n{end}")
    found = [p.name.rpartition("-")[2] for p in making.glob("usr/lib/rabbitmq/lib/*-*")]
    if not any(have == version or have.startswith(f"{version}.") for have in found):
        raise CannotStart(f"Debian {RELEASES[version]} has RabbitMQ {found}, not {version}")
    # without it the node hangs looking for localhost
    shutil.copy("/etc/hosts", making / "etc/hosts")
    for package in (making / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    making.rename(root)
    removed(making)


def _debootstrap(release: str, target: Path, log: Path) -> int:
    command = ["unshare", "--mount", "--propagation", "private", "--", "debootstrap"]
    command += ["--variant=minbase", "--include=rabbitmq-server", release, str(target), *_mirror()]
    process = GuardedProcess(command, env=dict(os.environ), cwd=target.parent, output=log)
    deadline = time.monotonic() + TIMEOUT
    try:
        while process.alive:
            if time.monotonic() > deadline:
                raise CannotStart(f"debootstrap {release} took more than {TIMEOUT:.0f} s")
            time.sleep(0.2)
    finally:
        process.kill()
    code = process.exit_code
    assert code is not None
    return code


def _mirror() -> list[str]:
    """The Debian archive that apt uses here; none: debootstrap's own choice."""
    wanted = "$(ORIGIN)|$(LABEL)|$(REPO_URI)"
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", wanted],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    for line in listed.splitlines():
        origin, label, uri = line.split("|", 2)
        if origin == label == "Debian":
            return [uri]
    return []
