"""Alerts in the store: judged once, told once, kept until told. On SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive.domain import metrics
from redrive.domain.alerting import LOG_SINK, Phase, Rule
from redrive.domain.filters import Audit
from redrive.settings.alerts import AlertSinkSettings
from redrive.store.alert_messages import Claimed
from redrive.store.alerts import Alerts
from redrive.store.books import Books
from redrive.store.store import Store
from redrive.work.alert_list import list_alerts
from redrive.work.alert_message import AlertWords
from redrive.work.alert_watch import LEASE, AlertWatch
from redrive.work.redact import NO_REDACTION
from tests.services.alerting import CONSOLE, DEFAULTS, DRIVES, MINUTE, STEP, desk, rule
from tests.services.letters import failed, letter_store
from tests.services.sending import later, stored


async def told(store: Store) -> list[tuple[str, str]]:
    """Every message that is due, taken and noted as sent, in order: the alert and what it says."""
    found: list[tuple[str, str]] = []
    while message := await store.alert_messages.claim("t", LOG_SINK, LEASE):
        found.append((message.alert, message.document["status"]))
        await store.alert_messages.sent(message, "t")
    return found


async def claims(store: Store, worker: str = "t") -> list[Claimed]:
    """Every message that is due and that nobody else has."""
    found: list[Claimed] = []
    while message := await store.alert_messages.claim(worker, LOG_SINK, LEASE):
        found.append(message)
    return found


def webhook(name: str) -> AlertSinkSettings:
    return AlertSinkSettings.model_validate(
        {"name": name, "kind": "webhook", "url": "http://127.0.0.1:9/"}
    )


BACKLOG = rule("dlq_backlog > 2")


async def test_an_alert_fires_when_its_condition_holds_and_resolves_when_it_does_not(
    store: Store,
) -> None:
    at = desk(store, [BACKLOG])
    await at.judge()
    assert await at.phase() is Phase.QUIET
    ids = await stored(store, 3)
    await at.judge()
    assert await at.phase() is Phase.FIRING
    await store.decisions.discard(ids[:1], "me")
    await at.judge()
    assert await at.phase() is Phase.QUIET
    assert await told(store) == [("TooMany", "firing"), ("TooMany", "resolved")]


async def test_an_alert_waits_as_long_as_its_rule_says_and_a_lapse_begins_anew(
    store: Store,
) -> None:
    at = desk(store, [rule("dlq_backlog > 2", hold=timedelta(minutes=5))])
    ids = await stored(store, 3)
    await at.judge()
    assert await at.phase() is Phase.PENDING
    await at.judge(timedelta(minutes=4))
    await store.decisions.discard(ids[:1], "me")
    await at.judge()
    await store.decisions.restore(ids[:1], "me")
    await at.judge()
    await at.judge(timedelta(minutes=4))
    assert await at.phase() is Phase.PENDING
    await at.judge(MINUTE)
    assert await at.phase() is Phase.FIRING
    assert await told(store) == [("TooMany", "firing")]


async def test_an_alert_that_still_fires_is_told_again(store: Store) -> None:
    at = desk(store, [rule("dlq_backlog > 2", repeat=timedelta(hours=1))])
    await stored(store, 3)
    await at.judge()
    assert await told(store) == [("TooMany", "firing")]
    await at.judge(timedelta(minutes=59))
    assert await told(store) == []
    await at.judge(MINUTE)
    assert await told(store) == [("TooMany", "still firing")]


async def test_a_message_says_what_since_when_the_largest_groups_and_where_to_look(
    store: Store,
) -> None:
    at = desk(store, [rule("dlq_backlog > 2", summary="Letters wait.")])
    for number, letters in enumerate((5, 1, 9, 3)):
        await store.letters.add(
            [failed(f"reason {'abcd'[number]}", queue=f"q{number}") for _ in range(letters)]
        )
    await at.judge()
    (message,) = await claims(store)
    document = message.document
    assert document["summary"] == "Letters wait."
    assert document["value"] == 18
    assert document["since"].endswith("Z")
    assert [(group["queue"], group["letters"]) for group in document["groups"]] == [
        ("q2", 9),
        ("q0", 5),
        ("q3", 3),
    ]
    assert document["link"] == f"{CONSOLE}/"
    assert document["groups"][0]["link"].startswith(f"{CONSOLE}/groups/")


async def test_of_many_judges_at_once_one_judges_each_step(store: Store) -> None:
    at = desk(store, [BACKLOG])
    await stored(store, 3)
    later(store, MINUTE)
    await asyncio.gather(*(at.watch.round() for _ in range(8)))
    assert await told(store) == [("TooMany", "firing")]


async def test_a_judge_that_is_overtaken_by_one_of_a_later_step_tells_nothing(store: Store) -> None:
    ids = await stored(store, 3)
    later(store, MINUTE)
    at = desk(store, [BACKLOG])

    class Slow(Books):
        """Takes so long that another judge comes first, when the letters are gone."""

        async def audit(self) -> Audit:
            found = await super().audit()
            await store.decisions.discard(ids, "me")
            await at.judge()
            return found

    alerts = Alerts(store.database, store.clock, store.figures, Slow(store.database))
    slow = AlertWatch(alerts, [BACKLOG], at.sinks, AlertWords(NO_REDACTION, CONSOLE))
    await slow.round()
    assert await at.phase() is Phase.QUIET
    assert await told(store) == []


async def test_two_judges_of_different_steps_at_once_tell_once_that_an_alert_fires(
    store_database: str,
) -> None:
    async with letter_store(store_database) as one, letter_store(store_database) as two:
        await stored(one, 3)
        rules = [rule("dlq_backlog > 2", f"Alert{number}") for number in range(5)]
        first, second = desk(one, rules), desk(two, rules[::-1])
        await asyncio.gather(first.judge(MINUTE), second.judge(MINUTE + STEP))
        assert sorted(await told(two)) == [(each.name, "firing") for each in rules]


# Silences


async def test_a_silence_hides_messages_and_what_still_fires_is_told_when_it_ends(
    store: Store,
) -> None:
    at = desk(store, [BACKLOG])
    await store.alerts.silence("TooMany", timedelta(hours=1), "deploy", "ann")
    await stored(store, 3)
    await at.judge()
    assert await at.phase() is Phase.FIRING
    assert await told(store) == []
    await at.judge(timedelta(hours=1))
    assert await told(store) == [("TooMany", "firing")]


async def test_what_was_told_to_fire_is_told_to_be_resolved_during_a_silence_too(
    store: Store,
) -> None:
    at = desk(store, [BACKLOG])
    ids = await stored(store, 3)
    await at.judge()
    await store.alerts.silence("TooMany", timedelta(hours=1), "", "ann")
    await store.decisions.discard(ids, "me")
    await at.judge()
    assert await told(store) == [("TooMany", "firing"), ("TooMany", "resolved")]


async def test_alertmanager_hears_of_what_was_told_to_fire_during_a_silence_too(
    store: Store,
) -> None:
    sink = AlertSinkSettings.model_validate(
        {"name": "am", "kind": "alertmanager", "url": "http://127.0.0.1:9"}
    )
    at = desk(store, [BACKLOG], [sink])
    await stored(store, 3)
    await at.judge()
    await store.alerts.silence("TooMany", timedelta(hours=1), "", "ann")
    first = await store.alert_messages.claim("t", "am", LEASE)
    assert first is not None
    await store.alert_messages.sent(first, "t")
    await at.judge_for(MINUTE, STEP)
    again = await store.alert_messages.claim("t", "am", LEASE)
    assert again is not None
    assert again.document["status"] == "still firing"
    assert await told(store) == [("TooMany", "firing")]


async def test_a_silence_can_be_ended_and_is_shown_while_it_lasts(store: Store) -> None:
    await store.alerts.silence("TooMany", timedelta(hours=1), "first", "ann")
    await store.alerts.silence("TooMany", timedelta(hours=2), "deploy", "bob")
    (item,) = (await list_alerts(store, [BACKLOG]))["items"]
    assert (item["silence"]["reason"], item["silence"]["by"]) == ("deploy", "bob")
    assert await store.alerts.end_silence("TooMany")
    assert not await store.alerts.end_silence("TooMany")
    assert await store.alerts.silences() == {}


# Messages


async def test_two_senders_never_have_the_same_message(store: Store) -> None:
    at = desk(store, [BACKLOG, rule("dlq_backlog > 1", "Other")])
    await stored(store, 3)
    await at.judge()
    one, two = await asyncio.gather(claims(store, "a"), claims(store, "b"))
    assert sorted(message.alert for message in (*one, *two)) == ["Other", "TooMany"]
    assert await claims(store, "c") == []


async def test_a_message_of_a_sender_that_died_is_sent_by_another_with_the_same_id(
    store: Store,
) -> None:
    at = desk(store, [BACKLOG])
    await stored(store, 3)
    await at.judge()
    (first,) = await claims(store, "dies")
    later(store, LEASE)
    (again,) = await claims(store, "lives")
    assert again.document["id"] == first.document["id"] == first.id
    await store.alert_messages.sent(first, "dies")
    later(store, LEASE)
    (still,) = await claims(store, "lives")
    assert still.id == first.id
    await store.alert_messages.failed(first, "dies", "refused", MINUTE)
    await store.alert_messages.sent(still, "lives")
    counted = await store.figures.read()
    assert counted.values[metrics.ALERT_MESSAGES.name] == {("sent",): 1, ("failed",): 0}


async def test_messages_of_an_alert_go_in_their_order(store: Store) -> None:
    at = desk(store, [BACKLOG])
    ids = await stored(store, 3)
    await at.judge()
    await store.decisions.discard(ids, "me")
    await at.judge()
    (first,) = await claims(store)
    assert first.document["status"] == "firing"
    await store.alert_messages.failed(first, "t", "refused", timedelta(seconds=30))
    assert await claims(store) == []
    (waiting,) = await store.alert_messages.waiting()
    assert (waiting.sink, waiting.messages, waiting.error) == (LOG_SINK, 2, "refused")
    later(store, timedelta(seconds=30))
    assert await told(store) == [("TooMany", "firing"), ("TooMany", "resolved")]
    counted = await store.figures.read()
    assert counted.values[metrics.ALERT_MESSAGES.name] == {("sent",): 2, ("failed",): 1}


async def test_of_messages_that_failed_the_reason_of_the_oldest_is_shown(store: Store) -> None:
    at = desk(store, [BACKLOG, rule("dlq_backlog > 1", "Other")])
    await stored(store, 3)
    await at.judge()
    first, second = sorted(await claims(store), key=lambda message: message.id)
    await store.alert_messages.failed(second, "t", "z: no such host", MINUTE)
    (waiting,) = await store.alert_messages.waiting()
    assert (waiting.messages, waiting.error) == (2, "z: no such host")
    await store.alert_messages.failed(first, "t", "a: refused", MINUTE)
    (waiting,) = await store.alert_messages.waiting()
    assert (waiting.messages, waiting.error) == (2, "a: refused")


async def test_what_no_sink_takes_for_three_days_is_given_up(store: Store) -> None:
    at = desk(store, [BACKLOG])
    await stored(store, 3)
    await at.judge()
    later(store, timedelta(days=3, minutes=1))
    (message,) = await claims(store)
    assert await store.alert_messages.failed(message, "t", "gone", MINUTE)
    later(store, timedelta(days=30))
    assert await claims(store) == []
    await store.alert_messages.forget()
    assert await store.alert_messages.waiting() == []


async def test_a_message_to_a_sink_that_nobody_has_is_kept_for_some_days_and_keeps_no_other_waiting(
    store: Store,
) -> None:
    at = desk(store, [BACKLOG], [webhook("gone")])
    await stored(store, 3)
    await at.judge()
    assert await told(store) == [("TooMany", "firing")]
    later(store, timedelta(days=3))
    await store.alert_messages.forget()
    assert [each.sink for each in await store.alert_messages.waiting()] == ["gone"]
    later(store, timedelta(days=1, minutes=1))
    await store.alert_messages.forget()
    assert await store.alert_messages.waiting() == []


async def test_repeats_do_not_pile_up_where_a_sink_is_away(store: Store) -> None:
    at = desk(store, [rule("dlq_backlog > 2", repeat=MINUTE)])
    await stored(store, 3)
    await at.judge_for(timedelta(minutes=10))
    assert await told(store) == [("TooMany", "firing")]


async def test_an_alert_whose_rule_is_gone_is_forgotten(store: Store) -> None:
    await desk(store, [BACKLOG]).judge()
    await desk(store, [rule("dlq_failed > 5", "Other")]).judge(timedelta(minutes=11))
    assert [each.name for each in await store.alerts.all()] == ["Other"]


async def test_an_alert_whose_rule_is_gone_is_told_to_be_resolved_to_whoever_knew_of_it(
    store: Store,
) -> None:
    sinks = [webhook("ops"), webhook("others")]
    before = desk(store, [rule("dlq_backlog > 2", sinks=(LOG_SINK, "ops"))], sinks)
    after = desk(store, [rule("dlq_failed > 5", "Other")], sinks)
    await stored(store, 3)
    await before.judge()
    assert await told(store) == [("TooMany", "firing")]
    await after.judge(timedelta(minutes=11))
    (resolved,) = await claims(store)
    assert (resolved.alert, resolved.document["status"]) == ("TooMany", "resolved")
    assert resolved.document["summary"] == "No rule has this name any more."
    waiting = await store.alert_messages.waiting()
    assert [(each.sink, each.messages) for each in waiting] == [(LOG_SINK, 1), ("ops", 2)]
    await store.alert_messages.sent(resolved, "t")
    await after.judge(timedelta(minutes=11))
    assert await claims(store) == []


async def test_what_came_in_while_nobody_judged_does_not_count_for_now(store: Store) -> None:
    at = desk(store, [rule("increase(letters_received, 5m) > 100")])
    await at.judge()
    await store.letters.add([failed("boom") for _ in range(200)])
    await at.judge(timedelta(hours=3))
    assert await at.phase() is Phase.QUIET
    await store.letters.add([failed("boom") for _ in range(200)])
    await at.judge()
    assert await at.phase() is Phase.FIRING


async def test_the_alerts_that_fire_are_a_metric(store: Store) -> None:
    at = desk(store, [BACKLOG])
    await stored(store, 3)
    await at.judge()
    found = await store.figures.read()
    assert found.values[metrics.FIRING.name] == {("TooMany", "warning"): 1}
    assert found.values[metrics.DIFFERENCE.name] == {(): 0}


def test_every_default_alert_is_driven() -> None:
    assert set(DRIVES) == set(DEFAULTS)


@pytest.mark.parametrize("default", DEFAULTS.values(), ids=lambda default: default.name)
async def test_a_default_alert_fires_and_resolves_by_what_it_is_about(
    store: Store, default: Rule
) -> None:
    at, drive = desk(store, [default]), DRIVES[default.name]
    await at.judge()
    assert await at.phase() is not Phase.FIRING
    await drive.fire(at)
    await at.judge()
    assert await at.phase() is Phase.FIRING
    await drive.resolve(at)
    await at.judge()
    assert await at.phase() is Phase.QUIET
    assert await told(store) == [(default.name, "firing"), (default.name, "resolved")]
