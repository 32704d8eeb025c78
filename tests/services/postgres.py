"""A private PostgreSQL in a temporary folder, on a loopback port of its own.

It syncs to disk as in production, unless told otherwise. `kill` is a kill -9 of every one of its
processes at once, as when the machine goes down; `restart` comes back with what was committed. It
ends with this process, however that ends. A server that does not start raises CannotStart with the
end of its log.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil
import psycopg
from psycopg import sql

from redrive.broker.processes import GuardedProcess, free_ports, remove_at_exit, removed
from redrive.errors import CannotStart

USER = "redrive"
ACCOUNT = "postgres"
START_TIMEOUT = 60.0


class PrivatePostgres:
    """One server. `with PrivatePostgres() as server:` starts it, waits, and removes it."""

    def __init__(self, *, settings: Sequence[str] = ()) -> None:
        """`settings` come after those that every test has: `name=value`."""
        self.bin = _newest()
        self.entrance: Sequence[str] = ()
        """What stands before its commands: how it is started where its data folder is mounted."""
        self._settings = settings
        self._has_data = False
        self.folder = Path(tempfile.mkdtemp(prefix="redrive-postgres-"))
        remove_at_exit(self.folder)
        (self.port,) = free_ports(1)
        self._process: GuardedProcess | None = None

    @property
    def pid(self) -> int:
        """The pid of the postmaster."""
        if self._process is None:
            raise CannotStart("this PostgreSQL was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.alive

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it (with a new cluster of databases the first time) and wait until it answers."""
        if self.running:
            return
        data = self.folder / "data"
        if not self._has_data:
            self._init(data)
            self._has_data = True
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", "max_connections=200"]
        settings += [f"unix_socket_directories={self.folder}", "fsync=on", "synchronous_commit=on"]
        settings += ["dynamic_shared_memory_type=mmap"]  # in its folder: gone with it after kill -9
        settings += self._settings
        command = [str(self.bin / "postgres"), "-D", str(data)]
        for setting in settings:
            command += ["-c", setting]
        self._process = GuardedProcess(
            [*self.entrance, *_as_account(), *command],
            env=_environment(),
            cwd=self.folder,
            output=self.folder / "log",
        )
        self.wait_ready()

    def stop(self) -> None:
        """An orderly end (fast shutdown: open transactions are rolled back)."""
        if self._process is not None:
            self._process.terminate(30, signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the postmaster and all its children; returns when they are gone."""
        if self._process is None or not self._process.alive:
            return
        # backends have left the postmaster's process group; they would end by themselves, but later
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(children, timeout=10)

    def pause(self) -> None:
        """SIGSTOP of every process: connections stay open and nobody answers."""
        for process in self._family():
            process.suspend()

    def resume(self) -> None:
        for process in self._family():
            process.resume()

    def restart(self) -> None:
        """Come back with the same data and port, after `stop`, after `kill`, or while it runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it for good and remove its folder. Safe to call twice."""
        self.kill()
        if self.folder.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            removed(self.folder)

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        name = f"test_{secrets.token_hex(6)}"
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        """Remove it, whoever is still connected."""
        command = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._execute(command.format(sql.Identifier(name)))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _init(self, data: Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, ACCOUNT, ACCOUNT)
        command = [str(self.bin / "initdb"), "--auth=trust", f"--username={USER}", "--no-locale"]
        done = subprocess.run(
            [
                *self.entrance,
                *_as_account(),
                *command,
                "--encoding=UTF8",
                "--no-sync",
                "-D",
                str(data),
            ],
            env=_environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CannotStart(f"initdb failed:\n{done.stdout}")

    def wait_ready(self) -> None:
        """Return when it answers; CannotStart if it has ended, or does not in time."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if not self.running or time.monotonic() > deadline:
                    log = (self.folder / "log").read_text(errors="replace").splitlines()
                    end = "\n".join(log[-20:])
                    raise CannotStart(f"PostgreSQL did not start:\n{end}") from error
            time.sleep(0.05)

    def _execute(self, command: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(command)

    def _family(self) -> list[psutil.Process]:
        postmaster = psutil.Process(self.pid)
        return [postmaster, *postmaster.children(recursive=True)]


def _newest() -> Path:
    found = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "postgres").exists()]
    if not found:
        raise CannotStart("PostgreSQL is not installed", remedy="apt-get install postgresql")
    return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.parent.name)])


def _as_account() -> list[str]:
    """PostgreSQL refuses to run as root. setpriv execs, so the pid stays the server's."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam(ACCOUNT)
    except KeyError as error:
        raise CannotStart(f"there is no user {ACCOUNT} to run PostgreSQL as") from error
    return ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--init-groups", "--"]


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}
