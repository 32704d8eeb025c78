"""Alerts at work: judged every step by one of all janitors, told by one of all senders.

    AlertWatch.round    metrics → conditions → standings and messages, one transaction
    AlertSender.round   messages to one sink that are due → the sink → noted

Each sink has rounds of its own. One that is down, slow or wrong keeps its messages waiting, those
of no other sink, and nothing else that Redrive does. What it missed it gets when it is back, in
order. A message is claimed just before it is sent, so its lease covers one sending.
"""

from __future__ import annotations

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
"""Longer than any sink may take for one message."""
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

    async def round(self, sink: str) -> int:
        """Send what is due to a sink, until it fails; how many messages it took."""
        taken = 0
        while (message := await self._messages.claim(self._name, sink, LEASE)) is not None:
            try:
                await self._sinks.by_name[sink].send(message.document)
            except SinkFailed as error:
                await self._put_off(message, str(error))
                break
            await self._messages.sent(message, self._name)
            taken += 1
            if self._outages.pop(sink, None) is not None:
                log.info("alert.sink_back", sink=sink)
        return taken

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
