"""Child processes that never outlive this one, and ports for them to listen on.

Guarantees: a `GuardedProcess` leads its own session (Ctrl-C in the terminal does not reach it), and
it is killed when this process ends in any way, `kill -9` included: see reaper.py. It does not begin
before the reaper knows of it, so there is no moment at which it could be forgotten. A folder given
to `remove_at_exit` is removed in the same way.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from redrive.broker import reaper
from redrive.errors import CannotStart

# The shell waits for a line, sent once the reaper has the pid. If we die before, it reads the end
# of the pipe and exits. exec keeps the pid, so what is watched is the program itself.
_HELD = 'read -r go && exec "$@" </dev/null'


class _Reaper:
    """This process's one reaper, started with the first thing that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def order(self, line: str) -> None:
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
            except OSError as error:
                raise CannotStart(
                    "the process that stops private servers has died",
                    remedy="start the command again; the servers it had started may still run",
                ) from error

    def _start(self) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", reaper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            text=True,
        )
        atexit.register(self._end)

    def _end(self) -> None:
        if self._process is None or self._owner != os.getpid():
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(reaper.PATIENCE + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()


_reaper = _Reaper()


def remove_at_exit(folder: Path) -> None:
    """Have the folder removed when this process ends, however it ends."""
    _reaper.order(f"folder {folder}")


def removed(folder: Path) -> None:
    """The folder is gone, or is to be kept."""
    _reaper.order(f"keep {folder}")


class GuardedProcess:
    """A running child, the leader of its own process group."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output: Path
    ) -> None:
        """Start it; its stdout and stderr are appended to `output`."""
        with output.open("ab") as sink:
            self._popen = subprocess.Popen(  # noqa: S603 - callers in this package
                ["/bin/sh", "-c", _HELD, "sh", *argv],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        assert self._popen.stdin is not None
        try:
            _reaper.order(f"watch {self.pid} {reaper.start_time(self.pid)}")
            self._popen.stdin.write(b"go\n")
        finally:
            self._popen.stdin.close()

    @property
    def pid(self) -> int:
        """The program's own pid, and its process group's."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended. A paused process is alive."""
        if self._popen.poll() is None:
            return True
        self._ended()
        return False

    @property
    def exit_code(self) -> int | None:
        """As Popen.returncode: negative for a signal, None while alive."""
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; nothing happens if it has ended."""
        if self._popen.poll() is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return

    def pause(self) -> None:
        """SIGSTOP to the whole group; returns when it has stopped, which takes a busy machine a
        moment."""
        self.send(signal.SIGSTOP)
        if self._popen.poll() is None:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """kill -9 of the whole group; returns when it is gone."""
        self.send(signal.SIGKILL)
        self._popen.wait()
        self._ended()

    def terminate(self, timeout: float, number: signal.Signals = signal.SIGTERM) -> bool:
        """Ask it to end; after `timeout` seconds kill it. False if it had to be killed."""
        if self._popen.poll() is None:
            os.kill(self.pid, number)
            self.send(signal.SIGCONT)
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._ended()
        return True

    def _ended(self) -> None:
        _reaper.order(f"forget {self.pid}")


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nothing listens on, outside the range of outgoing connections.

    A port from inside that range can be taken by any client's socket while a killed server is
    down, and a client that keeps dialling a dead port there can even end up connected to itself.
    """
    lowest = _first_outgoing_port()
    found: list[int] = []
    while len(found) < count:
        # the system's randomness: test runs with the same seed must not choose the same ports
        wanted = 10_000 + secrets.randbelow(lowest - 10_000) if lowest > 15_000 else 0
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
        if port not in found:
            found.append(port)
    return found


def _first_outgoing_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        return int(text.split()[0])
    except (OSError, ValueError, IndexError):
        return 0
