"""`redrive demo`: a private broker, every role, plain consumers, and what happens as it happens.

Guarantees: nothing outside its temporary folder and its own broker is touched, and both are gone
afterwards. Exit 0 only if every message ended where it should, after the tries it should take. On a
terminal it then stays, for the console to be tried, until Ctrl-C; elsewhere it ends by itself.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.app import single
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import print_json, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from redrive.cli.demo_gateway import Payment
    from redrive.events import Event as Happened
    from redrive.settings import Settings
    from redrive.work.demonstration import Demonstration, Event

app = single("demo")

TIERS = ("1s", "2s", "3s")


@app.command()
@invoked
def demo(
    invocation: Invocation,
    cluster: Annotated[
        int, typer.Option(metavar="N", min=1, max=5, help="Run the broker on N nodes.")
    ] = 1,
) -> None:
    """Play seed messages and payments through retries on a private broker; needs RabbitMQ
    installed on this machine, and touches no broker that runs."""
    from redrive.broker.private import PrivateCluster, PrivateNode  # noqa: PLC0415
    from redrive.broker.processes import free_ports  # noqa: PLC0415
    from redrive.runtime import run_async  # noqa: PLC0415

    say(f"starting a private RabbitMQ ({cluster} node{'s' if cluster > 1 else ''}) …")
    broker = PrivateCluster(cluster) if cluster > 1 else PrivateNode()
    with broker, tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        (port,) = free_ports(1)
        settings = _settings(broker.url(), Path(folder), port)
        say(f"broker at {broker.url()}, management at {broker.management_url} (guest, guest)")
        say(f"console at {_console(settings)}")
        well = run_async(_play(settings, invocation.output))
    raise typer.Exit(0 if well else 1)


def say(line: str) -> None:
    """Progress goes to stderr; stdout has the result."""
    typer.echo(line, err=True)


def _console(settings: Settings) -> str:
    return f"http://{settings.server.host}:{settings.server.port}"


def _settings(url: str, folder: Path, port: int) -> Settings:
    from redrive.settings import load  # noqa: PLC0415

    nothing = folder / "redrive.toml"
    nothing.touch()
    flags = {
        "broker.url": url,
        "store.url": f"sqlite:///{folder / 'redrive.db'}",
        "topology.tiers": ",".join(TIERS),
        "server.port": str(port),
    }
    return load(flags=flags, config=nothing, environ={}).settings


async def _play(settings: Settings, output: Output) -> bool:
    from redrive import readiness, roles, runtime  # noqa: PLC0415
    from redrive.cli.demo_gateway import play_gateway  # noqa: PLC0415
    from redrive.cli.logs import silence_logs  # noqa: PLC0415
    from redrive.events import Events, LetterCollected  # noqa: PLC0415
    from redrive.work.demonstration import POLICIES, STORY, Demonstration  # noqa: PLC0415

    silence_logs()
    for name, limit in POLICIES.items():
        await runtime.set_policy(settings, name, max_retries=limit)
    # Before anything can fail: what is rejected towards a missing exchange waits for minutes.
    await readiness.assure_topology(settings)
    stopping, events = asyncio.Event(), Events()
    serving = asyncio.create_task(
        roles.serve(settings, frozenset(roles.ROLES), stopping, events=events)
    )
    connection = await runtime.connect(settings, "redrive demo")
    with _stage() as tell:
        story = Demonstration(connection, tell)

        def hear(event: Happened) -> None:
            if isinstance(event, LetterCollected):
                story.collected(event.letter)

        hear_no_more = events.listen(hear)
        await story.prepare()
        say(
            f"tiers {', '.join(TIERS)}; {len(STORY)} messages, consumers that only accept or reject"
        )
        async with asyncio.timeout(120):
            await story.play()
        hear_no_more()
    say("the payment gateway: its workers are handlers of the consumer SDK")
    async with asyncio.timeout(120):
        payments = await play_gateway(settings, events, say)
    _report(story, payments, output)
    if sys.stdin.isatty() and sys.stderr.isatty():
        say(f"look at the letters in the console, {_console(settings)}; Ctrl-C ends the demo")
        await _interrupted()
    stopping.set()
    await serving
    await connection.close()
    return all(map(story.ended_well, STORY)) and all(each.well for each in payments)


async def _interrupted() -> None:
    """Wait for Ctrl-C, or for the end of the terminal."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for each in signals:
        loop.add_signal_handler(each, told.set)
    try:
        await told.wait()
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


@contextmanager
def _stage() -> Iterator[Callable[[Event], None]]:
    """Where events are shown: a table that changes on a terminal, lines elsewhere."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield lambda event: say(f"{time.monotonic() - began:5.1f}s  {_line(event)}")
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    latest: dict[str, tuple[float, Event]] = {}
    with Live(console=Console(stderr=True), auto_refresh=False) as live:

        def show(event: Event) -> None:
            latest[event.part.name] = (time.monotonic() - began, event)
            live.update(_table(latest), refresh=True)

        yield show


def _line(event: Event) -> str:
    return f"{event.part.name:36} {event.part.queue:20} {_happened(event)}"


def _happened(event: Event) -> str:
    if event.kind == "accepted":
        return f"try {event.tries}: accepted"
    if event.kind == "rejected":
        return f"try {event.tries}: rejected"
    return f"dead after {event.tries} {'try' if event.tries == 1 else 'tries'}: {event.detail}"


_STYLES = {"accepted": "green", "rejected": "yellow", "dead": "red"}


def _table(latest: dict[str, tuple[float, Event]]) -> Table:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("AT", "MESSAGE", "QUEUE", "LAST EVENT"):
        table.add_column(heading, no_wrap=heading != "LAST EVENT")
    for at, event in latest.values():
        happened = Text(_happened(event), style=_STYLES[event.kind])
        table.add_row(f"{at:.1f}s", event.part.name, event.part.queue, happened)
    return table


def _report(story: Demonstration, payments: list[Payment], output: Output) -> None:
    from redrive.work.demonstration import STORY  # noqa: PLC0415

    rows = [
        (part.name, part.routing_key, str(part.end), str(part.tries), story.ended_well(part))
        for part in STORY
    ]
    rows += [
        (each.name, each.routing_key, each.end, str(each.tries), each.well) for each in payments
    ]
    if output is Output.JSON:
        names = ("message", "routingKey", "expectedEnd", "expectedTries", "asExpected")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        ("MESSAGE", "ROUTING KEY", "SHOULD END", "TRIES", "DID IT?"),
        [[(*row[:4], "yes" if row[4] else "NO") for row in rows]],
    )
