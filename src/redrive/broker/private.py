"""A private RabbitMQ node, or a cluster of them, in temporary folders.

For `redrive demo` and for the tests. Guarantees: it listens on loopback only, with ports, cookie,
epmd, data and log of its own, so that any number run side by side and a broker of the machine is
never touched. `kill` is a kill -9 of the Erlang machine itself; `restart` comes back with the same
data and ports. When this process ends, however it ends, the node ends and its folder goes (see
processes.py).

A node that does not start raises CannotStart with the end of its log. Everything here blocks:
asynchronous callers go through `asyncio.to_thread`.
"""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from redrive.broker.erlang import Epmd, Installation, log_end
from redrive.broker.processes import GuardedProcess, free_ports, remove_at_exit, removed
from redrive.errors import BrokerError, CannotStart

USER = PASSWORD = "guest"  # noqa: S105 - the broker lets it in from loopback only
PLUGINS = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
BOOT_TIMEOUT = 120.0
STOP_TIMEOUT = 60.0


class PrivateNode:
    """One node. `with PrivateNode() as node:` starts it, waits until it serves, and removes it."""

    def __init__(
        self,
        *,
        root: Path | None = None,
        extra_config: str = "",
        name: str | None = None,
        cookie: str | None = None,
        epmd: Epmd | None = None,
    ) -> None:
        """Choose ports and make the folder; `start` starts.

        `root` is a folder with a whole system in it (see Installation); `extra_config` holds more
        lines for rabbitmq.conf; `name`, `cookie` and `epmd` are shared within a cluster.
        """
        self.installation = Installation.find(root)
        self.folder = Path(tempfile.mkdtemp(prefix="redrive-rabbitmq-"))
        remove_at_exit(self.folder)
        self.name = name or f"redrive-{secrets.token_hex(4)}@localhost"
        self.port, self.dist_port, self.management_port = free_ports(3)
        self._owns_epmd = epmd is None
        self.epmd = epmd or Epmd(self.installation, self.folder)
        self._process: GuardedProcess | None = None
        self._lay_out(cookie or secrets.token_hex(16), extra_config)

    # -- what it is ------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The pid of the Erlang machine (beam.smp)."""
        if self._process is None:
            raise BrokerError(f"the private node {self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process is there; paused counts."""
        return self._process is not None and self._process.alive

    @property
    def management_url(self) -> str:
        return f"http://127.0.0.1:{self.management_port}"

    def url(self, vhost: str = "/") -> str:
        """The AMQP URL of a vhost, with user and password."""
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def log_tail(self, lines: int = 25) -> str:
        """The end of what the node wrote: its console, then its log."""
        tails = [log_end(self.folder / name, lines) for name in ("console.log", "log/node.log")]
        return "\n".join(tail for tail in tails if tail)

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and return at once; `wait_ready` waits. Nothing happens if it runs."""
        if self.running:
            return
        self.epmd.start()
        self._process = GuardedProcess(
            self.installation.command([f"{self.installation.scripts}/rabbitmq-server"]),
            env=self._environment(),
            cwd=self.folder,
            output=self.folder / "console.log",
        )

    def wait_ready(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Return when it answers on AMQP and on its management API."""
        deadline = time.monotonic() + timeout
        while not (self._speaks_amqp() and self._speaks_http()):
            if not self.running:
                code = self._process.exit_code if self._process else None
                raise CannotStart(
                    f"RabbitMQ {self.name} ended while starting (exit {code}):\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise CannotStart(
                    f"RabbitMQ {self.name} was not ready in {timeout:.0f} s:\n{self.log_tail()}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """An orderly end, as on SIGTERM; its data stay. A paused node goes on first."""
        if self._process is not None:
            self._process.terminate(STOP_TIMEOUT)
        if self._owns_epmd:
            self.epmd.stop()

    def kill(self) -> None:
        """kill -9; its data stay as they were at that moment."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            self._process.send(signal.SIGCONT)

    def restart(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Come back with the same data and ports, after `stop`, after `kill`, or while it runs."""
        if self.running:
            self.stop()
        self.start()
        self.wait_ready(timeout)

    def close(self) -> None:
        """End it for good and remove its folder. Safe to call twice."""
        self.kill()
        if self._owns_epmd:
            self.epmd.stop()
        if self.folder.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            removed(self.folder)

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- talking to it ---------------------------------------------------------------------------

    def ctl(self, *args: str, timeout: float = 60.0) -> str:
        """Run rabbitmqctl against it and return what it printed. Takes about two seconds."""
        port = str(free_ports(1)[0])
        env = self._environment()
        env |= {"RABBITMQ_CTL_DIST_PORT_MIN": port, "RABBITMQ_CTL_DIST_PORT_MAX": port}
        command = [f"{self.installation.scripts}/rabbitmqctl", "-q", "-n", self.name, *args]
        try:
            done = subprocess.run(  # noqa: S603 - the arguments are our own
                self.installation.command(command),
                env=env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BrokerError(f"rabbitmqctl {args[0]} took more than {timeout:.0f} s") from error
        if done.returncode != 0:
            raise BrokerError(
                f"rabbitmqctl {' '.join(args)}: {(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def api(self, method: str, path: str, body: Any = None, *, timeout: float = 30.0) -> Any:
        """Call the management API: `path` begins after /api/. Returns the parsed answer or None."""
        request = urllib.request.Request(  # noqa: S310 - always http to loopback
            f"{self.management_url}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": _BASIC, "Content-Type": "application/json"},
        )
        try:
            with _direct.open(request, timeout=timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")
            raise BrokerError(f"{method} {path}: {error.code} {reason}") from error
        except OSError as error:
            raise BrokerError(f"{method} {path}: {error}") from error
        return json.loads(text) if text else None

    def create_vhost(self, name: str) -> None:
        """Make a vhost that the user guest may do anything in."""
        vhost = quote(name, safe="")
        self.api("PUT", f"vhosts/{vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.api("PUT", f"permissions/{vhost}/{USER}", everything)

    def delete_vhost(self, name: str) -> None:
        """Remove a vhost with all that is in it."""
        self.api("DELETE", f"vhosts/{quote(name, safe='')}")

    def settle(self) -> None:
        """Have the broker write down which queues it has.

        By itself it does so some time later. A single node killed with -9 right after a quorum
        queue was declared came back without what had been confirmed in it: on 3.10 and 4.0 the
        queue had no leader, on 4.3 it was empty. After a sync all of it was there, on all three.
        What is declared is in the log of Mnesia before it is anywhere else.
        """
        self.ctl("eval", "[dets:sync(Table) || Table <- dets:all()], catch mnesia:sync_log().")

    def peers(self) -> set[str]:
        """The names of the cluster's nodes that this one sees running, its own among them."""
        return {node["name"] for node in self.api("GET", "nodes") if node.get("running")}

    # -- within ----------------------------------------------------------------------------------

    def _lay_out(self, cookie: str, extra_config: str) -> None:
        for name in ("data", "log", "home"):
            (self.folder / name).mkdir()
        secret = self.folder / "home" / ".erlang.cookie"
        secret.write_text(cookie)
        secret.chmod(0o400)
        (self.folder / "env.conf").touch()
        (self.folder / "enabled_plugins").write_text(f"[{','.join(PLUGINS)}].\n")
        (self.folder / "rabbitmq.conf").write_text(
            f"management.tcp.ip = 127.0.0.1\n"
            f"management.tcp.port = {self.management_port}\n"
            "log.console = false\n"
            "log.file = node.log\n"
            "disk_free_limit.absolute = 50MB\n"
            "vm_memory_high_watermark.relative = 0.3\n"
            f"{extra_config.rstrip()}\n"
        )

    def _environment(self) -> dict[str, str]:
        """All of it: nothing of the caller's environment reaches the node."""
        folder = self.folder
        return self.epmd.environment() | {
            "HOME": f"{folder}/home",
            # the script then becomes the Erlang machine instead of waiting for it: one pid
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
            ),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/env.conf",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
        }

    def _speaks_amqp(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
                probe.sendall(b"AMQP\x00\x00\x09\x01")
                return probe.recv(1) == b"\x01"
        except OSError:
            return False

    def _speaks_http(self) -> bool:
        try:
            self.api("GET", "overview", timeout=5)  # on 4.3 the last to work
        except BrokerError:
            return False
        return True


class PrivateCluster:
    """Nodes of one cluster. Each may be killed and restarted: `cluster.nodes[1].kill()`."""

    def __init__(self, size: int = 3, *, root: Path | None = None, extra_config: str = "") -> None:
        """Choose names and ports; `start` starts."""
        self._folder = Path(tempfile.mkdtemp(prefix="redrive-cluster-"))
        remove_at_exit(self._folder)
        run, cookie = secrets.token_hex(4), secrets.token_hex(16)
        names = [f"redrive-{run}-{number}@localhost" for number in range(1, size + 1)]
        self._epmd = Epmd(Installation.find(root), self._folder)
        self.nodes = [
            PrivateNode(
                root=root,
                extra_config=f"{extra_config.rstrip()}\n{_joining(names[:number])}",
                name=name,
                cookie=cookie,
                epmd=self._epmd,
            )
            for number, name in enumerate(names, 1)
        ]

    def __iter__(self) -> Iterator[PrivateNode]:
        return iter(self.nodes)

    @property
    def management_url(self) -> str:
        """Of the first node that runs."""
        return self._first_running().management_url

    def url(self, vhost: str = "/") -> str:
        """The URLs of all nodes, with commas between."""
        return ",".join(node.url(vhost) for node in self.nodes)

    def start(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Start the nodes one after another; `wait_ready` waits until they are one cluster.

        Each serves before the next one starts, and knows only those before it: of three that
        initialise at once, now and then one ends while it boots (3.10.8, on a busy machine), and
        4.x waits for all that it knows.
        """
        for node in self.nodes:
            node.start()
            node.wait_ready(timeout)

    def wait_ready(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Return when every node has started to the end and sees all others running.

        A node serves a little before its start is complete, and a vhost made in between never
        starts on it.
        """
        deadline = time.monotonic() + timeout
        for node in self.nodes:
            node.wait_ready(max(1.0, deadline - time.monotonic()))
        while not all(node.peers() == {n.name for n in self.nodes} for node in self.nodes):
            if time.monotonic() > deadline:
                seen = {node.name: sorted(node.peers()) for node in self.nodes}
                raise CannotStart(f"the nodes did not form one cluster in {timeout:.0f} s: {seen}")
            time.sleep(0.2)
        for node in self.nodes:
            node.ctl("await_startup")

    def create_vhost(self, name: str) -> None:
        self._first_running().create_vhost(name)

    def delete_vhost(self, name: str) -> None:
        self._first_running().delete_vhost(name)

    def close(self) -> None:
        """End all nodes for good and remove their folders. Safe to call twice."""
        for node in self.nodes:
            node.close()
        self._epmd.stop()
        if self._folder.exists():
            shutil.rmtree(self._folder, ignore_errors=True)
            removed(self._folder)

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first_running(self) -> PrivateNode:
        for node in self.nodes:
            if node.running:
                return node
        raise BrokerError("no node of the private cluster runs")


def _joining(names: Sequence[str]) -> str:
    """The lines of rabbitmq.conf by which a node joins those named, itself among them."""
    lines = ["cluster_formation.peer_discovery_backend = classic_config"]
    lines += [f"cluster_formation.classic_config.nodes.{i} = {n}" for i, n in enumerate(names, 1)]
    return "\n".join(lines)


_BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
# a proxy of the environment has no business between us and loopback
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
