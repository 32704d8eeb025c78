"""`redrive run` tells systemd, or whoever listens at NOTIFY_SOCKET, how it does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.command_line import ENDS_WITHIN, CommandLine
from tests.services.eventually import DEADLINE
from tests.services.plugin import Vhost
from tests.services.proxy import Proxy

TIERS = ("100ms", "200ms")
WITHIN = DEADLINE


@dataclass(frozen=True)
class Listening:
    """A real datagram socket, as systemd has it."""

    address: str
    socket: socket.socket

    async def hears(self, said: str) -> list[str]:
        """Everything up to and with the first message that has a line."""
        heard: list[str] = []
        async with asyncio.timeout(WITHIN):
            while not heard or said not in heard[-1].splitlines():
                message = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
                heard.append(message.decode())
        return heard


@pytest.fixture(params=["a path", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    abstract = request.param != "a path"
    address = f"@redrive-{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + address[1:] if abstract else address)
        listening.setblocking(False)
        yield Listening(address, listening)


def command_line(folder: Path, broker: str, manager: str, **more: str) -> CommandLine:
    environment = {"NOTIFY_SOCKET": manager, **more}
    redrive = CommandLine(
        folder, broker, TIERS, more="[server]\nport = 0\n", environment=environment
    )
    redrive.write_settings()
    return redrive


async def test_it_is_ready_when_every_role_works_and_tells_when_it_stops(
    vhost: Vhost, tmp_path: Path, manager: Listening
) -> None:
    async with Proxy("127.0.0.1", vhost.node.port) as proxy:
        proxy.refuse()
        url = proxy.through(vhost.url)
        redrive = command_line(tmp_path, url, manager.address, WATCHDOG_USEC="400000")
        process = redrive.start("run")
        try:
            await manager.hears("STATUS=waiting for broker and store")
            # Without the broker it is alive, and not ready.
            await redrive.has_logged("run.unavailable", "topology")
            before = await manager.hears("WATCHDOG=1")
            assert not any("READY=1" in each for each in before)
            await proxy.accept()
            heard = await manager.hears("READY=1")
            assert any(each == "WATCHDOG=1" for each in heard)
            (ready,) = redrive.logged("run.ready")
            consumed = {each["queue"] for each in redrive.logged("mover.ready")}
            assert consumed == {"retry-queue", "retry-queue-1", "retry-queue-2"}
            assert redrive.logged("collector.ready")
            assert redrive.logged("worker.ready")
            assert len(ready["roles"]) == 5
            assert await asyncio.to_thread(process.terminate, ENDS_WITHIN)
            assert process.exit_code == 0, redrive.log.read_text()
            assert not any("READY=1" in each for each in await manager.hears("STOPPING=1"))
        finally:
            process.kill()


async def test_a_watchdog_of_another_process_and_a_manager_that_is_gone_are_no_matter(
    vhost: Vhost, tmp_path: Path
) -> None:
    watchdog = {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    redrive = command_line(tmp_path, vhost.url, str(tmp_path / "nobody"), **watchdog)
    await redrive.done("topology", "apply")
    async with redrive.running(admin_url=vhost.url, queues=("retry-queue",)):
        await redrive.has_logged("run.ready", "retrier")
    assert len(redrive.logged("run.manager_not_told")) == 1
