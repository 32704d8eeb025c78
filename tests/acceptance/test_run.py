"""`redrive run` as a process: through restarts, when nobody answers, and with wrong settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.amqp import Publish, fields
from redrive.broker.private import PrivateNode
from redrive.broker.processes import GuardedProcess
from redrive.domain import headers
from tests.acceptance.command_line import DRAINS_WITHIN, CommandLine, Running
from tests.services.moving import channel_to, holds, identities, message, publish, take_all
from tests.services.plugin import Vhost
from tests.services.postgres import PrivatePostgres
from tests.services.retrying import (
    DEAD,
    declare_origin,
    handling_through_losses,
    never,
    publish_one,
)

TIERS = ("100ms", "200ms")
READ_BY_THE_RETRIER = ("retry-queue", "retry-queue-1", "retry-queue-2")
NOBODY = "amqp://guest:guest@127.0.0.1:9/"


@pytest.fixture(scope="module")
def broker(rabbitmq_root: Path | None) -> Iterator[PrivateNode]:
    """A broker that the tests of this file may restart and pause."""
    with PrivateNode(root=rabbitmq_root) as node:
        yield node


async def ends_in_time(process: GuardedProcess, redrive: CommandLine) -> None:
    """Ends by SIGTERM, as it promises, within 10 s and as a success."""
    in_time = await asyncio.to_thread(process.terminate, DRAINS_WITHIN)
    assert (in_time, process.exit_code) == (True, 0), redrive.log.read_text()


async def test_it_goes_on_through_restarts_of_broker_and_database(
    broker: PrivateNode, postgres: PrivatePostgres, database: str, tmp_path: Path
) -> None:
    url = broker.url()
    redrive = CommandLine(tmp_path, url, TIERS, store_url=database)
    redrive.write_settings()
    await redrive.done("db", "upgrade")
    await redrive.done("topology", "apply")
    await redrive.done("policy", "set", "k", "--max-retries", "1")
    await declare_origin(url, "failing", "quorum", "k")
    async with (
        redrive.running(admin_url=url, queues=READ_BY_THE_RETRIER) as running,
        handling_through_losses(url, "failing", never) as handler,
    ):
        await publish_one(url, "k", "before")
        await holds(url, DEAD, 1)

        await asyncio.to_thread(broker.restart)
        await running.consumes(url, READ_BY_THE_RETRIER)
        await publish_one(url, "k", "after the broker's")
        await holds(url, DEAD, 2)

        # While the policy table is away, the policies that were last read stay in force.
        await asyncio.to_thread(postgres.kill)
        await redrive.has_logged("policies.unreachable", "as last read")
        await publish_one(url, "k", "without a database")
        await holds(url, DEAD, 3)

        await asyncio.to_thread(postgres.restart)
        await redrive.has_logged("policies.reachable", "table")
        await redrive.done("policy", "set", "k", "--max-retries", "0")
        await redrive.has_logged("policies.changed", "policies")
        await publish_one(url, "k", "after the database's")
        await holds(url, DEAD, 4)
    tries = identities(handler.deliveries)
    assert tries.count("before") == tries.count("after the broker's") == 2
    assert tries.count("without a database") == 2
    assert tries.count("after the database's") == 1
    assert len(set(identities(await take_all(url, DEAD)))) == 4


async def test_it_does_not_consume_before_the_policy_table_is_there(
    vhost: Vhost, postgres: PrivatePostgres, database: str, tmp_path: Path
) -> None:
    redrive = CommandLine(tmp_path, vhost.url, TIERS, store_url=database)
    redrive.write_settings()
    await redrive.done("db", "upgrade")
    await redrive.done("policy", "set", "k", "--max-retries", "0")
    await redrive.done("topology", "apply")
    origin = {headers.QUEUE: fields.longstr("failing"), headers.ROUTING_KEY: fields.longstr("k")}
    failed = message("m", origin)
    await publish(vhost.url, [Publish("", "retry-queue", failed.properties, failed.body)])
    await asyncio.to_thread(postgres.stop)
    process = redrive.start("run")
    try:
        await redrive.has_logged("run.unavailable", "policies")
        async with channel_to(vhost.url) as channel:
            assert await channel.inspect_queue("retry-queue") == (1, 0)
        await asyncio.to_thread(postgres.start)
        # Without policies it would have none for its routing key.
        await redrive.has_logged("letter.collected", "gave up after 0 retries")
        await ends_in_time(process, redrive)
    finally:
        postgres.start()
        process.kill()


async def test_it_ends_in_time_while_neither_broker_nor_database_answers(
    broker: PrivateNode, postgres: PrivatePostgres, database: str, tmp_path: Path
) -> None:
    url = broker.url()
    redrive = CommandLine(tmp_path, url, TIERS, store_url=database)
    redrive.write_settings()
    await redrive.done("db", "upgrade")
    await redrive.done("topology", "apply")
    await redrive.done("policy", "set", "hang", "--max-retries", "1")
    await declare_origin(url, "hanging", "quorum", "hang")
    process = redrive.start("run")
    try:
        await Running(process, redrive).consumes(url, READ_BY_THE_RETRIER)
        async with handling_through_losses(url, "hanging", never) as handler:
            # A queue that nobody enrolled: the return path has a connection from now on, too.
            await publish_one(url, "hang", "m")
            await handler.has_seen(2)
        broker.pause()
        postgres.pause()
        await ends_in_time(process, redrive)
    finally:
        broker.resume()
        postgres.resume()
        process.kill()


@pytest.mark.parametrize("silent", ["broker", "database"])
async def test_it_ends_in_time_while_it_still_tries_to_start(
    broker: PrivateNode,
    postgres: PrivatePostgres,
    database: str,
    tmp_path: Path,
    silent: str,
) -> None:
    redrive = CommandLine(tmp_path, broker.url(), TIERS, store_url=database)
    redrive.write_settings()
    await redrive.done("db", "upgrade")
    server = broker if silent == "broker" else postgres
    server.pause()
    process = redrive.start("run")
    try:
        started = "run.started" if silent == "database" else "policies.loaded"
        await redrive.has_logged(started, "")
        await ends_in_time(process, redrive)
    finally:
        server.resume()
        process.kill()


WRONG = {
    "a queue named like one of Redrive's": (
        '[[queue]]\nname = "retry-queue"\nexchange = "shop"\n',
        "'retry-queue' would be declared twice",
    ),
    "a queue whose name leaves no room": (
        f'[[queue]]\nname = "{"é" * 121}"\nexchange = "shop"\n',
        "1 to 240 bytes",
    ),
    "a properties file that is not there": (
        '[policy_table]\nproperties = "/nowhere/redrive.properties"\n',
        "/nowhere/redrive.properties: cannot be read",
    ),
}


@pytest.mark.parametrize(("more", "said"), WRONG.values(), ids=WRONG.keys())
def test_wrong_settings_are_said_on_one_line_and_end_it_with_2(
    tmp_path: Path, more: str, said: str
) -> None:
    redrive = CommandLine(tmp_path, NOBODY, TIERS, more=more)
    redrive.write_settings()
    ended = redrive.run("run")
    assert ended.returncode == 2, ended.stderr
    complaints = [line for line in ended.stderr.splitlines() if line.startswith("redrive: ")]
    assert len(complaints) == 1
    assert said in complaints[0]
    assert "Traceback" not in ended.stderr
    assert "unforeseen" not in ended.stderr
    for line in set(ended.stderr.splitlines()) - set(complaints):
        json.loads(line)  # the log, as ever
