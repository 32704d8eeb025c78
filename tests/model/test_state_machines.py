"""Pure decisions under any sequence of happenings: the life of letters, breakers and alerts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from redrive.domain.alerting import Phase, Rule, Standing, Telling, advance
from redrive.domain.breaker import (
    USUAL,
    Admission,
    Breaker,
    Position,
    read_breaker,
    write_breaker,
)
from redrive.domain.condition_reader import parse
from redrive.domain.lifecycle import DELETABLE, FIRST, TRANSITIONS, State, may_become, require
from redrive.errors import TransitionRefused

BEGAN = datetime(2026, 2, 11, 12, tzinfo=UTC)
SETTINGS = settings(max_examples=60, stateful_step_count=40, deadline=None)


class Lives(RuleBasedStateMachine):
    """Letters that come, go from state to state, and are deleted by retention."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[State] = []
        self.received = self.deleted = 0

    @rule()
    def comes(self) -> None:
        self.letters.append(FIRST)
        self.received += 1

    @precondition(lambda self: self.letters)
    @rule(data=st.data(), wanted=st.sampled_from(State))
    def is_told_to_become(self, data: st.DataObject, wanted: State) -> None:
        place = data.draw(st.integers(0, len(self.letters) - 1))
        now = self.letters[place]
        if wanted in TRANSITIONS[now]:
            self.letters[place] = require(now, wanted)
        else:
            with pytest.raises(TransitionRefused) as refused:
                require(now, wanted)
            assert refused.value.remedy

    @rule()
    def retention_removes(self) -> None:
        kept = [state for state in self.letters if state not in DELETABLE]
        self.deleted += len(self.letters) - len(kept)
        self.letters = kept

    @invariant()
    def the_ledger_balances(self) -> None:
        assert self.received == sum(Counter(self.letters).values()) + self.deleted

    @invariant()
    def every_letter_can_be_brought_to_an_end_by_a_person(self) -> None:
        for state in set(self.letters):
            reached, more = {state}, {state}
            while more:
                more = {then for now in more for then in State if may_become(now, then)} - reached
                reached |= more
            assert {State.RESOLVED, State.ARCHIVED} <= reached


class Breakers(RuleBasedStateMachine):
    """One destination; letters are sent only as the breaker admits them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGAN
        self.breaker = Breaker()
        self.in_a_row = 0
        """Failures since the last success, while letters passed."""
        self.probe_at: datetime | None = None

    @rule(seconds=st.integers(1, 1800))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(failures=st.integers(1, 7))
    def verdicts_are_failures(self, failures: int) -> None:
        before = self.breaker
        self.breaker = before.on_failure(self.now, failures)
        if before.state is Position.OPEN:
            assert self.breaker == before, "what was sent before it opened tells nothing"
            return
        self.in_a_row += failures
        opens = before.state is Position.HALF_OPEN or self.in_a_row >= USUAL.failures
        assert (self.breaker.state is Position.OPEN) is opens
        if opens:
            longer = self.breaker.wait >= before.wait
            assert longer or before.state is Position.CLOSED

    @rule()
    def a_verdict_is_success(self) -> None:
        before = self.breaker
        self.breaker = before.on_success()
        if before.state is Position.OPEN:
            assert self.breaker == before
        else:
            self.in_a_row = 0
            assert self.breaker.state is Position.CLOSED
            assert self.breaker.admits(self.now) is Admission.ALL or self.breaker.forced

    @precondition(lambda self: self.breaker.admits(self.now) is Admission.ONE)
    @rule()
    def a_probe_is_sent(self) -> None:
        if self.probe_at is not None and self.breaker.state is Position.HALF_OPEN:
            assert self.now - self.probe_at >= USUAL.probe_patience
        self.breaker = self.breaker.on_probe(self.now)
        self.probe_at = self.now
        assert self.breaker.state is Position.HALF_OPEN
        assert self.breaker.admits(self.now) is Admission.NONE, "one at a time"

    @rule(position=st.sampled_from([Position.OPEN, Position.CLOSED]))
    def an_operator_forces(self, position: Position) -> None:
        self.breaker = self.breaker.force(position)

    @rule()
    def an_operator_releases(self) -> None:
        self.breaker = self.breaker.release()

    @invariant()
    def it_is_kept_as_it_is(self) -> None:
        assert read_breaker(write_breaker(self.breaker)) == self.breaker

    @invariant()
    def a_forced_position_is_obeyed(self) -> None:
        wanted = {Position.OPEN: Admission.NONE, Position.CLOSED: Admission.ALL}
        if self.breaker.forced is not None:
            assert self.breaker.admits(self.now) is wanted[self.breaker.forced]

    @invariant()
    def there_is_always_a_way_out(self) -> None:
        own = self.breaker.release()
        longest = max(USUAL.longest_wait, USUAL.probe_patience)
        assert own.admits(self.now + longest) is not Admission.NONE
        assert USUAL.wait <= own.wait <= USUAL.longest_wait


class Alerts(RuleBasedStateMachine):
    """One alert, judged again and again; its condition holds or not, somebody silences it."""

    rule_ = Rule(
        name="Backlog",
        condition=parse("dlq_backlog > 1"),
        hold=timedelta(minutes=2),
        repeat=timedelta(minutes=30),
    )

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGAN
        self.standing = Standing(since=BEGAN)
        self.held_since: datetime | None = None
        self.told: list[tuple[Telling, datetime]] = []

    @rule(
        seconds=st.sampled_from([1, 15, 60, 120, 600, 1800]),
        holds=st.booleans() | st.just(True),
        silenced=st.sampled_from([False, False, True]),
    )
    def is_judged(self, seconds: int, holds: bool, silenced: bool) -> None:
        self.now += timedelta(seconds=seconds)
        self.held_since = (self.held_since or self.now) if holds else None
        fired_untold = self.standing.phase is Phase.FIRING and self.standing.told_at is None
        self.standing, telling = advance(
            self.standing, self.rule_, holds=holds, silenced=silenced, now=self.now
        )
        last = self.told[-1][0] if self.told else Telling.RESOLVED
        match telling:
            case Telling.FIRING:
                assert last is Telling.RESOLVED, "told twice that it fires"
                assert not silenced
                assert self.held_since is not None
                assert self.now - self.held_since >= self.rule_.hold
            case Telling.STILL_FIRING:
                assert last is not Telling.RESOLVED
                assert not silenced
                assert self.now - self.told[-1][1] >= self.rule_.repeat
            case Telling.RESOLVED:
                assert last is not Telling.RESOLVED, "nobody was told that it fires"
                assert not holds
            case None:
                fires = self.standing.phase is Phase.FIRING and not silenced
                assert not (fires and fired_untold), "somebody should have been told"
        if telling is not None:
            self.told.append((telling, self.now))

    @invariant()
    def its_phase_is_what_the_condition_has_done(self) -> None:
        if self.held_since is None:
            assert self.standing.phase is Phase.QUIET
        else:
            long = self.now - self.held_since >= self.rule_.hold
            assert self.standing.phase is (Phase.FIRING if long else Phase.PENDING)
            assert self.standing.since == self.held_since


TestLives = Lives.TestCase
TestLives.settings = SETTINGS
TestBreakers = Breakers.TestCase
TestBreakers.settings = SETTINGS
TestAlerts = Alerts.TestCase
TestAlerts.settings = SETTINGS
