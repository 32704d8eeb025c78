"""Browsers that have the console open: each listens to the live events of a server."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

import uvloop

from bench.movers.told import move_until_told

_REQUEST = "GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n"


async def listen(address: str, clients: int, stop: asyncio.Event) -> None:
    """Listen with so many clients until told to stop."""
    listening = [asyncio.create_task(_one(address)) for _ in range(clients)]
    await stop.wait()
    for each in listening:
        each.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    if lost := [each for each in listening if not each.cancelled()]:
        raise RuntimeError(f"a client did not listen to the end: {lost[0]}")


async def _one(address: str) -> None:
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(_REQUEST.format(host=parts.netloc).encode())
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"the server answered {status!r}")
    while await reader.read(65_536):
        pass
    raise RuntimeError("the server ended the stream")


if __name__ == "__main__":
    _, address, clients, _ = sys.argv
    uvloop.run(move_until_told(lambda stop: listen(address, int(clients), stop)))
