"""The collector with metrics and alerts, in a process of its own.

    python -m bench.movers.collector_watched URL QUEUE - STORE

As `redrive run` has them together: counts written, every default alert judged, messages looked for,
and the metrics read as often as a Prometheus asks for them.
"""

from __future__ import annotations

import asyncio
import os
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


async def collect_watched(url: str, queue: str, store_url: str, stop: asyncio.Event) -> None:
    """Collect one queue until told to stop, and keep watch beside it."""
    store = await open_letter_store(store_url)
    await asyncio.gather(collect(url, queue, store_url, stop), watch(store, stop))
    await store.close()


if __name__ == "__main__":
    _, url, queue, _, store_url = sys.argv
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open as long as the process lives
    uvloop.run(
        move_until_told(
            lambda stop: collect_watched(url, queue, store_url, stop), prepare=configure_logs
        )
    )
