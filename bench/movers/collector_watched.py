"""The collector with metrics and alerts, in a process of its own.

    python -m bench.movers.collector_watched URL QUEUE - STORE

As `redrive run` has them together: counts written, every default alert judged, messages looked for,
and the metrics read. They begin on SIGUSR1 and rest from SIGUSR2 on, so that one process at work
can be measured with them and without. What the janitor does for every store goes on all the time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import uvloop

from bench.movers.collector import collect
from bench.movers.told import move_until_told
from redrive.cli.logs import configure_logs
from redrive.domain.alerting import DEFAULT_RULES, LOG_SINK
from redrive.server.metrics import expose
from redrive.store.store import Store, open_letter_store
from redrive.tally import Tally
from redrive.work.alert_message import AlertWords
from redrive.work.alert_sinks import Sinks
from redrive.work.alert_watch import AlertSender, AlertWatch
from redrive.work.counting import Counting
from redrive.work.janitor import Chore, Janitor
from redrive.work.redact import NO_REDACTION

SCRAPED_EVERY = 15.0
COMPACTED_EVERY = 30.0


async def watch(store: Store, stop: asyncio.Event) -> None:
    """All that metrics and alerts do, until told to stop."""
    sinks = Sinks(())
    alerts = AlertWatch(store.alerts, DEFAULT_RULES, sinks, AlertWords(NO_REDACTION, None))
    sender = AlertSender("bench", store.alert_messages, sinks)

    async def scrape() -> None:
        expose(await store.figures.read())

    chores = [
        Chore("alerts", 5.0, alerts.round),
        Chore("messages", 2.0, lambda: sender.round(LOG_SINK)),
        Chore("scrape", SCRAPED_EVERY, scrape),
    ]
    counting = Counting("bench", {"collector"}, store.counts, Tally())
    await asyncio.gather(Janitor(chores).run(stop), counting.run(stop))
    sinks.close()


async def watch_when_told(store: Store, stop: asyncio.Event) -> None:
    """Keep watch from one signal to the other, any number of times."""
    loop = asyncio.get_running_loop()
    watches: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    def begin() -> None:
        rest = asyncio.Event()
        watches.append((rest, loop.create_task(watch(store, rest))))

    def end() -> None:
        for rest, _ in watches:
            rest.set()

    loop.add_signal_handler(signal.SIGUSR1, begin)
    loop.add_signal_handler(signal.SIGUSR2, end)
    await stop.wait()
    end()
    await asyncio.gather(*(task for _, task in watches))


async def collect_watched(url: str, queue: str, store_url: str, stop: asyncio.Event) -> None:
    """Collect one queue until told to stop."""
    store = await open_letter_store(store_url)
    always = Janitor(
        [
            Chore("ledger", COMPACTED_EVERY, store.books.compact),
            Chore("counts", COMPACTED_EVERY, store.counts.compact),
        ]
    )
    await asyncio.gather(
        collect(url, queue, store_url, stop), watch_when_told(store, stop), always.run(stop)
    )
    await store.close()


if __name__ == "__main__":
    _, url, queue, _, store_url = sys.argv
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open as long as the process lives
    uvloop.run(
        move_until_told(
            lambda stop: collect_watched(url, queue, store_url, stop), prepare=configure_logs
        )
    )
