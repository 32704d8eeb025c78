"""Alerts on their way to people and programs: real receivers, well and unwell."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from email import message_from_bytes, policy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope
from aiosmtpd.smtp import Session as SmtpSession
from structlog.testing import capture_logs

from bench.letters import dead_letters
from redrive.broker.processes import free_ports
from redrive.domain.filters import Filters
from redrive.errors import SinkFailed
from redrive.settings.alerts import AlertSinkSettings
from redrive.settings.values import SinkUrl
from redrive.store.store import Store
from redrive.work.alert_sinks import is_near
from redrive.work.alert_watch import LEASE
from redrive.work.janitor import Chore, Janitor
from tests.services.alerting import MINUTE, Desk, desk, rule
from tests.services.collecting import collecting
from tests.services.eventually import eventually_async
from tests.services.letters import failed, letter_store
from tests.services.moving import publish
from tests.services.plugin import Vhost
from tests.services.receiving import Receiver
from tests.services.retrying import DEAD, declare_topology, topology
from tests.services.sending import later, stored

UNUSABLE = SinkUrl("http://ops:s3cret@localhost/T0 s3cret")
"""As no settings take it."""
BACKLOG = rule("dlq_backlog > 2", summary="Letters wait.")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with letter_store(f"sqlite:///{tmp_path}/redrive.db") as opened:
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    made.up()
    yield made
    made.down()


def sink(kind: str, url: str, **more: Any) -> AlertSinkSettings:
    return AlertSinkSettings.model_validate({"name": kind, "kind": kind, "url": url, **more})


async def firing(store: Store, *sinks: AlertSinkSettings) -> Desk:
    """An alert that has just begun to fire."""
    at = desk(store, [BACKLOG], sinks)
    await store.letters.add([failed("<boom> & more") for _ in range(3)])
    await at.judge()
    return at


async def test_a_webhook_gets_the_document_signed_and_with_an_id(
    store: Store, receiver: Receiver
) -> None:
    at = await firing(store, sink("webhook", receiver.url, secret="s3cret"))
    assert await at.tell() == 2
    (request,) = receiver.received
    assert request.document["alert"] == "TooMany"
    assert request.document["summary"] == "Letters wait."
    assert request.document["groups"][0]["letters"] == 3
    assert request.headers["Idempotency-Key"] == request.document["id"]
    stamp, signature = request.headers["X-Redrive-Signature"].split(",")
    signed = stamp.removeprefix("t=").encode() + b"." + request.body
    wanted = hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert signature == f"v1={wanted}"


async def test_a_receiver_that_is_down_for_a_while_misses_no_alert(
    store: Store, receiver: Receiver
) -> None:
    receiver.down()
    at = await firing(store, sink("webhook", receiver.url))
    sender = at.sender()
    await at.tell(sender)
    (waiting,) = await store.alert_messages.waiting()
    assert (waiting.sink, waiting.messages) == ("webhook", 1)
    assert "refused" in waiting.error
    for _ in range(10):
        later(store, timedelta(minutes=5))
        await at.tell(sender)
    for some in (await store.decisions.listed(Filters())).chunks():
        await store.decisions.discard(list(some.states), "me")
    await at.judge()
    receiver.status = 503
    receiver.up()
    later(store, timedelta(minutes=5))
    await at.tell(sender)
    receiver.received.clear()
    receiver.status = 200
    for _ in range(2):
        later(store, timedelta(minutes=5))
        await at.tell(sender)
    assert receiver.told == [("TooMany", "firing"), ("TooMany", "resolved")]
    assert await store.alert_messages.waiting() == []


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_two_processes_send_one_message_not_two(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, receiver: Receiver
) -> None:
    url = f"sqlite:///{tmp_path}/two.db"
    if engine == "postgresql":
        url = request.getfixturevalue("database")
    settings = [sink("webhook", receiver.url)]
    async with letter_store(url) as one, letter_store(url) as two:
        await stored(one, 3)
        first, second = desk(one, [BACKLOG], settings), desk(two, [BACKLOG], settings)
        later(one, MINUTE)
        later(two, MINUTE)

        async def work(at: Desk, name: str) -> None:
            sender = at.sender(name)
            for _ in range(5):
                await at.watch.round()
                await at.tell(sender)

        await asyncio.gather(work(first, "a"), work(second, "b"), work(first, "c"))
    assert receiver.told == [("TooMany", "firing")]


async def test_slack_gets_text_that_is_not_taken_for_markup(
    store: Store, receiver: Receiver
) -> None:
    at = await firing(store, sink("slack", receiver.url))
    await at.tell()
    text = receiver.received[0].document["text"]
    assert text.startswith("*[firing] TooMany (warning)*")
    assert "&lt;boom&gt; &amp; more" in text
    assert "3 letters in orders" in text


async def test_what_a_slow_sink_has_not_been_sent_yet_nobody_else_is_kept_from_sending(
    store: Store, receiver: Receiver
) -> None:
    receiver.asleep = threading.Event()
    rules = [rule("dlq_backlog > 2", f"Alert{number}") for number in range(3)]
    at = desk(store, rules, [sink("webhook", receiver.url)])
    await stored(store, 3)
    await at.judge()
    slow = asyncio.create_task(at.tell(at.sender("slow")))
    await eventually_async(lambda: receiver.received, what="the first message hangs")
    later(store, timedelta(seconds=50))  # longer than one sending may take, shorter than its lease
    first = receiver.received[0].document["alert"]
    claimed = [await store.alert_messages.claim("other", "webhook", LEASE) for _ in range(3)]
    assert {each.alert for each in claimed if each} == {each.name for each in rules} - {first}
    receiver.asleep.set()
    assert await slow == 4  # three of the log
    assert len(receiver.received) == 1


async def test_a_redirect_is_a_failure_and_not_followed(store: Store, receiver: Receiver) -> None:
    receiver.status = 302
    at = await firing(store, sink("webhook", receiver.url))
    await at.tell()
    (waiting,) = await store.alert_messages.waiting()
    assert "302" in waiting.error


@pytest.mark.parametrize("kind", ["webhook", "slack", "alertmanager"])
async def test_a_url_that_cannot_be_used_is_not_shown_with_the_reason(
    store: Store, kind: str
) -> None:
    at = await firing(store, sink(kind, "http://localhost/").model_copy(update={"url": UNUSABLE}))
    await at.tell()
    (waiting,) = await store.alert_messages.waiting()
    assert waiting.error == "its url cannot be used"


# E-mail


class Mailbox:
    """What a real SMTP server got."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], bytes]] = []
        self.unknown: set[str] = set()

    async def handle_RCPT(  # noqa: N802  (the library's name)
        self,
        _server: Any,
        _session: SmtpSession,
        envelope: Envelope,
        address: str,
        _options: list[str],
    ) -> str:
        if address in self.unknown:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802  (the library's name)
        self, _server: Any, _session: SmtpSession, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append((envelope.rcpt_tos, envelope.content))
        return "250 OK"


def _only_ann(_server: Any, _session: Any, _envelope: Any, _how: str, data: Any) -> AuthResult:
    known = (data.login, data.password) == (b"ann", b"p@ss")
    return AuthResult(success=known, handled=False)


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    box, (port,) = Mailbox(), free_ports(1)
    controller = Controller(
        box,
        hostname="127.0.0.1",
        port=port,
        authenticator=_only_ann,
        auth_require_tls=False,
        auth_required=True,
        ready_timeout=60,
    )
    controller.start()
    yield box, port
    controller.stop()


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_a_mail_arrives_at_everybody_by_a_real_server(
    store: Store, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    to = ["ops@example.com", "ann@example.com"]
    url = f"smtp://ann:p%40ss@127.0.0.1:{port}"
    at = await firing(store, sink("email", url, sender="redrive@example.com", to=to))
    await at.tell()
    ((recipients, raw),) = box.mails
    mail = message_from_bytes(raw, policy=policy.default)
    assert recipients == to
    assert mail["Subject"] == "Redrive: [firing] TooMany (warning)"
    assert mail["From"] == "redrive@example.com"
    text = mail.get_content()
    assert "Letters wait." in text
    assert "3 letters in orders" in text
    assert "https://redrive.example/" in text
    assert await store.alert_messages.waiting() == []


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_a_mail_server_that_does_not_let_us_in_is_said_and_tried_again(
    store: Store, mailbox: tuple[Mailbox, int]
) -> None:
    _, port = mailbox
    url = f"smtp://ann:wrong@127.0.0.1:{port}"
    at = await firing(store, sink("email", url, sender="a@example.com", to=["b@example.com"]))
    await at.tell()
    (waiting,) = await store.alert_messages.waiting()
    assert "535" in waiting.error
    assert "wrong" not in waiting.error


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_a_recipient_whom_the_server_refuses_is_in_the_log_and_the_others_are_told(
    store: Store, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    box.unknown = {"gone@example.com"}
    url = f"smtp://ann:p%40ss@127.0.0.1:{port}"
    to = ["gone@example.com", "ops@example.com"]
    at = await firing(store, sink("email", url, sender="redrive@example.com", to=to))
    with capture_logs() as logged:
        await at.tell()
    assert [recipients for recipients, _ in box.mails] == [["ops@example.com"]]
    (refused,) = [each for each in logged if each["event"] == "alert.recipient_refused"]
    assert (refused["sink"], refused["alert"]) == ("email", "TooMany")
    assert refused["recipient"] == "gone@example.com"
    assert refused["error"] == "550 no such user"
    assert await store.alert_messages.waiting() == []
    await at.judge(timedelta(hours=5))
    message = await store.alert_messages.claim("other", "email", LEASE)
    assert message is not None
    with pytest.raises(SinkFailed, match="it refused gone@example"):
        await at.sinks.by_name["email"].send({**message.document, "status": "test"})
    box.unknown = set(to)
    later(store, 2 * LEASE)
    await at.tell()
    (waiting,) = await store.alert_messages.waiting()
    assert "550" in waiting.error


async def test_a_mail_that_cannot_be_written_ends_nobody(store: Store) -> None:
    settings = sink("email", "smtp://127.0.0.1:1", sender="a@example.com", to=["b@example.com"])
    at = await firing(store, settings.model_copy(update={"sender": "a@["}))  # no settings take it
    await at.tell()
    (waiting,) = await store.alert_messages.waiting()
    assert waiting.error == "it cannot be told: AttributeError"


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("203.0.113.7", False),
        ("fe80::1%eth0", False),
    ],
)
def test_a_password_goes_unencrypted_to_this_machine_only(address: str, near: bool) -> None:
    assert is_near(address) is near


# Others do not wait


async def test_a_sink_that_hangs_keeps_neither_other_sinks_nor_the_collector_waiting(
    vhost: Vhost, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It hangs for four minutes, so that whoever waited for it would be late on any machine.
    monkeypatch.setattr("redrive.work.alert_sinks._PATIENCE", 240.0)
    monkeypatch.setattr("redrive.work.alert_sinks._DEADLINE", 240.0)
    asleep = Receiver(asleep=threading.Event())
    asleep.up()
    hanging = AlertSinkSettings.model_validate(
        {"name": "hanging", "kind": "webhook", "url": asleep.url}
    )
    await declare_topology(vhost.url, topology("quorum"))
    async with letter_store(f"sqlite:///{tmp_path}/shared.db") as shared:
        sinks = (hanging, sink("webhook", receiver.url))
        at = desk(shared, [BACKLOG, rule("dlq_backlog > 100", "Second")], sinks)
        await stored(shared, 3)
        await at.judge()
        stopping = asyncio.Event()
        sender = at.sender()
        chores = [Chore(name, 0.05, partial(sender.round, name)) for name in at.sinks.by_name]
        janitor = asyncio.create_task(Janitor(chores).run(stopping))
        await eventually_async(lambda: asleep.received, what="the message hangs")
        async with collecting(vhost.url, shared.letters, DEAD):
            await publish(vhost.url, list(dead_letters(DEAD, 500)))

            async def all_there() -> bool:
                return (await shared.books.ledger()).received == 503

            await eventually_async(all_there, within=60, what="everything is collected")
        await eventually_async(lambda: receiver.told, within=60, what="the first is told")
        assert receiver.told == [("TooMany", "firing")]
        await at.judge()
        await eventually_async(
            lambda: receiver.told == [("TooMany", "firing"), ("Second", "firing")],
            within=60,
            what="what fires while a message hangs is told",
        )
        assert len(asleep.received) == 1
        asleep.down()
        stopping.set()
        await janitor
