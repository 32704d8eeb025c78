"""Sinks: who is told of alerts, and how.

Guarantees: a sink takes a message (`send` returns), or it does not (`SinkFailed`, with the reason);
it never raises anything else, and never takes longer than `_DEADLINE`. Every message carries its
id, so that a receiver can drop a second copy. Each sink has a thread that nothing else uses: one
that hangs keeps nobody waiting but itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import ipaddress
import json
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import structlog

from redrive._version import __version__
from redrive.domain.alerting import LOG_SINK, SinkKind, Telling
from redrive.errors import SinkFailed
from redrive.settings.alerts import AlertSinkSettings
from redrive.work.alert_message import lines, read_time, title
from redrive.work.times import rfc3339

log = structlog.get_logger()

_PATIENCE: Final = 10.0
"""Seconds, for each answer of a server."""
_DEADLINE: Final = 2 * _PATIENCE
"""Seconds, for all of them together."""
_FIRES_ON: Final = timedelta(minutes=5)
"""How long Alertmanager takes an alert for firing that is not told again."""

Document = dict[str, Any]
_T = TypeVar("_T")


class Sink(Protocol):
    """Somebody who is told."""

    refreshed: bool
    """Whether it has to be told every minute that an alert still fires."""

    async def send(self, document: Document) -> None:
        """Tell; `SinkFailed` if that did not work."""


class LogSink:
    """Writes a line to the log."""

    refreshed = False

    async def send(self, document: Document) -> None:
        resolved = document["status"] == Telling.RESOLVED.value
        write = log.info if resolved else log.warning
        write(
            f"alert.{document['status'].replace(' ', '_')}",
            alert=document["alert"],
            severity=document["severity"],
            summary=document["summary"],
            condition=document["condition"],
            value=document["value"],
            since=document["since"],
            groups=[group["fingerprint"] for group in document["groups"]],
            link=document["link"],
        )


class WebhookSink:
    """Posts the document as JSON, signed if there is a secret.

    `X-Redrive-Signature: t=<seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>", in hex>`.
    """

    refreshed = False

    def __init__(self, settings: AlertSinkSettings, thread: ThreadPoolExecutor) -> None:
        self._url = settings.url.reveal()
        self._secret = None if settings.secret is None else settings.secret.reveal()
        self._thread = thread

    async def send(self, document: Document) -> None:
        body = json.dumps(document).encode()
        headers = {"Idempotency-Key": document["id"]}
        if self._secret is not None:
            headers["X-Redrive-Signature"] = sign(self._secret, int(time.time()), body)
        await _in_thread(self._thread, _post, self._url, body, headers)


class SlackSink:
    """Posts to an incoming webhook of Slack, or of what understands the same."""

    refreshed = False

    def __init__(self, settings: AlertSinkSettings, thread: ThreadPoolExecutor) -> None:
        self._url = settings.url.reveal()
        self._thread = thread

    async def send(self, document: Document) -> None:
        shown = "\n".join([f"*{_escaped(title(document))}*", *map(_escaped, lines(document))])
        await _in_thread(self._thread, _post, self._url, json.dumps({"text": shown}).encode(), {})


class AlertmanagerSink:
    """Posts to the API of Alertmanager, version 2; it keeps no alert that is not told again."""

    refreshed = True

    def __init__(self, settings: AlertSinkSettings, thread: ThreadPoolExecutor) -> None:
        self._url = settings.url.reveal().rstrip("/") + "/api/v2/alerts"
        self._thread = thread

    async def send(self, document: Document) -> None:
        resolved = document["status"] == Telling.RESOLVED.value
        # The database's clock may be ahead of Alertmanager's, to which the future is not yet.
        now = datetime.now(UTC)
        ends = min(read_time(document["at"]), now) if resolved else now + _FIRES_ON
        began = min(read_time(document["since"]), ends, now)
        alert: Document = {
            "labels": {
                "alertname": document["alert"],
                "severity": document["severity"],
                "service": "redrive",
            },
            "annotations": {
                "summary": document["summary"],
                "description": "\n".join(lines(document)),
            },
            "startsAt": rfc3339(began),
            "endsAt": rfc3339(ends),
        }
        if document["link"]:
            alert["generatorURL"] = document["link"]
        await _in_thread(self._thread, _post, self._url, json.dumps([alert]).encode(), {})


class EmailSink:
    """Sends by SMTP; encrypted wherever the server can, and a password never otherwise, except to
    this machine.

    A server that refuses some of the recipients has taken the mail for the others: to try again
    would hold up what they are to hear next, so the log says who has not got it; of a test, the
    answer does.
    """

    refreshed = False

    def __init__(self, settings: AlertSinkSettings, thread: ThreadPoolExecutor) -> None:
        self._settings = settings
        self._thread = thread

    async def send(self, document: Document) -> None:
        refused = await _in_thread(self._thread, _mail, self._settings, document)
        if refused and document["status"] == Telling.TEST.value:
            shown = "; ".join(f"{recipient}: {reason}" for recipient, reason in refused.items())
            raise SinkFailed(f"it refused {shown}")
        for recipient, reason in refused.items():
            log.error(
                "alert.recipient_refused",
                sink=self._settings.name,
                alert=document["alert"],
                recipient=recipient,
                error=reason,
                remedy="mend or remove the address in 'to' of this [[alert_sink]]",
            )


_SINKS: Final[dict[SinkKind, Callable[[AlertSinkSettings, ThreadPoolExecutor], Sink]]] = {
    SinkKind.WEBHOOK: WebhookSink,
    SinkKind.SLACK: SlackSink,
    SinkKind.EMAIL: EmailSink,
    SinkKind.ALERTMANAGER: AlertmanagerSink,
}


class Sinks:
    """All sinks of the settings, and the log."""

    def __init__(self, settings: tuple[AlertSinkSettings, ...]) -> None:
        self._threads: list[ThreadPoolExecutor] = []
        self.by_name: dict[str, Sink] = {LOG_SINK: LogSink()}
        for each in settings:
            thread = ThreadPoolExecutor(1, thread_name_prefix=f"redrive-sink-{each.name}")
            self._threads.append(thread)
            self.by_name[each.name] = _SINKS[each.kind](each, thread)

    def close(self) -> None:
        """Without waiting for what hangs."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)


def sign(secret: str, seconds: int, body: bytes) -> str:
    """The signature of a webhook."""
    signed = f"{seconds}.".encode() + body
    return f"t={seconds},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


async def _in_thread(thread: ThreadPoolExecutor, function: Callable[..., _T], *given: object) -> _T:
    try:
        async with asyncio.timeout(_DEADLINE):
            return await asyncio.get_running_loop().run_in_executor(thread, function, *given)
    except SinkFailed:
        raise
    except TimeoutError:
        raise SinkFailed(f"no answer within {_DEADLINE:g} s") from None
    except Exception as error:  # noqa: BLE001  (one sink must not end the janitor)
        # Not its text, which may hold the URL, and viewers see this.
        raise SinkFailed(f"it cannot be told: {type(error).__name__}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere arrives nowhere: it would become a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, body: bytes, headers: dict[str, str]) -> None:
    about = {"Content-Type": "application/json", "User-Agent": f"redrive/{__version__}"}
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        request = urllib.request.Request(  # noqa: S310 - the settings take http and https only
            url, data=body, headers=about | headers
        )
        with opener.open(request, timeout=_PATIENCE):
            return
    except urllib.error.HTTPError as error:
        with error:
            raise SinkFailed(f"it answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SinkFailed(_plainly(error)) from None


def _mail(settings: AlertSinkSettings, document: Document) -> dict[str, str]:
    """Send it; the recipients that the server refused, while it took others, and why."""
    mail = _written(settings, document)
    parts = urlsplit(settings.url.reveal())
    host = parts.hostname or ""
    try:
        with _connected(parts.scheme, host, parts.port) as server:
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            if parts.username:
                _require_private(server)
                server.login(unquote(parts.username), unquote(parts.password or ""))
            refused = server.send_message(mail)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise SinkFailed(_plainly(error)) from None
    return {
        recipient: f"{code} {answer.decode(errors='replace')}"
        for recipient, (code, answer) in refused.items()
    }


def _written(settings: AlertSinkSettings, document: Document) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = f"Redrive: {title(document)}"
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    mail["Message-ID"] = f"<{document['id']}@redrive>"
    mail["Date"] = read_time(document["at"])
    mail.set_content("\n".join(lines(document)) + "\n")
    return mail


def _require_private(server: smtplib.SMTP) -> None:
    """Nobody on the way reads the password."""
    assert server.sock is not None  # it has answered
    if not isinstance(server.sock, ssl.SSLSocket) and not is_near(server.sock.getpeername()[0]):
        raise SinkFailed(
            "it offers no encryption, so the password is not sent; use smtps:// or a server that"
            " has STARTTLS"
        )


def is_near(address: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def _connected(scheme: str, host: str, port: int | None) -> smtplib.SMTP:
    if scheme == "smtps":
        context = ssl.create_default_context()
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            host, port or 465, timeout=_PATIENCE, context=context
        )
    else:
        server = smtplib.SMTP(host, port or 25, timeout=_PATIENCE)
    server.ehlo()
    return server


def _plainly(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {_PATIENCE:g} s"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    if isinstance(cause, ValueError | http.client.InvalidURL):
        return "its url cannot be used"  # the text of these holds the URL, or a part of it
    return " ".join(str(cause).split()) or type(cause).__name__


def _escaped(text: str) -> str:
    """As Slack wants it: nothing of a message is taken for a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
