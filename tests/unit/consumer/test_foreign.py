"""What consumers of other client libraries publish for a message that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from aio_pika.exceptions import DeliveryError, PublishError
from pika import BasicProperties
from pika.exceptions import NackError, UnroutableError
from pika.spec import Basic

from redrive import DeadLetter, RetryAfter
from redrive.amqp.ours import STARTS_ANEW
from redrive.consumer import with_aio_pika, with_pika
from redrive.consumer.foreign import Failed, dead_instead, forward
from redrive.domain import headers
from redrive.errors import SettingsError
from tests.services.consuming import settings_for

SETTINGS = settings_for("amqp://guest:guest@127.0.0.1:1/", "classic")
DEATHS = [
    {"queue": "q", "exchange": "e" * 200, "reason": "rejected", "routing-keys": ["k" * 255] * 3}
    for _ in range(headers.MAX_DEATHS)
]


def failed(**found: Any) -> Failed:
    return Failed(queue="q", exchange="", routing_key="q", headers=found, body=b"")


def id_of(message_id: str | None, found: dict[str, Any]) -> object:
    message = replace(failed(**found), message_id=message_id)
    return forward(message, ValueError("no"), retries=0, settings=SETTINGS).headers[headers.ID]


def test_messages_without_a_message_id_that_differ_in_their_headers_have_different_ids() -> None:
    one, other = {"tenant": "a", "more": {"x": 1, "y": [2]}}, {"tenant": "b"}
    assert id_of(None, one) != id_of(None, other)
    in_another_order = {"more": {"y": [2], "x": 1}, "tenant": "a", "x-delivery-count": 3}
    assert id_of(None, one) == id_of(None, in_another_order)
    died = {**one, "x-death": [{"queue": "before", "count": 1}]}
    assert id_of(None, one) != id_of(None, died)


def test_with_a_message_id_the_id_is_what_it_was_before_headers_counted() -> None:
    assert id_of("m-1", {"tenant": "a"}) == id_of("m-1", {"tenant": "b"})
    assert id_of("m-1", {}) == "4d0337a1-8ae1-8ed2-9ca8-4bbccd4b74a2"


def test_what_was_noted_of_another_queue_is_forgotten() -> None:
    noted = {octets.decode(): "noted" for octets in STARTS_ANEW}
    sent = forward(
        failed(**{**noted, headers.QUEUE: "before"}), DeadLetter("no"), retries=0, settings=SETTINGS
    )
    assert sent.headers[headers.PARENT] == "noted"
    assert "noted" not in {sent.headers.get(name) for name in noted}


def test_a_copy_that_came_beside_another_queues_counts_on_and_goes_to_its_own_queue_alone() -> None:
    noted = {
        headers.QUEUE: "before",
        headers.EXCHANGE: "",
        headers.ROUTING_KEY: "q",
        headers.ATTEMPT: 2,
        headers.BY_EXCHANGE: "before",
    }
    sent = forward(failed(**noted), ValueError("no"), retries=3, settings=SETTINGS)
    assert sent.headers[headers.QUEUE] == "q"
    assert sent.headers[headers.ATTEMPT] == 3
    assert sent.headers[headers.BY_EXCHANGE] == "before"


def size(found: dict[str, Any]) -> int:
    return sum(len(value.encode()) for value in found.values() if isinstance(value, str))


def test_a_long_error_is_cut_to_what_redrive_may_add() -> None:
    sent = forward(failed(), ValueError("ä" * 200_000), retries=0, settings=SETTINGS)
    assert size(sent.headers) <= 16 * 1024
    assert str(sent.headers[headers.ERROR_REASON]).startswith("ää")
    assert sent.headers[headers.ERROR_TYPE] == "ValueError"
    again = dead_instead(sent, "not taken", SETTINGS, refused=False)
    assert size(again.headers) <= 16 * 1024
    assert str(again.headers[headers.ERROR_REASON]).startswith("not taken (")


def test_the_stack_goes_first_then_old_deaths_and_the_newest_stay() -> None:
    noted = {headers.QUEUE: "q", headers.DEATHS: DEATHS, "own": "x" * 20_000}
    sent = forward(failed(**noted), ValueError("r" * 3_000), retries=0, settings=SETTINGS)
    assert sent.headers["own"] == "x" * 20_000
    assert sent.headers[headers.ERROR_STACK] == ""
    assert sent.headers[headers.ERROR_REASON] == "r" * 3_000
    kept = sent.headers[headers.DEATHS]
    assert 0 < len(kept) < headers.MAX_DEATHS
    assert kept[-1]["queue"] == "q"


@pytest.mark.parametrize(
    "error", [ValueError("no"), RetryAfter("1h"), RetryAfter("1h", counts=False)]
)
@pytest.mark.parametrize("before", [None, 1])
def test_a_retry_that_no_queue_took_is_not_counted(error: Exception, before: int | None) -> None:
    noted = (
        {headers.QUEUE: "q"} if before is None else {headers.QUEUE: "q", headers.ATTEMPT: before}
    )
    sent = forward(failed(**noted), error, retries=3, settings=SETTINGS)
    dead = dead_instead(sent, "not taken", SETTINGS, refused=False)
    assert dead.headers.get(headers.ATTEMPT) == before
    assert headers.NOT_BEFORE not in dead.headers


class Full:
    """A channel of pika whose first publish fails so."""

    _delivery_confirmation = True

    def __init__(self, trouble: Exception) -> None:
        self._trouble: list[Exception] = [trouble]
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.acked: list[int] = []

    def basic_publish(self, exchange: str, _: str, __: bytes, put: Any, **___: bool) -> None:
        self.sent.append((exchange, put.headers))
        if self._trouble:
            raise self._trouble.pop()

    def basic_ack(self, tag: int) -> None:
        self.acked.append(tag)


@pytest.mark.parametrize(
    ("trouble", "error", "mark"),
    [
        (NackError([]), ValueError("no"), True),
        (UnroutableError([]), ValueError("no"), None),
        (NackError([]), RetryAfter("1m"), None),  # by its name to one queue, which has it not
    ],
    ids=["refused", "returned", "refused by a rung"],
)
def test_a_dead_letter_after_a_copy_that_another_queue_may_have_is_marked_with_pika(
    trouble: Exception, error: Exception, mark: bool | None
) -> None:
    channel: Any = Full(trouble)
    method = Basic.Deliver("c", 7, False, "", "q")
    with_pika.failed(channel, method, BasicProperties(), b"", error, queue="q", settings=SETTINGS)
    (_, first), (exchange, dead) = channel.sent
    assert exchange == SETTINGS.topology.names.dlq_exchange
    assert headers.REDELIVERED not in first
    assert dead.get(headers.REDELIVERED) is mark
    assert channel.acked == [7]


class NotRouted(PublishError):
    def __init__(self) -> None:
        """Without the message that it would name."""


class FullExchange:
    """An exchange of aio-pika, one for all names, whose first publish fails so; its channel, and
    a message."""

    publisher_confirms = on_return_raises = True
    body, headers = b"", {}  # type: ignore[var-annotated]
    exchange, routing_key, redelivered = "", "q", False
    content_type = content_encoding = priority = correlation_id = reply_to = message_id = None
    timestamp = type = app_id = user_id = expiration = None

    def __init__(self, trouble: Exception) -> None:
        self._trouble: list[Exception] = [trouble]
        self.properties = self.default_exchange = self
        self.sent: list[dict[str, Any]] = []
        self.acked = False

    async def get_exchange(self, name: str, **_: bool) -> FullExchange:
        return self

    async def publish(self, message: Any, *_: str, **__: bool) -> None:
        self.sent.append(message.headers)
        if self._trouble:
            raise self._trouble.pop()

    async def ack(self) -> None:
        self.acked = True


@pytest.mark.parametrize(
    ("trouble", "mark"),
    [
        (DeliveryError(None, cast("Any", None)), True),
        (NotRouted(), None),
    ],
    ids=["refused", "returned"],
)
async def test_a_dead_letter_after_a_copy_that_another_queue_may_have_is_marked_with_aio_pika(
    trouble: Exception, mark: bool | None
) -> None:
    full: Any = FullExchange(trouble)
    await with_aio_pika.failed(full, ValueError("no"), channel=full, queue="q", settings=SETTINGS)
    first, dead = full.sent
    assert headers.REDELIVERED not in first
    assert dead.get(headers.REDELIVERED) is mark
    assert full.acked


@pytest.mark.parametrize("error", [ValueError("\ud800"), DeadLetter("\ud800", error_type="\ud800")])
def test_an_error_that_is_no_proper_text_can_be_sent(error: Exception) -> None:
    sent = forward(failed(), error, retries=0, settings=SETTINGS)
    for name in (headers.ERROR_TYPE, headers.ERROR_REASON):
        str(sent.headers[name]).encode()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"queue": ""}, "queue: expected the name"),
        ({"queue": None}, "queue: expected text"),
        ({"retries": -1}, "retries: expected a whole number from 0 on"),
        ({"error": "text"}, "error: expected the exception"),
        ({"error": ValueError}, "error: expected the exception"),
    ],
    ids=str,
)
async def test_a_wrong_call_is_refused_before_anything_is_done(
    wrong: dict[str, Any], told: str
) -> None:
    given: dict[str, Any] = {"queue": "q", "error": ValueError("no"), "retries": 3, **wrong}
    error, nothing = given.pop("error"), cast("Any", None)
    with pytest.raises(SettingsError, match=told):
        with_pika.failed(nothing, nothing, nothing, b"", error, **given)
    with pytest.raises(SettingsError, match=told):
        await with_aio_pika.failed(nothing, error, channel=nothing, **given)
