"""What tests of `redrive replay` need: letters of a broker's vhost in a store, and the commands."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest

from redrive.amqp import fields
from redrive.domain.letter import Arrival, Letter
from redrive.store.store import Store
from tests.acceptance.command_line import CommandLine
from tests.services.commands import Ran, Redrive
from tests.services.letters import arrival, died_in, letter_store
from tests.services.moving import identities, ready, take_all
from tests.services.plugin import Vhost

_T = TypeVar("_T")
UNATTENDED = ("--ignore-health",)


def dead(
    identity: str,
    *,
    queue: str | None = "orders",
    key: str = "order.created",
    put: dict[str, bytes] | None = None,
    body: bytes | None = None,
    **more: Any,
) -> Arrival:
    """A dead message of its own; `queue` None for one that does not say where it failed."""
    headers = died_in(queue, key=key) if queue is not None else {}
    return arrival(
        identity.encode() if body is None else body,
        headers={**headers, **(put or {})},
        properties={"message_id": identity},
        **more,
    )


def of_type(error_type: str) -> dict[str, bytes]:
    return {"redrive-error-type": fields.longstr(error_type)}


@dataclass
class Replaying:
    """A store with letters of one vhost, and `redrive` for both."""

    vhost: Vhost
    folder: Path
    redrive: Redrive

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.folder / 'redrive.db'}"

    def __call__(self, *words: str, healthy: bool = False) -> Ran:
        """`redrive WORDS`; `replay` and `replays resume` without a look at this machine's CPU."""
        sends = words[0] == "replay" or words[:2] == ("replays", "resume")
        return self.redrive(*words, *(UNATTENDED if sends and not healthy else ()))

    def json(self, *words: str) -> Any:
        return self(*words, "--output", "json").document

    def command_line(self, broker_url: str = "", more: str = "") -> CommandLine:
        """The same in processes of their own."""
        found = CommandLine(
            self.folder,
            broker_url or self.vhost.url,
            ["1s"],
            self.vhost.management_url,
            store_url=self.store_url,
            more=more,
        )
        found.write_settings()
        return found

    # The store

    def with_store(self, work: Callable[[Store], Awaitable[_T]]) -> _T:
        async def run() -> _T:
            async with letter_store(self.store_url) as store:
                return await work(store)

        return asyncio.run(run())

    def add(self, *arrivals: Arrival) -> list[str]:
        """Letters of this vhost; their ids."""

        async def work(store: Store) -> list[str]:
            here = [self._here(each) for each in arrivals]
            return [one.letter.id for one in await store.letters.add(here)]

        return self.with_store(work)

    def _here(self, one: Arrival) -> Arrival:
        name = self.vhost.name
        return replace(
            one,
            letter=replace(one.letter, vhost=name),
            envelope=replace(one.envelope, vhost=name),
        )

    def letter(self, letter_id: str) -> Letter:
        async def work(store: Store) -> Letter:
            found = await store.letters.get(letter_id)
            assert found is not None
            return found

        return self.with_store(work)

    def rows(self) -> list[str]:
        """All that is in the store."""
        with sqlite3.connect(self.folder / "redrive.db") as connection:
            return list(connection.iterdump())

    # The broker

    def taken(self, queue: str = "orders") -> list[str]:
        """The identities of what is in a queue, which is empty afterwards."""
        return identities(asyncio.run(take_all(self.vhost.url, queue)))

    def on_the_broker(self) -> str:
        """Its queues, exchanges and bindings, and how many messages there are."""
        name = quote(self.vhost.name, safe="")
        queues = self.vhost.node.api("GET", f"queues/{name}?columns=name,arguments")
        parts = [self.vhost.node.api("GET", f"{kind}/{name}") for kind in ("bindings", "exchanges")]
        told = [_without_statistics(part) for part in parts]
        # Asked of the queues: the management API's counts come late.
        counts = {one["name"]: asyncio.run(ready(self.vhost.url, one["name"])) for one in queues}
        return json.dumps([queues, counts, *told], sort_keys=True)


def _without_statistics(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: each[key] for key in each if key != "message_stats"} for each in items]


def replaying(
    vhost: Vhost, folder: Path, capsys: pytest.CaptureFixture[str], more: str = ""
) -> Replaying:
    settings = (
        f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
        f'[store]\nurl = "sqlite:///{folder / "redrive.db"}"\n{more}'
    )
    found = Replaying(vhost, folder, Redrive(folder, capsys, settings))
    found.add()
    return found
