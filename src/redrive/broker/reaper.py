"""The process that ends what its parent started, should the parent die without doing so itself.

Run as a script, with nothing but the standard library. It reads orders from stdin, one a line:

    watch PID START     kill this process group at the end (START guards against a reused pid)
    forget PID          it has ended
    folder PATH         remove this folder at the end
    keep PATH           ... no more

The end is the end of stdin: the kernel closes the parent's side of the pipe however the parent
dies, kill -9 included, and whichever of its threads started what. (A parent-death signal would not
do: it fires when the *thread* that forked ends, and is lost over a setuid exec.)
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PATIENCE = 10.0


def start_time(pid: int) -> str:
    """When the process began, in the kernel's ticks; "" if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "" if Path("/proc/self").exists() or not _exists(pid) else "?"
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def obey(orders: Iterable[str]) -> tuple[dict[int, str], list[str]]:
    """Read the orders to their end; return what is still to be killed and removed."""
    watched: dict[int, str] = {}
    folders: list[str] = []
    for line in orders:
        order, _, rest = line.rstrip("\n").partition(" ")
        if order == "watch":
            pid, _, began = rest.partition(" ")
            watched[int(pid)] = began
        elif order == "forget":
            watched.pop(int(rest), None)
        elif order == "folder":
            folders.append(rest)
        elif order == "keep" and rest in folders:
            folders.remove(rest)
    return watched, folders


def reap(watched: dict[int, str], folders: list[str]) -> None:
    """Kill every group that is still the one we were told of, wait for it, remove the folders."""
    alive = {pid: began for pid, began in watched.items() if began and start_time(pid) == began}
    for pid in alive:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(start_time(p) == b for p, b in alive.items()):
        time.sleep(0.02)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    reap(*obey(sys.stdin))
