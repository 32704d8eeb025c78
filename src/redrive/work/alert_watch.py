"""Alerts at work: judged every step by one of all janitors, told by one of all senders.

    AlertWatch.round    metrics → conditions → standings and messages, one transaction
    AlertSender.round   messages that are due → sinks → noted

A sink that is down, slow or wrong keeps its messages waiting, those of no other sink, and nothing
else that Redrive does. What it missed it gets when it is back, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from redrive.domain.alerting import Rule
from redrive.domain.backoff import Backoff
from redrive.domain.ids import letter_id
from redrive.errors import SinkFailed
from redrive.store.alert_messages import AlertMessages, Claimed
from redrive.store.alerts import Alerts, Judging
from redrive.work.alert_message import AlertWords
from redrive.work.alert_sinks import Sinks

log = structlog.get_logger()

LEASE: Final = timedelta(minutes=1)
"""Longer than any sink may take."""
_AGAIN: Final = Backoff(first=timedelta(seconds=2), cap=timedelta(minutes=5))


def new_message_id(at: datetime) -> str:
    """Ids of messages sort by their time, as those of letters do."""
    return letter_id(at, random.getrandbits(74))


class AlertWatch:
    """Judges alerts."""

    def __init__(
        self, alerts: Alerts, rules: Sequence[Rule], sinks: Sinks, words: AlertWords
    ) -> None:
        self._alerts = alerts
        self._judging = Judging(
            rules=rules,
            sinks=tuple(sinks.by_name),
            refreshed=tuple(name for name, sink in sinks.by_name.items() if sink.refreshed),
            new_id=new_message_id,
            document=words.document,
        )

    async def round(self) -> None:
        """Judge, unless somebody has done so in this step."""
        await self._alerts.judge(self._judging)


class AlertSender:
    """Sends messages about alerts."""

    def __init__(self, name: str, messages: AlertMessages, sinks: Sinks) -> None:
        self._name = name
        self._messages = messages
        self._sinks = sinks
        self._outages: dict[str, str] = {}

    async def round(self) -> int:
        """Send what is due; how many messages there were."""
        claimed = await self._messages.claim(self._name, LEASE)
        by_sink: dict[str, list[Claimed]] = {}
        for message in claimed:
            by_sink.setdefault(message.sink, []).append(message)
        await asyncio.gather(*(self._send_all(some) for some in by_sink.values()))
        return len(claimed)

    async def _send_all(self, messages: Sequence[Claimed]) -> None:
        for message in messages:
            try:
                await self._send(message)
            except SinkFailed as error:
                await self._put_off(message, str(error))
            else:
                await self._messages.sent(message, self._name)
                if self._outages.pop(message.sink, None) is not None:
                    log.info("alert.sink_back", sink=message.sink)

    async def _send(self, message: Claimed) -> None:
        sink = self._sinks.by_name.get(message.sink)
        if sink is None:
            raise SinkFailed("the settings of this process have no such sink")
        await sink.send(message.document)

    async def _put_off(self, message: Claimed, error: str) -> None:
        chance = random.random()  # noqa: S311  # spreads load, no secret
        wait = _AGAIN.delay(message.tries + 1, chance)
        given_up = await self._messages.failed(message, self._name, error, wait)
        if given_up:
            log.error("alert.given_up", sink=message.sink, alert=message.alert, error=error)
        elif self._outages.get(message.sink) != error:  # one line for an outage
            self._outages[message.sink] = error
            log.warning(
                "alert.sink_away",
                sink=message.sink,
                alert=message.alert,
                error=error,
                remedy=SinkFailed.remedy,
                retry_in_s=round(wait.total_seconds(), 3),
            )
