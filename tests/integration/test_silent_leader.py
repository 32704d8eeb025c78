"""A quorum queue whose leader does not answer looks empty and unused to who counts its messages:
nothing is deleted, pushed out or passed over for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import quote

import pytest

from redrive.broker import live
from redrive.broker.live import NOTHING, SpareChannel, count_surely
from redrive.broker.management import Management
from redrive.broker.site import Site
from redrive.errors import ManagementError
from redrive.work.queue_site import QueueSite, limits_of
from tests.services.commands import Redrive
from tests.services.eventually import eventually
from tests.services.moving import channel_to, connector, declare, publish
from tests.services.plugin import Vhost
from tests.services.serving import settings_for
from tests.services.silent_leader import silent_leader
from tests.services.sweeping import dead
from tests.services.wiring import connected

DLQ = "dlq-queue"
Hide = Callable[[int], None]


def management_of(vhost: Vhost) -> Management:
    return Management(vhost.management_url, "guest", "guest", vhost.name)


def is_shown(vhost: Vhost, queue: str, messages: int) -> None:
    """Wait until the management API shows so many."""
    path = f"queues/{quote(vhost.name, safe='')}/{queue}"

    def shows() -> bool:
        return bool(vhost.node.api("GET", path).get("messages_ready") == messages)

    eventually(shows)


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    settings = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
    return Redrive(tmp_path, capsys, settings)


@pytest.fixture
def statistics_are_believed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_STATISTICS_WITHIN", 1.0)


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Hide:
    """So many looks at each queue find its leader silent."""
    count, looks = SpareChannel.count, dict[str, int]()

    def begin(silent: int) -> None:
        async def answer(self: SpareChannel, queue: str) -> tuple[int, int] | None:
            looks[queue] = looks.get(queue, 0) + 1
            return NOTHING if looks[queue] <= silent else await count(self, queue)

        monkeypatch.setattr(SpareChannel, "count", answer)

    return begin


async def test_the_broker_says_of_a_queue_whose_leader_is_silent_that_there_is_nothing(
    vhost: Vhost,
) -> None:
    """The fact that all of this is about."""
    await declare(vhost.url, DLQ, "quorum")
    await publish(vhost.url, [dead(1, 1, DLQ)])
    async with channel_to(vhost.url) as channel:
        await channel.consume(DLQ, prefetch=1)
        async with channel_to(vhost.url) as other:
            with silent_leader(vhost, DLQ):
                assert await other.inspect_queue(DLQ) == NOTHING


def test_a_delete_leaves_a_queue_in_which_only_the_statistics_know_of_a_message(
    vhost: Vhost, redrive: Redrive, statistics_are_believed_soon: None
) -> None:
    assert redrive("topology", "apply").code == 0
    asyncio.run(publish(vhost.url, [dead(1, 1, DLQ)]))
    is_shown(vhost, DLQ, 1)
    with silent_leader(vhost, DLQ):
        ran = redrive("topology", "delete", "--yes")
    assert ran.code == 1
    assert f"queue {DLQ} stays: 1 message is in it" in ran.out
    assert asyncio.run(count(vhost, DLQ)) == (1, 0)


async def count(vhost: Vhost, queue: str) -> Any:
    async with connected(vhost.url) as connection:
        return await count_surely(connection, queue)


def test_without_statistics_a_delete_looks_more_than_once(
    vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str], hide: Hide
) -> None:
    redrive = Redrive(tmp_path, capsys, f'[broker]\nurl = "{vhost.url}"\n')
    assert redrive("topology", "apply").code == 0
    asyncio.run(publish(vhost.url, [dead(1, 1, DLQ)]))
    hide(3)  # the first look, and two of those that make sure
    ran = redrive("topology", "delete", "--yes")
    assert ran.code == 1
    assert f"queue {DLQ} stays: 1 message is in it" in ran.out


async def test_what_waits_to_come_back_is_told_though_the_first_look_finds_nothing(
    vhost: Vhost, hide: Hide, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, vhost.url, f"sqlite:///{tmp_path}/redrive.db")
    await declare(vhost.url, "retry-queue", "quorum")
    await publish(vhost.url, [dead(1, 1, "retry-queue")])
    hide(2)
    async with connected(vhost.url) as connection:
        site = Site(settings, connection, None)
        assert await site.waiting() == {"retry-queue": 1}


async def test_a_queue_that_is_full_has_no_room_though_its_leader_is_silent(
    vhost: Vhost, statistics_are_believed_soon: None
) -> None:
    await declare(vhost.url, "small", "quorum", x_max_length=2)
    await publish(vhost.url, [dead(each, 1, "small") for each in range(2)])
    await asyncio.to_thread(is_shown, vhost, "small", 2)
    async with connected(vhost.url) as connection:
        site = QueueSite(connection, management_of(vhost), connector(vhost.url))
        with silent_leader(vhost, "small"):
            room = await site.room("small")
    assert room is not None
    assert not room.take(b"", b"")


async def test_a_look_is_believed_once_somebody_answers(vhost: Vhost, hide: Hide) -> None:
    await declare(vhost.url, "small", "quorum", x_max_length=2)
    await publish(vhost.url, [dead(1, 1, "small")])
    hide(1)
    async with connected(vhost.url) as connection:
        assert await count_surely(connection, "small") == (1, 0)
        assert await count_surely(connection, "nosuch") is None


async def test_what_is_empty_is_said_to_be_once_the_statistics_know(vhost: Vhost) -> None:
    await declare(vhost.url, "small", "quorum")
    await publish(vhost.url, [dead(1, 1, "small")])
    await asyncio.to_thread(is_shown, vhost, "small", 1)
    async with connected(vhost.url) as connection:
        await (await connection.channel()).purge_queue("small")
        assert await count_surely(connection, "small", management_of(vhost)) == NOTHING


async def test_what_is_empty_has_room_though_the_management_api_has_gone_away(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    await declare(vhost.url, "small", "quorum", x_max_length=2)
    async with connected(vhost.url) as connection:
        management = management_of(vhost)
        site = QueueSite(connection, management, connector(vhost.url))
        limit = (await limits_of(management))["small"]
        monkeypatch.setattr(management, "queue", AsyncMock(side_effect=ManagementError("away")))
        room = await site.room_of("small", limit)
    assert room.take(b"", b"")
