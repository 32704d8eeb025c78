"""Settlement against a model of the broker's channel."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.amqp.settlement import Settlement


class BrokerChannel:
    """Outstanding deliveries; an answer to one that is not outstanding closes the channel."""

    def __init__(self, size: int) -> None:
        self.outstanding = set(range(1, size + 1))
        self.acked: set[int] = set()

    def ack(self, tag: int, *, multiple: bool) -> None:
        assert tag in self.outstanding, f"PRECONDITION_FAILED - unknown delivery tag {tag}"
        tags = {each for each in self.outstanding if each <= tag} if multiple else {tag}
        self.acked |= tags
        self.outstanding -= tags

    def reject(self, tag: int) -> None:
        assert tag in self.outstanding, f"PRECONDITION_FAILED - unknown delivery tag {tag}"
        self.outstanding.remove(tag)


class Run:
    """A settlement, the channel it speaks to, and what its owner settled."""

    def __init__(self, size: int, *, most_waiting: int = 1000) -> None:
        self.size = size
        self.channel = BrokerChannel(size)
        self.settlement = Settlement(most_waiting)
        self.ready: set[int] = set()

    def settle(self, tag: int, *, by_itself: bool) -> None:
        if by_itself:
            self.channel.reject(tag)
            self.settlement.gone(tag)
        else:
            self.ready.add(tag)
            self.settlement.ready([tag])

    def flush(self) -> int:
        return self._send(self.settlement.flush())

    def stragglers(self) -> int:
        return self._send(self.settlement.stragglers())

    def _send(self, acks: list[tuple[int, bool]]) -> int:
        for tag, multiple in acks:
            self.channel.ack(tag, multiple=multiple)
        return len(acks)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Deliveries settled in any order, most near the front, some never, with flushes between."""
    size = draw(st.integers(1, 25))
    run = Run(size, most_waiting=draw(st.integers(0, 30)))
    order = draw(st.permutations(range(1, size + 1)) | st.just(list(range(1, size + 1))))
    for tag in order:
        what = draw(st.sampled_from(["ack", "ack", "ack", "reject", "nothing"]))
        if what != "nothing":
            run.settle(tag, by_itself=what == "reject")
        for look in draw(st.lists(st.sampled_from([run.flush, run.stragglers]), max_size=2)):
            look()
    return run


@given(runs())
def test_only_settled_deliveries_are_acked(run: Run) -> None:
    run.flush()
    assert run.channel.acked <= run.ready


@given(runs())
def test_after_two_looks_at_the_stragglers_everything_settled_is_acked(run: Run) -> None:
    run.stragglers()
    run.stragglers()
    assert run.channel.acked == run.ready


@given(runs())
def test_something_waits_exactly_while_a_settled_delivery_is_not_acked(run: Run) -> None:
    assert run.settlement.waiting is (run.channel.acked != run.ready)


@given(runs())
def test_it_knows_how_many_the_broker_has_had_an_answer_to(run: Run) -> None:
    assert run.settlement.answered == run.size - len(run.channel.outstanding)


@given(runs())
def test_nothing_is_acked_twice(run: Run) -> None:
    run.stragglers()
    run.stragglers()
    assert run.stragglers() == 0


@given(st.integers(1, 200))
def test_deliveries_settled_in_order_are_one_ack(size: int) -> None:
    run = Run(size)
    for tag in range(1, size + 1):
        run.settle(tag, by_itself=False)
    assert run.flush() == 1


@given(st.permutations(range(1, 30)))
def test_deliveries_settled_out_of_order_between_two_flushes_are_one_ack(order: list[int]) -> None:
    run = Run(29)
    for tag in order:
        run.settle(tag, by_itself=False)
    assert run.flush() == 1


def test_a_gap_that_closes_soon_costs_no_single_ack() -> None:
    run = Run(4)
    run.settle(2, by_itself=False)
    assert run.stragglers() == 0
    run.settle(3, by_itself=False)
    assert run.flush() == 0
    run.settle(1, by_itself=False)
    assert run.settlement.flush() == [(3, True)]


def test_what_waits_at_two_looks_in_a_row_is_acked_singly() -> None:
    run = Run(4)
    run.settle(2, by_itself=False)
    run.stragglers()
    run.settle(4, by_itself=False)
    assert run.settlement.stragglers() == [(2, False)]
    assert run.settlement.stragglers() == [(4, False)]


def test_no_more_than_so_many_wait_or_the_broker_would_deliver_nothing() -> None:
    run = Run(5, most_waiting=2)
    run.settle(3, by_itself=False)
    run.settle(4, by_itself=False)
    assert run.flush() == 0
    run.settle(2, by_itself=False)
    assert run.settlement.flush() == [(2, False), (3, False), (4, False)]


def test_a_settlement_keeps_nothing_of_what_is_settled() -> None:
    run = Run(1000)
    for tag in reversed(range(1, 1001)):
        run.settle(tag, by_itself=tag % 3 == 0)
        run.stragglers()
    run.stragglers()
    kept = (run.settlement._ready, run.settlement._held, run.settlement._gone)
    assert kept == (set(), set(), set())


def test_what_is_held_is_never_acked_and_what_follows_is_acked_singly_at_once() -> None:
    settlement = Settlement()
    settlement.hold(3)
    settlement.hold(5)
    settlement.ready([1, 2, 4, 6])
    assert settlement.flush() == [(2, True), (4, False), (6, False)]
    settlement.ready([7])
    assert settlement.flush() == [(7, False)]
    assert not settlement.waiting


def test_nothing_waits_for_a_gap_to_close_when_everything_is_asked_for() -> None:
    settlement = Settlement()
    settlement.ready([2, 4])
    assert settlement.flush(everything=True) == [(2, False), (4, False)]
    settlement.ready([1, 3])
    assert settlement.flush() == [(3, True)]
