"""What it costs to read a store: the same questions with few letters and with many."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.figures import Target, below
from bench.letters import dead_letters
from bench.report import Table, number
from redrive.amqp import Delivery
from redrive.broker.topology import describe
from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State
from redrive.settings.sections import TopologySettings
from redrive.store.store import Store
from redrive.work.system_state import SystemState
from redrive.work.understand import Understanding, utc_now

_BATCH = 1_000
_TIMES = 15
_MOST = 3.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Milliseconds of each question, by its name."""

    engine: str
    sizes: tuple[int, int]
    few: dict[str, float]
    many: dict[str, float]

    def table(self) -> Table:
        return Table(
            title=f"Reading a store of {self.sizes[1]:,} letters, {self.engine}",
            columns=("what", f"ms with {self.sizes[0]:,}", f"ms with {self.sizes[1]:,}", "ratio"),
            rows=[
                (name, number(self.few[name], 2), number(self.many[name], 2), f"{ratio:.2f}")
                for name, ratio in self.ratios().items()
            ],
        )

    def ratios(self) -> dict[str, float]:
        return {name: self.many[name] / self.few[name] for name in self.few}

    def targets(self) -> list[Target]:
        name, worst = max(self.ratios().items(), key=lambda item: item[1])
        return [below(f"Reading, {self.engine}, the slowest ({name})", worst, _MOST, "times")]

    def data(self) -> dict[str, Any]:
        return asdict(self)


async def measure(store: Store, engine: str, few: int, many: int) -> Reading:
    """Fill the store and ask, twice."""
    await fill(store, 0, few)
    first = await _ask(store)
    await fill(store, few, many)
    return Reading(engine, (few, many), first, await _ask(store))


async def fill(store: Store, first: int, last: int) -> None:
    """Letters as the collector makes them, in bulk."""
    understanding = Understanding(
        "/", describe(TopologySettings()).queue_names(), {"dlq-queue", "redrive-receipts"}
    )
    state = SystemState(0.1, 0.2)
    for begin in range(first, last, _BATCH):
        now, draw = utc_now(), random.getrandbits
        arrivals = [
            understanding.arrival(
                Delivery(1, False, "dlq-exchange", "dlq", publish.properties, publish.body),
                "dlq-queue",
                now=now,
                random=draw(74),
                state=state,
            )
            for publish in dead_letters("-", min(_BATCH, last - begin), first=begin)
        ]
        await store.letters.add(arrivals)
        if begin % 100_000 == 0:
            await store.books.compact()  # as the janitor does every half minute
    await store.books.compact()


async def _ask(store: Store) -> dict[str, float]:
    page = await store.letters.page(Filters())
    letter = page.items[-1]
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "first page": lambda: store.letters.page(Filters()),
        "a page further on": lambda: store.letters.page(Filters(), after=letter.id),
        "one letter": lambda: store.letters.get(letter.id),
        "by status": lambda: store.letters.page(Filters(status=(State.PENDING,))),
        "by a status without letters": lambda: store.letters.page(Filters(status=(State.MANUAL,))),
        "by queue": lambda: store.letters.page(Filters(queue=letter.queue)),
        "by routing key": lambda: store.letters.page(Filters(routing_key=letter.routing_key)),
        "by error type": lambda: store.letters.page(Filters(error_type=letter.error_type)),
        "by group": lambda: store.letters.page(Filters(group=letter.fingerprint)),
        "by time": lambda: store.letters.page(Filters(created_until=letter.created_at)),
        "groups with counts": store.groups.page,
        "ledger": store.books.ledger,
    }
    return {name: await time_of(ask) for name, ask in questions.items()}


async def time_of(ask: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds that an answer takes."""
    found = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        await ask()
        found.append((time.perf_counter() - began) * 1000)
    return median(found)
