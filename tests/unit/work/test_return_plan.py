"""Where a message goes whose queue did not take it back, without a broker."""

from __future__ import annotations

import time

import pytest
from structlog.testing import capture_logs

from redrive.amqp import Delivery, Properties, Publish, Refused, Returned, fields
from redrive.broker.topology import return_key
from redrive.domain import headers
from redrive.domain.policy import Policy, PolicyBook
from redrive.settings.sections import QueueSettings, TopologySettings
from redrive.work import avoided
from redrive.work.dead_letters import Parks, Route
from redrive.work.mover import Later, Park, Stay
from redrive.work.retrier import retry_names
from redrive.work.return_path import Down, ReturnPath, Unreachable
from redrive.work.return_plan import ReturnPlan
from tests.unit.work.stub_path import StubPath

LAST_TIER = Route(exchange="route-delay", routing_key="binding.3")
NO_ROUTE = Returned(312, "NO_ROUTE")


def plan(path: ReturnPath, *, parks: Parks | None = None) -> ReturnPlan:
    names = retry_names(TopologySettings(), ())
    return ReturnPlan(names, PolicyBook, path, tier_again=LAST_TIER, parks=parks)


def delivery(queue: bytes = b"orders", *, exchange: str = "work", key: str = "k") -> Delivery:
    put = {
        headers.QUEUE: b"S" + len(queue).to_bytes(4) + queue,
        headers.EXCHANGE: fields.longstr(exchange),
        headers.ROUTING_KEY: fields.longstr(key),
        headers.ATTEMPT: fields.int32(1),
    }
    properties = Properties.empty().persistent().with_headers(put)
    return Delivery(1, False, "retry-exchange-1", "retry.#.1", properties.raw, b"{}")


async def returned(path: StubPath, message: Delivery) -> Publish:
    """What happens after no queue took it."""
    sent = plan(path).decide(message, "guest")
    assert isinstance(sent, Publish)
    again = await plan(path).reconsider(message, sent, NO_ROUTE)
    assert isinstance(again, Publish)
    return again


def down() -> bool:
    raise Down("its queue 'orders' is down: home node is down or inaccessible")


def gone() -> bool:
    raise Unreachable("its queue 'orders' is gone")


async def test_a_queue_whose_node_is_down_makes_the_message_wait_in_the_last_tier_again() -> None:
    again = await returned(StubPath(down), delivery())
    assert (again.exchange, again.routing_key) == LAST_TIER
    found = Properties.read(again.properties)
    assert found.header(headers.ATTEMPT) == 1
    assert found.header("BCC") is None
    dead = await plan(StubPath(down)).reconsider(delivery(), again, Refused())
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"


async def test_a_queue_that_is_gone_makes_the_message_dead() -> None:
    again = await returned(StubPath(gone), delivery())
    assert again.exchange == "dlq-exchange"
    found = Properties.read(again.properties)
    assert found.header(headers.ERROR_REASON) == "its queue 'orders' is gone"


async def test_no_neighbour_gets_what_failed_in_a_queue_of_the_broker_that_is_gone() -> None:
    dead = await returned(StubPath(gone), delivery(b"amq.gen-abc"))
    assert dead.exchange == "dlq-exchange"
    found = Properties.read(dead.properties)
    assert "is gone" in str(found.header(headers.ERROR_REASON))


@pytest.mark.parametrize("bindable", [True, False])
async def test_a_queue_is_looked_for_by_its_very_bytes(bindable: bool) -> None:
    path = StubPath(lambda: bindable)
    again = await returned(path, delivery(b"caf\xe9"))
    assert [name.encode("utf-8", "surrogateescape") for name in path.asked] == [b"caf\xe9"]
    assert again.exchange == ("redrive-return" if bindable else "work")
    assert again.routing_key == "k"


async def test_poison_parks_only_where_what_is_rejected_is_known_to_be_kept() -> None:
    async def parks() -> bool:
        return True

    path = StubPath(down)
    parking = plan(path, parks=parks).poisoned(delivery(), "why")
    assert isinstance(parking, Park)
    assert await parking.instead() is None
    assert isinstance(plan(path).poisoned(delivery(), "why"), Stay)


def test_the_way_back_is_by_the_policies_of_the_moment() -> None:
    by_exchange = PolicyBook(file=[Policy(name="k", return_to="exchange")])
    by_queue = PolicyBook()
    books = iter((by_queue, by_queue, by_exchange, by_exchange, by_queue))
    names = retry_names(TopologySettings(), ())
    changing = ReturnPlan(names, lambda: next(books), StubPath(down), tier_again=LAST_TIER)
    went = []
    for _ in range(5):
        sent = changing.decide(delivery(), "guest")
        assert isinstance(sent, Publish)
        went.append((sent.exchange, Properties.read(sent.properties).header("BCC") is None))
    queue, exchange = ("redrive-return", False), ("work", True)
    assert went == [queue, queue, exchange, exchange, queue]


def test_the_way_back_of_one_message_is_none_for_another() -> None:
    going = plan(StubPath(down))
    for queue in (b"orders", b"other", b"orders", b"caf\xe9", b"other"):
        sent = going.decide(delivery(queue), "guest")
        assert isinstance(sent, Publish)
        key = return_key(fields.text(queue))
        bcc = Properties.read(sent.properties).header_field("BCC")
        assert bcc == fields.array([fields.longstr(key)])


BY_EXCHANGE = PolicyBook(file=[Policy(name="k", max_retries=1, return_to="exchange")])


def by_exchange(path: ReturnPath) -> ReturnPlan:
    names = retry_names(TopologySettings(), ())
    return ReturnPlan(names, lambda: BY_EXCHANGE, path, tier_again=LAST_TIER)


def test_a_message_that_was_delivered_before_goes_by_its_exchange_all_the_same() -> None:
    message = delivery()
    marked = Properties.read(message.properties).with_headers(
        {headers.REDELIVERED: fields.boolean(True)}  # by RabbitMQ 4.3, whatever was rejected
    )
    message.properties = marked.raw
    sent = by_exchange(StubPath(lambda: True)).decide(message, "guest")
    assert isinstance(sent, Publish)
    assert sent.exchange == "work"


def unreachable() -> bool:
    raise Unreachable("its queue 'orders' is gone")


@pytest.mark.parametrize("code", [403, 404])
async def test_an_exchange_that_closes_the_channel_is_not_tried_with_every_message(
    code: int,
) -> None:
    returns = by_exchange(StubPath(lambda: True))
    sent = returns.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    assert sent.exchange == "work"
    await returns.reconsider(delivery(), sent, Returned(code, "why"))
    dead = returns.decide(delivery(), "guest")
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"
    reason = Properties.read(dead.properties).header(headers.ERROR_REASON)
    assert reason == "no queue took it back: why from exchange 'work'"


async def test_an_exchange_that_is_back_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path = StubPath(lambda: True)
    path.exchanges = False
    returns = by_exchange(path)
    sent = returns.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    await returns.reconsider(delivery(), sent, Returned(404, "why"))
    for there, goes_to in ((False, "dlq-exchange"), (True, "work")):
        path.exchanges = there
        monkeypatch.setattr(avoided, "_LOOK_EVERY", 0.0)
        await returns.prepare([delivery()])
        found = returns.decide(delivery(), "guest")
        assert isinstance(found, Publish)
        assert found.exchange == goes_to


async def test_an_exchange_that_is_forbidden_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returns = by_exchange(StubPath(lambda: True))
    sent = returns.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    await returns.reconsider(delivery(), sent, Returned(403, "why"))
    await returns.prepare([delivery()])
    dead = returns.decide(delivery(), "guest")
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"
    later = time.monotonic() + 301
    monkeypatch.setattr(time, "monotonic", lambda: later)
    again = returns.decide(delivery(), "guest")
    assert isinstance(again, Publish)
    assert again.exchange == "work"


async def test_while_the_return_exchange_is_missing_messages_wait_and_do_not_try_it() -> None:
    def missing() -> bool:
        raise Down("the exchange 'redrive-return' is missing")

    path = StubPath(missing)
    path.exchanges = False
    returns = plan(path)
    sent = returns.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    await returns.reconsider(delivery(), sent, Returned(404, "no exchange"))
    await returns.prepare([delivery()])
    waits = returns.decide(delivery(), "guest")
    assert isinstance(waits, Publish)
    assert (waits.exchange, waits.routing_key) == LAST_TIER
    assert Properties.read(waits.properties).header("BCC") is None
    assert Properties.read(waits.properties).header(headers.ATTEMPT) == 1


async def test_while_a_queue_of_an_exchange_is_full_others_go_to_their_own_queues_too() -> None:
    returns = by_exchange(StubPath(lambda: True))
    sent = returns.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    await returns.reconsider(delivery(), sent, Refused())
    other = returns.decide(delivery(b"other"), "guest")
    assert isinstance(other, Publish)
    assert other.exchange == "redrive-return"
    assert Properties.read(other.properties).header("BCC") == [return_key("other")]
    assert Properties.read(other.properties).header(headers.REDELIVERED) is None


async def test_what_an_exchange_refused_goes_to_its_queue_alone_from_then_on() -> None:
    returns = by_exchange(StubPath(lambda: True))
    sent = returns.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    again = await returns.reconsider(delivery(), sent, Refused())
    assert isinstance(again, Publish)
    found = Properties.read(again.properties)
    assert again.exchange == "redrive-return"
    assert found.header("BCC") == [return_key("orders")]
    assert found.header(headers.REDELIVERED) is True
    assert found.header(headers.REFUSED) is True
    waits = await returns.reconsider(delivery(), again, Refused())
    assert isinstance(waits, Publish)
    assert (waits.exchange, waits.routing_key) == LAST_TIER
    waited = Delivery(2, False, "retry-exchange-3", "retry.#.3", waits.properties, b"{}")
    back = returns.decide(waited, "guest")
    assert isinstance(back, Publish)
    assert back.exchange == "redrive-return"


async def test_what_was_refused_and_cannot_be_bound_goes_by_its_exchange_once_more() -> None:
    returns = by_exchange(StubPath(unreachable))
    sent = returns.decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    alone = await returns.reconsider(delivery(), sent, Refused())
    assert isinstance(alone, Publish)
    again = await returns.reconsider(delivery(), alone, NO_ROUTE)
    assert isinstance(again, Publish)
    assert again.exchange == "work"
    dead = await returns.reconsider(delivery(), again, Refused())
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"


def came_beside() -> Delivery:
    """One that failed in a queue to which it came because another one had it sent back."""
    message = delivery()
    alone = {headers.BY_EXCHANGE: fields.longstr("other")}
    message.properties = Properties.read(message.properties).with_headers(alone).raw
    return message


def test_what_goes_back_by_its_exchange_says_so() -> None:
    sent = by_exchange(StubPath(lambda: True)).decide(delivery(), "guest")
    assert isinstance(sent, Publish)
    assert sent.exchange == "work"
    assert Properties.read(sent.properties).header(headers.BY_EXCHANGE) == "orders"


def test_what_came_to_its_queue_beside_another_goes_back_there_alone() -> None:
    sent = by_exchange(StubPath(lambda: True)).decide(came_beside(), "guest")
    assert isinstance(sent, Publish)
    assert sent.exchange == "redrive-return"
    assert Properties.read(sent.properties).header("BCC") == [return_key("orders")]


async def test_what_came_beside_another_to_a_queue_that_cannot_be_bound_is_dead() -> None:
    dead = await returned(StubPath(lambda: False), came_beside())
    assert dead.exchange == "dlq-exchange"
    reason = Properties.read(dead.properties).header(headers.ERROR_REASON)
    assert reason == "its queue cannot be bound, and exchange 'work' brought it for another one"


async def test_what_came_for_a_queue_that_is_gone_goes_by_its_exchange_for_its_own() -> None:
    path = StubPath(lambda: False)
    path.seen["other"] = Unreachable("its queue 'other' is gone")
    sent = await returned(path, came_beside())
    assert sent.exchange == "work"
    assert Properties.read(sent.properties).header(headers.BY_EXCHANGE) == "orders"


async def test_what_came_for_a_queue_that_is_down_waits_until_somebody_can_tell() -> None:
    path = StubPath(lambda: False)
    path.seen["other"] = Down("its queue 'other' is down")
    again = await returned(path, came_beside())
    assert (again.exchange, again.routing_key) == LAST_TIER


async def test_what_only_its_exchange_can_bring_back_says_that_it_did() -> None:
    sent = await returned(StubPath(lambda: False), delivery())
    assert sent.exchange == "work"
    assert Properties.read(sent.properties).header(headers.BY_EXCHANGE) == "orders"


def test_ways_back_that_are_remembered_are_bounded() -> None:
    book = PolicyBook()
    names = retry_names(TopologySettings(), ())
    going = ReturnPlan(names, lambda: book, StubPath(down), tier_again=LAST_TIER)
    for number in range(5000):
        going.decide(delivery(b"queue-%d" % number), "guest")
    going.decide(delivery(b"q" * 5000), "guest")
    assert len(going._ways) <= 4096
    assert all(sum(map(len, filter(None, names))) < 1024 for names in going._ways)


def due_in(seconds: float) -> Delivery:
    due = fields.int64(time.time_ns() // 1_000_000 + int(seconds * 1000))
    plain = delivery()
    put = {headers.NOT_BEFORE: due}
    raw = Properties.read(plain.properties).with_headers(put).raw
    return Delivery(1, False, plain.exchange, plain.routing_key, raw, plain.body)


def test_a_message_whose_time_has_not_come_waits_on_the_largest_rung_that_fits() -> None:
    sent = plan(StubPath(gone)).decide(due_in(100), "guest")
    assert isinstance(sent, Publish)
    assert (sent.exchange, sent.routing_key) == ("", "redrive-after-64000ms")
    assert Properties.read(sent.properties).header(headers.NOT_BEFORE) is not None


@pytest.mark.parametrize("seconds", [0, -5, -9e15], ids=["now", "before", "before all times"])
def test_a_message_whose_time_has_come_goes_back_without_it(seconds: float) -> None:
    sent = plan(StubPath(gone)).decide(due_in(seconds), "guest")
    assert isinstance(sent, Publish)
    assert (sent.exchange, sent.routing_key) == ("redrive-return", "k")
    assert Properties.read(sent.properties).header(headers.NOT_BEFORE) is None


@pytest.mark.parametrize("outcome", [NO_ROUTE, Refused()], ids=["missing", "full"])
async def test_a_message_whose_rung_does_not_take_it_comes_back_rather_early_than_never(
    outcome: Returned | Refused,
) -> None:
    message, by = due_in(100), plan(StubPath(gone))
    sent = by.decide(message, "guest")
    assert isinstance(sent, Publish)
    again = await by.reconsider(message, sent, outcome)
    assert isinstance(again, Publish)
    assert (again.exchange, again.routing_key) == ("redrive-return", "k")
    properties = Properties.read(again.properties)
    assert properties.header("BCC") == [return_key("orders")]
    assert properties.header(headers.NOT_BEFORE) is None


def decided(returns: ReturnPlan, message: Delivery) -> Publish:
    sent = returns.decide(message, "guest")
    assert isinstance(sent, Publish)
    return sent


async def after(returns: ReturnPlan, sent: Publish, outcome: Returned | Refused) -> Publish:
    again = await returns.reconsider(delivery(), sent, outcome)
    assert isinstance(again, Publish)
    return again


def reason_of(dead: Publish) -> str:
    assert dead.exchange == "dlq-exchange"
    found = Properties.read(dead.properties)
    assert found.header("BCC") is None
    return str(found.header(headers.ERROR_REASON))


def with_header(message: Delivery, name: str, field: bytes) -> Delivery:
    raw = Properties.read(message.properties).with_headers({name: field}).raw
    return Delivery(1, False, message.exchange, message.routing_key, raw, message.body)


FORBIDDEN = Returned(403, "ACCESS_REFUSED - write access to exchange 'x' refused")
MISSING = Returned(404, "NOT_FOUND - no exchange 'x'")


async def test_where_the_return_exchange_is_forbidden_messages_are_dead_and_do_not_try_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = StubPath(lambda: True)
    returns = plan(path)
    with capture_logs() as logs:
        dead = await after(returns, decided(returns, delivery()), FORBIDDEN)
        assert "ACCESS_REFUSED" in reason_of(dead)
        assert path.asked == []
        failed = with_header(delivery(), headers.ERROR_REASON, fields.longstr("no stock"))
        for message, before in ((delivery(), ""), (failed, " (the failure before: no stock)")):
            reason = reason_of(decided(returns, message))
            assert "ACCESS_REFUSED" in reason
            assert reason.endswith(before)
        await after(plan(path), decided(plan(path), delivery()), FORBIDDEN)  # of another tier
    (said,) = logs
    assert (said["event"], said["exchange"]) == (
        "return_path.exchange_forbidden",
        "redrive-return",
    )
    assert said["reason"] == FORBIDDEN.reason
    assert said["remedy"] == "grant the user the permission to write to redrive-return"
    later = time.monotonic() + 301
    monkeypatch.setattr(time, "monotonic", lambda: later)
    sent = decided(returns, delivery())
    assert sent.exchange == "redrive-return"
    with capture_logs() as logs:
        await after(returns, sent, FORBIDDEN)
    assert len(logs) == 1


async def test_a_routing_key_that_is_forbidden_stops_no_others() -> None:
    returns = plan(StubPath(lambda: True))
    text = "ACCESS_REFUSED - access to topic 'k' in exchange 'redrive-return' refused"
    dead = await after(returns, decided(returns, delivery()), Returned(403, text))
    assert "access to topic 'k'" in reason_of(dead)
    assert decided(returns, delivery()).exchange == "redrive-return"


async def test_where_the_ladder_is_forbidden_messages_come_back_early_and_do_not_try_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returns = plan(StubPath(lambda: True))
    with capture_logs() as logs:
        early = await after(returns, decided(returns, due_in(100)), FORBIDDEN)
        at_once = decided(returns, due_in(100))
    for back in (early, at_once):
        assert (back.exchange, back.routing_key) == ("redrive-return", "k")
        found = Properties.read(back.properties)
        assert found.header("BCC") == [return_key("orders")]
        assert found.header(headers.NOT_BEFORE) is None
    (said,) = logs
    assert (said["event"], said["exchange"]) == ("return_path.exchange_forbidden", "amq.default")
    later = time.monotonic() + 301
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert decided(returns, due_in(100)).routing_key == "redrive-after-64000ms"


async def test_what_only_its_exchange_can_bring_back_does_not_try_one_that_is_gone() -> None:
    returns = plan(StubPath(lambda: False))
    by_its_own = await after(returns, decided(returns, delivery()), NO_ROUTE)
    assert by_its_own.exchange == "work"
    await after(returns, by_its_own, MISSING)
    dead = await after(returns, decided(returns, delivery()), NO_ROUTE)
    assert "NOT_FOUND" in reason_of(dead)


async def test_what_comes_back_early_does_not_try_an_exchange_that_is_gone() -> None:
    returns = by_exchange(StubPath(lambda: True))
    await after(returns, decided(returns, delivery()), MISSING)
    dead = await after(returns, decided(returns, due_in(100)), NO_ROUTE)
    assert "NOT_FOUND" in reason_of(dead)
    assert Properties.read(dead.properties).header(headers.NOT_BEFORE) is None


async def test_what_was_refused_and_comes_back_early_goes_to_its_queue_alone() -> None:
    returns = by_exchange(StubPath(lambda: True))
    message = with_header(due_in(100), headers.REFUSED, fields.boolean(True))
    back = await after(returns, decided(returns, message), NO_ROUTE)
    assert back.exchange == "redrive-return"
    assert Properties.read(back.properties).header("BCC") == [return_key("orders")]


async def test_what_an_exchange_refused_waits_while_the_return_exchange_is_missing() -> None:
    path = StubPath(down)
    returns = by_exchange(path)
    sent, other = decided(returns, delivery()), decided(returns, delivery())
    alone = await after(returns, sent, Refused())
    assert (await after(returns, alone, MISSING)).exchange == LAST_TIER.exchange
    waits = await after(returns, other, Refused())
    assert (waits.exchange, waits.routing_key) == LAST_TIER
    assert Properties.read(waits.properties).header(headers.REFUSED) is True


@pytest.mark.parametrize("outcome", [MISSING, FORBIDDEN], ids=["missing", "forbidden"])
async def test_nothing_waits_in_a_tier_that_is_gone(outcome: Returned) -> None:
    returns = plan(StubPath(down))
    waits = await after(returns, decided(returns, delivery()), MISSING)
    assert (waits.exchange, waits.routing_key) == LAST_TIER
    await after(returns, waits, outcome)
    assert "from exchange 'route-delay'" in reason_of(decided(returns, delivery()))
    full = Publish("redrive-return", "k", delivery().properties, b"{}")
    assert "from exchange 'route-delay'" in reason_of(await after(returns, full, Refused()))


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        ("redrive-return", "k"),
        ("retry-exchange-1", "k"),
        ("retry-exchange-9", "k"),
        ("retry-exchange", "k"),
        ("dlq-exchange", "k"),
        ("route-delay", "binding.k.1"),
        ("", "retry-queue-1"),
        ("work", "orders.delay"),
    ],
)
def test_nothing_goes_back_by_an_exchange_that_leads_to_a_queue_of_ours(
    exchange: str, key: str
) -> None:
    book = PolicyBook(file=[Policy(name="#", return_to="exchange")])
    own = QueueSettings.model_validate({"name": "orders", "exchange": "work", "delay": "1s"})
    names = retry_names(TopologySettings(), (own,))
    going = ReturnPlan(names, lambda: book, StubPath(down), tier_again=LAST_TIER)
    back = going.decide(delivery(exchange=exchange, key=key), "guest")
    assert isinstance(back, Publish)
    assert (back.exchange, back.routing_key) == ("redrive-return", key)


@pytest.mark.parametrize("exchange", ["redrive-return", "retry-exchange-1"])
async def test_one_whose_queue_cannot_be_bound_is_dead_if_its_exchange_leads_here(
    exchange: str,
) -> None:
    message = delivery(exchange=exchange)
    going = plan(StubPath(lambda: False))
    sent = going.decide(message, "guest")
    assert isinstance(sent, Publish)
    dead = await going.reconsider(message, sent, NO_ROUTE)
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"
    reason = str(Properties.read(dead.properties).header(headers.ERROR_REASON))
    assert f"exchange {exchange!r} leads here" in reason


def test_a_message_that_says_it_failed_in_a_queue_of_ours_is_not_brought_back_there() -> None:
    dead = plan(StubPath()).decide(delivery(b"retry-queue-1"), "guest")
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"


async def test_what_the_way_back_gives_up_waits_for_its_turn_too() -> None:
    path = StubPath(down)
    path.exchanges = False
    going = by_exchange(path)
    first = going.decide(delivery(), "guest")
    assert isinstance(first, Publish)
    assert first.exchange == "work"
    missing = Returned(404, "NOT_FOUND - no exchange 'work'")
    dead = await going.reconsider(delivery(), first, missing)
    assert isinstance(dead, Publish)
    assert dead.exchange == "dlq-exchange"
    waits = await going.reconsider(delivery(), dead, Returned(404, "no exchange 'dlq-exchange'"))
    assert isinstance(waits, Later)
    # Neither is there, and both are known not to be: nobody tries one of them.
    assert all(isinstance(going.decide(delivery(), "guest"), Later) for _ in range(5))
