"""`redrive run` as a process of its own, for tests that end it or need more than its server."""

from __future__ import annotations

import socket

import httpx

from redrive.broker.processes import GuardedProcess
from tests.acceptance.command_line import CommandLine
from tests.services.eventually import eventually_async


def free_port() -> int:
    """A port that nobody has, so that a server can come back to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


async def started(redrive: CommandLine, roles: str = "server", *, times: int = 1) -> GuardedProcess:
    """A process whose server answers, for the so-manieth time in this log."""
    process = redrive.start("run", "--roles", roles)

    async def answers() -> bool:
        listening = redrive.logged("server.listening")
        if len(listening) < times:
            return False
        address = listening[-1]["address"]
        async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60) as client:
            return (await client.get("/api/v1/session")).status_code == 200

    await eventually_async(answers, what="the server answers")
    return process
