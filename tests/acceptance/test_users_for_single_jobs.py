"""Users of the broker that do one job each: observer, collector, replayer.

Their permissions and tags are read from docs/how-to/least-privilege.md, as an administrator would
copy them. Each does its job with exactly those, and is refused one step beyond it; whatever is
refused is lost nowhere.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import pytest

from redrive.amqp import Properties, Publish, fields
from redrive.domain.lifecycle import State
from tests.acceptance.command_line import CommandLine
from tests.services.eventually import eventually_async
from tests.services.letters import died_in
from tests.services.moving import channel_to, holds, identities, publish, ready, take_all
from tests.services.plugin import Vhost

DOCUMENT = Path(__file__).parents[2] / "docs/how-to/least-privilege.md"
DEAD = "dlq-queue"
SOON = """
[worker]
default_strategy = "immediate"
delays = ["10ms"]
poll = "100ms"
"""


@dataclass(frozen=True)
class Rights:
    """What the how-to gives a user."""

    configure: str
    write: str
    read: str
    tags: str


def documented(user: str) -> Rights:
    text = DOCUMENT.read_text(encoding="utf-8")
    given = re.search(rf"^rabbitmqctl set_permissions -p / {user} (.+)$", text, re.MULTILINE)
    assert given is not None
    tags = re.search(rf"^rabbitmqctl set_user_tags {user} (.+)$", text, re.MULTILINE)
    configure, write, read = shlex.split(given[1])
    return Rights(configure, write, read, tags[1] if tags else "")


@dataclass(frozen=True)
class Place:
    """A broker with Redrive's topology, one enrolled queue, and its administrator."""

    vhost: Vhost
    admin: CommandLine
    users: list[str] = field(default_factory=list)

    async def user(self, name: str, *, management: bool = False) -> CommandLine:
        """The command line of a user who may do what is documented, and no more."""
        rights, user = documented(name), f"{name}-{secrets.token_hex(4)}"
        self.users.append(user)
        await asyncio.to_thread(self._add, user, rights)
        url = self.vhost.url.replace("guest:guest", f"{user}:{user}")
        api = self.vhost.management_url if management else None
        line = replace(self.admin, broker_url=url, management_url=api, name=name, more=SOON)
        line.write_settings()
        return line

    def _add(self, user: str, rights: Rights) -> None:
        api = self.vhost.node.api
        api("PUT", f"users/{user}", {"password": user, "tags": rights.tags})
        allowed = {"configure": rights.configure, "write": rights.write, "read": rights.read}
        api("PUT", f"permissions/{quote(self.vhost.name, safe='')}/{user}", allowed)

    async def dead(self, name: str) -> None:
        """A message that was rejected in `orders`, in the dead letter queue."""
        properties = Properties.empty().with_text("message_id", name)
        section = properties.with_headers(died_in("orders")).persistent().raw
        await publish(self.vhost.url, [Publish("", DEAD, section, name.encode())])

    async def letters(self) -> list[tuple[str, str]]:
        """Every letter: its message and its state."""
        ended = await asyncio.to_thread(self.admin.run, "letters", "list", "--output", "json")
        items = json.loads(ended.stdout)["items"] if ended.stdout else []
        return [(each["messageId"], each["status"]) for each in items]

    async def becomes(self, *letters: tuple[str, str]) -> None:
        def is_so() -> bool:
            found = self.admin.asked("SELECT message_id, status FROM redrive_letter")
            return sorted(found) == sorted(letters)

        await eventually_async(is_so, what=f"letters {letters}")
        assert sorted(await self.letters()) == sorted(letters)


@pytest.fixture
async def place(vhost: Vhost, tmp_path: Path) -> Place:
    admin = CommandLine(tmp_path, vhost.url, ("100ms",), vhost.management_url, name="admin")
    admin.write_settings()
    async with channel_to(vhost.url) as channel:
        await channel.declare_exchange("shop", "topic")
        for queue in ("orders", "mail"):
            await channel.declare_queue(queue, arguments={"x-queue-type": "quorum"})
            await channel.bind_queue(queue, "shop", queue)
    await admin.done("topology", "apply")
    await admin.done("topology", "enroll", "orders", "--yes")
    return Place(vhost, admin)


@pytest.fixture(autouse=True)
def _nobody_stays(place: Place) -> Iterator[None]:
    yield
    for user in place.users:
        place.vhost.node.api("DELETE", f"users/{user}")


async def refused(line: CommandLine, *words: str) -> None:
    """A command that ends with 1 and says that the broker did not allow it."""
    ended = await asyncio.to_thread(line.run, *words)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, (words, said)
    assert "ACCESS_REFUSED" in said, (words, said)
    assert "Traceback" not in said


async def test_an_observer_sees_and_touches_nothing(place: Place) -> None:
    await place.dead("m")
    observer = await place.user("redrive-observer", management=True)
    await observer.done("topology", "check")
    await observer.done("topology", "plan")
    looked = await asyncio.to_thread(observer.run, "doctor", "--output", "json")
    found = json.loads(looked.stdout)
    assert "lacks" not in looked.stderr
    assert {item["check"] for item in found["items"]} >= {"permissions"}
    async with observer.serving() as (_, running):
        assert running.process.alive

    await refused(observer, "peek", DEAD)
    await refused(observer, "move", DEAD, "mail")
    await refused(observer, "topology", "delete", "--yes", "--even-with-messages", "--even-if-used")
    assert await ready(place.vhost.url, "mail") == 0
    assert identities(await take_all(place.vhost.url, DEAD)) == ["m"]


async def test_a_collector_collects_and_sends_nothing(place: Place) -> None:
    url = place.vhost.url
    await place.dead("m")
    collector = await place.user("redrive-collector")
    async with collector.running(admin_url=url, queues=(DEAD,), roles="collector,janitor"):
        await place.becomes(("m", State.PENDING.value))
    await place.dead("n")
    await refused(collector, "replay", "--queue", "orders", "--yes", "--ignore-health")
    await refused(collector, "move", DEAD, "mail", "--spend-deliveries")
    assert [await ready(url, queue) for queue in ("orders", "mail")] == [0, 0]
    await publish(url, [Publish("", "mail", Properties.empty().persistent().raw, b"theirs")])
    await refused(collector, "peek", "mail")
    assert await ready(url, "mail") == 1
    assert identities(await take_all(url, DEAD)) == ["n"]
    assert await place.letters() == [("m", State.MANUAL.value)], "it was refused, and is kept"


async def test_a_replayer_sends_and_hears_of_it_and_reads_no_other_queue(place: Place) -> None:
    url = place.vhost.url
    await place.dead("m")
    collector = await place.user("redrive-collector")
    async with collector.running(admin_url=url, queues=(DEAD,), roles="collector"):
        await place.becomes(("m", State.PENDING.value))
    replayer = await place.user("redrive-replayer")
    async with replayer.running(admin_url=url, queues=("redrive-receipts",), roles="worker"):
        await place.becomes(("m", State.PROCESSING.value))
        await holds(url, "orders", 1)  # it is claimed before it is sent
        (sent,) = await take_all(url, "orders")
        found = Properties.read(sent.properties)
        receipt = {"letter": found.header("redrive-letter"), "generation": 1}
        body = json.dumps(receipt).encode()
        section = Properties.empty().with_headers({"of": fields.longstr("m")}).persistent().raw
        await publish(url, [Publish("", "redrive-receipts", section, body)])
        await place.becomes(("m", State.RESOLVED.value))

    letter = str(found.header("redrive-letter"))
    again = ("replay", letter, "--yes", "--ignore-health", "--to")
    await refused(replayer, *again, "exchange:shop")
    await refused(replayer, *again, "queue:mail")
    await place.dead("n")
    await refused(replayer, "peek", DEAD)
    assert await ready(url, "mail") == 0
    assert identities(await take_all(url, DEAD)) == ["n"]


async def test_one_user_has_all_roles_run_with_the_line_that_is_there_for_it(place: Place) -> None:
    """What was rejected waits and comes back; what is dead is collected and sent again."""
    url = place.vhost.url
    await place.admin.done("policy", "set", "#", "--max-retries", "1")
    user = await place.user("redrive")
    await place.dead("dead")
    rejected = (
        Properties.empty().with_text("message_id", "rejected").with_headers(died_in("orders"))
    )
    await publish(url, [Publish("", "retry-queue", rejected.persistent().raw, b"rejected")])
    read = (DEAD, "retry-queue", "retry-queue-1", "redrive-receipts")
    roles = "retrier,collector,worker,janitor,server"
    async with user.running(admin_url=url, queues=read, roles=roles):
        await holds(url, "orders", 2)
        assert sorted(identities(await take_all(url, "orders"))) == ["dead", "rejected"]
