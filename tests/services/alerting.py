"""What tests of alerts need: rules that are judged when a test says so, in a store whose clock is
set by hand, and each default alert made to fire and to resolve by what it is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text

from redrive.domain import metrics
from redrive.domain.alerting import DEFAULT_RULES, Phase, Rule
from redrive.domain.breaker import Position
from redrive.domain.condition_reader import parse
from redrive.domain.filters import Filters
from redrive.domain.revival import LeaveToPerson
from redrive.settings.alerts import AlertSinkSettings
from redrive.store.store import Store
from redrive.tally import Tally
from redrive.work.alert_message import AlertWords
from redrive.work.alert_sinks import Sinks
from redrive.work.alert_watch import AlertSender, AlertWatch
from redrive.work.counting import Counting
from redrive.work.redact import NO_REDACTION
from tests.services.letters import BEGAN, arrival, died_in, failed
from tests.services.sending import claimed, later, stored

STEP = timedelta(seconds=15)
MINUTE = timedelta(minutes=1)
CONSOLE = "https://redrive.example"
DEFAULTS = {rule.name: rule for rule in DEFAULT_RULES}


def rule(condition: str, name: str = "TooMany", **more: object) -> Rule:
    return Rule(name=name, condition=parse(condition), **more)  # type: ignore[arg-type]


@dataclass
class Desk:
    """Alerts of one store, judged and told when a test says so."""

    store: Store
    rules: tuple[Rule, ...]
    sinks: Sinks
    watch: AlertWatch
    name: str

    def sender(self, name: str = "sender-1") -> AlertSender:
        return AlertSender(name, self.store.alert_messages, self.sinks)

    async def tell(self, sender: AlertSender | None = None) -> int:
        """Send all that is due, as janitors do; how many messages were taken."""
        sender = sender or self.sender()
        return sum(await asyncio.gather(*(sender.round(sink) for sink in self.sinks.by_name)))

    async def judge(self, after: timedelta = STEP) -> None:
        """Let time pass, and judge."""
        later(self.store, after)
        await self.watch.round()

    async def judge_for(self, time: timedelta, every: timedelta = MINUTE) -> None:
        """Judge again and again, as janitors do."""
        for _ in range(time // every):
            await self.judge(every)

    async def phase(self) -> Phase:
        """Of the alert that this is about."""
        (found,) = [each for each in await self.store.alerts.all() if each.name == self.name]
        return found.standing.phase


def desk(store: Store, rules: Sequence[Rule], sinks: Sequence[AlertSinkSettings] = ()) -> Desk:
    opened = Sinks(tuple(sinks))
    words = AlertWords(NO_REDACTION, CONSOLE)
    watch = AlertWatch(store.alerts, rules, opened, words)
    return Desk(store, tuple(rules), opened, watch, rules[0].name)


# Each default alert


@dataclass(frozen=True)
class Drive:
    """How an alert is made to fire, and to resolve."""

    fire: Callable[[Desk], Awaitable[object]]
    resolve: Callable[[Desk], Awaitable[object]]


async def _wait_out(at: Desk) -> None:
    await at.judge_for(timedelta(minutes=6))


async def _ingest(at: Desk) -> None:
    await at.store.letters.add([failed("boom") for _ in range(600)])


async def _pile_up(at: Desk) -> None:
    for _ in range(11):
        await at.store.letters.add([failed("boom") for _ in range(1000)])


async def _clear(at: Desk) -> None:
    for some in (await at.store.decisions.listed(Filters())).chunks():
        await at.store.decisions.discard(list(some.states), "test")


async def _leave_unresolved(at: Desk) -> None:
    await stored(at.store, 4)
    await at.judge_for(timedelta(minutes=16))


async def _resolve_all(at: Desk) -> None:
    ids = [claim.letter.id for claim in await claimed(at.store)]
    await at.store.decisions.resolve(ids, "test")


async def _leave_to_person(at: Desk) -> None:
    await stored(at.store)
    await at.store.sendings.take_due("w", "/", 1, lambda *_: LeaveToPerson(reason="unknown"))


async def _one_group(at: Desk) -> None:
    now = await at.store.series.now()
    lately = [
        arrival(headers=died_in("orders"), at=now - BEGAN + timedelta(milliseconds=n))
        for n in range(400)
    ]
    await at.store.letters.add(lately)


async def _falsify(at: Desk) -> None:
    await _add_to_ledger(at, 1)
    await at.judge_for(timedelta(minutes=11))


async def _mend(at: Desk) -> None:
    await _add_to_ledger(at, -1)
    await at.judge_for(timedelta(minutes=11))


async def _add_to_ledger(at: Desk, delta: int) -> None:
    async with at.store.database.writing() as connection:
        await connection.execute(
            text(
                "INSERT INTO redrive_ledger (fingerprint, account, delta)"
                f" VALUES ('beef', 'dlq_pending', {delta})"
            )
        )


async def _stop_collecting(at: Desk) -> None:
    await at.judge_for(timedelta(minutes=3))


async def _collect_again(at: Desk) -> None:
    tally = Tally()
    with tally.level(metrics.COLLECTING):
        later(at.store, STEP)
        await Counting("p1", {"collector"}, at.store.counts, tally).write()


DRIVES = {
    "HighDLQIngestionRate": Drive(_ingest, _wait_out),
    "DLQBacklogGrowing": Drive(_pile_up, _clear),
    "LowResolutionRate": Drive(_leave_unresolved, _resolve_all),
    "LetterNeedsPerson": Drive(_leave_to_person, _wait_out),
    "NewFailureGroup": Drive(_ingest, _wait_out),
    "FailureGroupGrowsFast": Drive(_one_group, _wait_out),
    "OldestPendingTooOld": Drive(lambda at: stored(at.store), _clear),
    "LedgerBroken": Drive(_falsify, _mend),
    "CollectorStopped": Drive(_stop_collecting, _collect_again),
    "BreakerOpen": Drive(
        lambda at: at.store.breakers.force("/", "orders", Position.OPEN),
        lambda at: at.store.breakers.force("/", "orders", Position.CLOSED),
    ),
}
