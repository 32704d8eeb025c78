"""What the pages say is typed: every `redrive` line of README, how-tos and reference, and what the
API's page calls.

On a real broker. Ids, groups and files that a page invents are replaced by those of letters that
are there; each line has a store of its own, so that one does not depend on what another did. What
stays (`redrive run`) is run by the tutorials' tests, in tests/acceptance.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.amqp import fields
from redrive.domain.lifecycle import State
from redrive.store.store import Store
from redrive.work.cold_storage import ColdStorage
from redrive.work.retention import Retention
from tests.services.foreign import Foreign
from tests.services.letters import BEGAN, failed
from tests.services.moving import publish
from tests.services.pages import PAGES, ROOT, blocks_in, commands_in, lines_in
from tests.services.replaying import Replaying, dead, of_type, replaying
from tests.services.retiring import PERIODS, letter_in
from tests.services.serving import Server
from tests.services.sweeping import dead as dead_in_queue
from tests.services.sweeping import fill

STAYS = ["run"]
FINDS = {"doctor": {0, 1}}
"""What may exit with another code than 0: a broker with findings."""
BODY = b'{"id": 12345678901234567890, "currency": "EUR", "amount": 1.1, "order": {"id": 7}}'
GROUP, LETTER = r"[0-9a-f]{16}", r"01[0-9a-f]{6}(-[0-9a-f]{4})*"
BEFORE = {
    "letters edit ID --undo": ["letters edit ID --set-header tenant=acme"],
    "letters restore": ["letters discard ID --yes"],
    "letters resolve": ["replay ID"],
    "letters list --status processing": ["replay ID"],
    "letters list --status manual": ["letters discard ID --yes", "letters restore ID"],
    "alerts silence DLQBacklogGrowing --end": ["alerts silence DLQBacklogGrowing"],
    "replays list": ["replay --queue orders --detach"],
    "replays pause": ["replay --queue orders --detach"],
    "replays resume": ["replay --queue orders --detach", "replays pause JOB"],
    "replays cancel": ["replay --queue orders --detach"],
}
"""What was typed before a line that begins so."""


class Person(io.TextIOWrapper):
    """Somebody at the terminal, who says yes."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(b"y\n" * 3))

    def isatty(self) -> bool:
        return True


class Reader:
    """Types the lines of a page."""

    def __init__(self, foreign: Foreign, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._foreign = foreign
        self._folder = folder
        self._capsys = capsys
        self._typed = 0
        for queue in ("orders", "payments", "invoices", "stock", "orders.repair", "orders.fixed"):
            foreign.declare(queue, "classic")
        with foreign.channel() as channel:
            channel.exchange_declare("shop", "topic", durable=True)
            channel.queue_bind("orders", "shop", "#")
        asyncio.run(fill(foreign.vhost.url, "classic"))
        late = {"redrive-error-reason": fields.longstr("the bank timed out")}
        asyncio.run(publish(foreign.vhost.url, [dead_in_queue("late", 1, put=late)]))
        assert self._site()("topology", "apply").code == 0

    def _site(self) -> Replaying:
        """A new store with letters: of long ago, of an hour and a half ago, of another queue."""
        self._typed += 1
        folder = self._folder / str(self._typed)
        folder.mkdir()
        return replaying(self._foreign.vhost, folder, self._capsys)

    def types(self, words: Sequence[str], other_store: str) -> None:
        site = self._site()
        lately = datetime.now(UTC) - BEGAN - timedelta(minutes=90)
        told = {"customer": fields.longstr("acme"), "x-debug": fields.longstr("1")}
        put = {**of_type("TIMEOUT_ERROR"), **told}
        ids = site.add(
            dead("m0", put=put, body=BODY),
            dead("m1", put=put, body=BODY, at=lately),
            dead("m2", put=put, body=BODY, at=lately, queue="payments", key="payment.due"),
        )
        if "--possible-duplicate" in words:
            site.add(dead("m1", put=put, body=BODY, at=lately, redelivered=True))
        invented = {"ID": ids[1], "GROUP": site.letter(ids[1]).fingerprint}
        invented["FILE"], invented["GONE"] = self._cold_storage(site)
        text = json.dumps(words)
        if words[:2] == ["archive", "restore"]:
            text = re.sub(r'"2026/05/[^"]+"', '"FILE"', text)
            text = re.sub(rf'"{LETTER}"', '"GONE"', text)
        text = re.sub(rf'"{LETTER}"', '"JOB"' if words[0] == "replays" else '"ID"', text)
        text = re.sub(rf'"{GROUP}"', '"GROUP"', text)
        text = text.replace("postgresql://redrive@db/redrive", other_store)
        line = json.loads(text)
        for beginning, lines in BEFORE.items():
            if " ".join(line).startswith(beginning):
                for each in lines:
                    self._run(site, each.split(), invented)
        self._run(site, line, invented)

    def _run(self, site: Replaying, line: Sequence[str], invented: dict[str, str]) -> None:
        if "JOB" in line:
            invented["JOB"] = site.json("replays", "list")["items"][0]["id"]
        ran = site(*(invented.get(word, word) for word in line))
        fine = FINDS.get(line[0], {0})
        assert ran.code in fine, f"redrive {' '.join(line)}: {ran.code}\n{ran.out}{ran.err}"

    def _cold_storage(self, site: Replaying) -> tuple[str, str]:
        """A file of letters that were deleted from the store, and the id of one of them."""
        storage = ColdStorage(site.folder / "archive")

        async def retire(store: Store) -> str:
            letter = await letter_in(store, State.ARCHIVED)
            store.clock.ahead = PERIODS[State.ARCHIVED] * 10
            await Retention(store.expiry, storage, PERIODS).round()
            return letter

        letter = site.with_store(retire)
        (name,) = storage.names()
        return name, letter


def other_dead_letter_exchange(foreign: Foreign) -> None:
    """A queue `orders` that dead-letters elsewhere by its arguments."""
    with foreign.channel() as channel:
        channel.queue_delete("orders")
        channel.exchange_declare("orders-dlx", "topic", durable=True)
    foreign.declare("orders", "classic", dead_letter_exchange="orders-dlx")


PAGES_WITH_COMMANDS = [
    page for page in PAGES if commands_in(page) and page.parent.name != "tutorial"
]


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: page.stem)
def test_every_command_of_a_page_does_what_it_is_there_for(
    page: Path,
    foreign: Foreign,
    store_database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITOR", "sed -i s/1.1/1.2/")
    (tmp_path / "mended.json").write_bytes(BODY)
    patch = next((text for kind, text in blocks_in(page) if text.startswith('[\n  {"op"')), "[]")
    (tmp_path / "patch.json").write_text(patch)
    reader = Reader(foreign, tmp_path, capsys)
    for line in commands_in(page):
        if line.words == STAYS:
            continue
        monkeypatch.setattr(sys, "stdin", Person())
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        if "--bind-exchange" in line.words:
            other_dead_letter_exchange(foreign)
        with monkeypatch.context() as environment:
            for name, value in line.variables.items():
                environment.setenv(name, value)
            reader.types(line.words, store_database)


def _in_words(line: str) -> list[str]:
    """A `curl` of a page, taken apart by a shell that refuses a pattern which matches no file."""
    tell = 'curl() { printf "%s\\n" "$@"; }\n'
    told = subprocess.run(
        ["bash", "-O", "failglob", "-c", tell + line], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")
    return told.stdout.splitlines()


async def _call(server: Server, line: str) -> dict[str, Any]:
    """What the API answers to a `curl` of a page."""
    silent, url, *options = _in_words(line)
    assert silent == "-s"
    path = url.removeprefix("localhost:8025")
    given = list(zip(options[::2], options[1::2], strict=True))
    assert {name for name, _ in given} <= {"-H", "-d"}
    headers = dict(text.split(": ") for name, text in given if name == "-H")
    content = next((text for name, text in given if name == "-d"), None)
    method = "GET" if content is None else "POST"
    async with server.client() as client:
        answer = await client.request(method, path, headers=headers, content=content)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_every_call_of_the_api_page_does_what_it_is_there_for(server: Server) -> None:
    lines = lines_in(ROOT / "docs" / "reference" / "api.md")
    manual, count, discard = (line for line in lines if line.startswith("curl "))
    await server.add(*(failed(f"after {n} s") for n in range(12)))
    await server.add(failed("no such currency", error_type="CURRENCY"))
    kept = await letter_in(server.store, State.MANUAL)
    assert [each["id"] for each in (await _call(server, manual))["items"]] == [kept]
    assert await _call(server, count) == {"letters": 12}
    assert (await _call(server, discard))["discarded"] == 12
