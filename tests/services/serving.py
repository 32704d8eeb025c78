"""The server in this process, on a port of its own, called by a real HTTP client."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from redrive import runtime
from redrive.domain.access import Role
from redrive.domain.letter import Arrival
from redrive.events import Events
from redrive.server.app import Application
from redrive.server.serving import Serving, address_of, listen
from redrive.settings import Settings, load
from redrive.store.store import Store
from redrive.work.passwords import PREFIX, Passwords, digest, new_secret
from tests.services.letters import letter_store

V1 = "/api/v1"
# These servers speak plain HTTP: no client needs to read all certificates that the world trusts.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True)
class Server:
    """A server that is up, and its store."""

    address: str
    settings: Settings
    store: Store
    events: Events
    app: Application

    def client(self, **more: Any) -> httpx.AsyncClient:
        """A client that is nobody, unless headers say otherwise."""
        return httpx.AsyncClient(
            base_url=self.address, timeout=30, trust_env=False, verify=_NO_TLS, **more
        )

    async def add(self, *arrivals: Arrival) -> list[str]:
        """Letters of this server's vhost; their ids."""
        vhost = runtime.addresses(self.settings)[0].vhost
        here = [
            replace(
                each,
                letter=replace(each.letter, vhost=vhost),
                envelope=replace(each.envelope, vhost=vhost),
            )
            for each in arrivals
        ]
        return [one.letter.id for one in await self.store.letters.add(here)]

    async def token(self, role: Role, name: str = "") -> str:
        """The secret of a new token."""
        secret = PREFIX + new_secret()
        number = len(await self.store.access.tokens())
        await self.store.access.add_token(
            f"00000000-0000-7000-8000-{number:012x}",
            digest(secret),
            name=name or role.value,
            role=role,
            by="test",
            lasts=None,
        )
        return secret

    async def client_as(self, role: Role) -> httpx.AsyncClient:
        """A client with a token of that role."""
        return self.client(headers={"Authorization": f"Bearer {await self.token(role)}"})

    async def user(self, name: str, password: str, role: Role) -> None:
        await self.store.access.set_user(name, role, await Passwords().hash(password))


def settings_for(
    folder: Path, broker_url: str, store_url: str, more: str = "", *, management_url: str = ""
) -> Settings:
    """Settings as a user writes them; `more` is TOML."""
    file = folder / "server.toml"
    management = f"management_url = {json.dumps(management_url)}\n" if management_url else ""
    file.write_text(
        f"[broker]\nurl = {json.dumps(broker_url)}\n{management}"
        f"[store]\nurl = {json.dumps(store_url)}\n"
        f'[topology]\nqueue_type = "classic"\n{more}'
    )
    return load(config=file, environ={}).settings


@asynccontextmanager
async def serving(settings: Settings, *, loopback: bool = True) -> AsyncIterator[Server]:
    """The server on loopback. `loopback=False`: as if it could be reached from elsewhere."""
    async with letter_store(settings.store.url.reveal()) as store:
        events = Events()
        app = Application(loopback=loopback)
        listening = listen("127.0.0.1", 0)
        address = address_of(listening)
        serving_it = Serving(app.asgi, listening)
        running = asyncio.create_task(serving_it.run())
        app.open(runtime.desk(settings, store, events))
        try:
            yield Server(address, settings, store, events, app)
        finally:
            app.close()
            serving_it.stop()
            await running
