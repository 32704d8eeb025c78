"""The Sender's protocol as a model: claim → send → record, and the verdict that follows.

Letters are rows of the store; a claim commits the state, the generation and the attempt `sending`
before anything is published. Workers and the janitor act in any order. A worker may be killed, or
sleep through its lease and go on afterwards, between any two steps; what it wrote to the wire may
arrive late. Consumers handle a copy or fail at it; what failed comes back through the dead letter
queue and the collector. A receipt may be sent, and may be lost with a consumer that is killed.

A consumer takes a copy in hand before it handles it or fails; one that is killed has it put back.
The janitor starts a letter's clock when it sees its destination empty after the confirm, and judges
silence when it sees it so once more: what is in hand at both looks, it cannot see. That returns
come in within that time is taken for granted.

`Variant` breaks single rules, to show that the exploration would notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Variant(Enum):
    """The protocol as it is, or with one rule broken."""

    RIGHT = "as it is"
    PUBLISH_BEFORE_CLAIM = "publishes before the claim is committed"
    EXPIRED_IS_NOT_SENT = "takes a lease that ended for a letter that was not sent"
    LATE_RECORD_WINS = "lets a late record of a sending undo a return"
    ANY_GENERATION = "takes the return of an older generation for that of the newest"
    SILENCE_IN_DOUBT = "takes silence about what is in doubt for consumed"
    ONE_LOOK = "judges silence without looking once more"


class Letter(NamedTuple):
    """A row."""

    state: str = "pending"
    """pending, processing, resolved, failed or manual."""
    generation: int = 0
    result: str = ""
    """Of the newest attempt: sending, sent, in_doubt, refused, returned or resolved."""
    locked_by: int | None = None
    revivals: int = 0
    asked: bool = False
    """Whether a person wants it to be sent, whatever became of it before."""
    clock: bool = False
    """Whether its silence counts."""


class Hand(NamedTuple):
    """What a worker is doing."""

    stage: str = "idle"
    """idle, claimed, sent, answered; or unclaimed, which only a broken protocol has."""
    letter: int = 0
    generation: int = 0
    answer: str = ""


class Wire(NamedTuple):
    """A publish on its way; `worker` is who waits for the answer, None if nobody does any more."""

    letter: int
    generation: int
    worker: int | None


Copy = tuple[int, int]
"""Letter and generation."""


class State(NamedTuple):
    """Everything, on both sides and between."""

    letters: tuple[Letter, ...]
    hands: tuple[Hand, ...]
    wire: frozenset[Wire] = frozenset()
    queued: frozenset[Copy] = frozenset()
    """Ready in the destination queue."""
    taken: frozenset[Copy] = frozenset()
    """In a consumer's hand."""
    dead: frozenset[Copy] = frozenset()
    """In the dead letter queue, not collected yet."""
    receipts: frozenset[Copy] = frozenset()
    handled: tuple[int, ...] = ()
    """How often each letter was handled with success."""
    done: frozenset[Copy] = frozenset()
    """The copies that were."""
    unasked: int | None = None
    """A letter that a worker sent by itself after its newest copy had been handled."""
    overlooked: int | None = None
    """A letter that was taken for consumed while it was ready in its queue."""
    others: int = 0
    """Returns that were taken for new letters."""
    crashes: int = 0
    persons: int = 0
    """How often a person sent a letter again."""


@dataclass(frozen=True)
class SenderProtocol:
    """The model, for so many letters, workers and crashes."""

    letters: int
    workers: int
    crashes: int
    variant: Variant = Variant.RIGHT
    revivals: int = 2
    persons: int = 0

    def first(self) -> State:
        return State(
            letters=(Letter(),) * self.letters,
            hands=(Hand(),) * self.workers,
            handled=(0,) * self.letters,
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for worker, hand in enumerate(state.hands):
            yield from self._work(state, worker, hand)
        yield from self._broker(state)
        yield from self._consumers(state)
        yield from self._collector(state)
        yield from self._janitor(state)
        yield from self._persons(state)

    # A worker

    def _work(self, state: State, worker: int, hand: Hand) -> Iterator[tuple[str, State]]:
        who = f"worker {worker}"
        if hand.stage == "idle":
            for number, letter in enumerate(state.letters):
                if letter.state == "pending" and letter.locked_by is None:
                    yield from self._begin(state, worker, number, letter)
        elif hand.stage == "unclaimed":
            letter = state.letters[hand.letter]
            claimed = letter._replace(
                state="processing",
                generation=hand.generation,
                result="sending",
                locked_by=worker,
                clock=False,
            )
            then = self._hand(state, worker, hand._replace(stage="sent"))
            yield f"{who} commits its claim", self._row(then, hand.letter, claimed)
        elif hand.stage == "claimed":
            sent = Wire(hand.letter, hand.generation, worker)
            then = self._hand(state, worker, hand._replace(stage="sent"))
            yield f"{who} publishes letter {hand.letter}", then._replace(wire=state.wire | {sent})
        elif hand.stage == "answered":
            yield f"{who} records {hand.answer}", self._record(state, worker, hand)
        if hand.stage != "idle" and state.crashes < self.crashes:
            loose = frozenset(
                each._replace(worker=None) if each.worker == worker else each for each in state.wire
            )
            killed = self._hand(state, worker, Hand())
            yield f"kill -9 of {who}", killed._replace(wire=loose, crashes=state.crashes + 1)

    def _begin(
        self, state: State, worker: int, number: int, letter: Letter
    ) -> Iterator[tuple[str, State]]:
        generation = letter.generation + 1
        if (number, letter.generation) in state.done and not letter.asked:
            state = state._replace(unasked=number)
        if self.variant is Variant.PUBLISH_BEFORE_CLAIM:
            hand = Hand("unclaimed", number, generation)
            sent = Wire(number, generation, worker)
            then = self._hand(state, worker, hand)
            yield (
                f"worker {worker} publishes letter {number}",
                then._replace(wire=state.wire | {sent}),
            )
            return
        claimed = letter._replace(
            state="processing",
            generation=generation,
            result="sending",
            locked_by=worker,
            asked=False,
            clock=False,
        )
        then = self._hand(state, worker, Hand("claimed", number, generation))
        yield f"worker {worker} claims letter {number}", self._row(then, number, claimed)

    def _record(self, state: State, worker: int, hand: Hand) -> State:
        """What came in meanwhile counts for more than what the sender has to say."""
        then = self._hand(state, worker, Hand())
        letter = state.letters[hand.letter]
        current = letter.generation == hand.generation
        unsettled = letter.result in ("sending", "in_doubt")
        if self.variant is Variant.LATE_RECORD_WINS and current and hand.answer == "sent":
            return self._row(
                then,
                hand.letter,
                letter._replace(state="processing", result="sent", locked_by=None, clock=False),
            )
        if not current or not unsettled:
            return then
        if hand.answer == "sent":
            changed = letter._replace(result="sent", locked_by=None, clock=False)
            # The janitor may have left it to a person by now; it stays there.
        else:
            changed = letter._replace(state="manual", result="refused", locked_by=None, clock=False)
        return self._row(then, hand.letter, changed)

    # The broker

    def _broker(self, state: State) -> Iterator[tuple[str, State]]:
        for sent in state.wire:
            gone = state._replace(wire=state.wire - {sent})
            taken = gone._replace(queued=state.queued | {(sent.letter, sent.generation)})
            if sent.worker is None:
                yield f"letter {sent.letter} arrives, late", taken
                yield f"what was left of letter {sent.letter} is lost on the wire", gone
                continue
            for answer, then in (("sent", taken), ("refused", gone)):
                hand = state.hands[sent.worker]
                # Before the claim is committed, in a broken protocol, nobody listens yet.
                if hand.stage == "sent":
                    heard = hand._replace(stage="answered", answer=answer)
                    yield f"letter {sent.letter} is {answer}", self._hand(then, sent.worker, heard)

    # Consumers, and what comes of it

    def _consumers(self, state: State) -> Iterator[tuple[str, State]]:
        for copy in state.queued:
            delivered = state._replace(queued=state.queued - {copy}, taken=state.taken | {copy})
            yield f"letter {copy[0]}, generation {copy[1]}, is taken in hand", delivered
        if state.taken and state.crashes < self.crashes:
            back = state._replace(queued=state.queued | state.taken, taken=frozenset())
            yield "kill -9 of the consumer", back._replace(crashes=state.crashes + 1)
        for copy in state.taken:
            number, generation = copy
            rest = state._replace(taken=state.taken - {copy})
            handled = rest._replace(handled=_plus(state.handled, number), done=state.done | {copy})
            name = f"letter {number}, generation {generation},"
            yield f"{name} is handled, and no receipt comes", handled
            yield f"{name} is handled", handled._replace(receipts=state.receipts | {copy})
            yield f"{name} fails", rest._replace(dead=state.dead | {copy})

    def _collector(self, state: State) -> Iterator[tuple[str, State]]:
        for copy in state.dead:
            number, generation = copy
            rest = state._replace(dead=state.dead - {copy})
            letter = state.letters[number]
            same = generation == letter.generation or self.variant is Variant.ANY_GENERATION
            if not same or letter.state not in ("processing", "resolved", "manual"):
                yield (
                    f"letter {number} comes back as another",
                    rest._replace(others=state.others + 1),
                )
                continue
            revivals = letter.revivals + 1
            after = "failed" if revivals >= self.revivals else "pending"
            changed = letter._replace(
                state=after, result="returned", locked_by=None, revivals=revivals, clock=False
            )
            yield f"letter {number} comes back", self._row(rest, number, changed)
        for copy in state.receipts:
            number, generation = copy
            rest = state._replace(receipts=state.receipts - {copy})
            letter = state.letters[number]
            if generation == letter.generation and letter.state in ("processing", "manual"):
                rest = self._row(
                    rest,
                    number,
                    letter._replace(
                        state="resolved", result="resolved", locked_by=None, clock=False
                    ),
                )
            yield f"the receipt of letter {number} is read", rest

    # The janitor

    def _janitor(self, state: State) -> Iterator[tuple[str, State]]:
        for number, letter in enumerate(state.letters):
            if letter.state != "processing":
                continue
            if letter.result == "sending" and letter.locked_by is not None:
                # The lease may end while its worker lives: it slept.
                doubt = letter._replace(result="in_doubt", locked_by=None)
                if self.variant is Variant.EXPIRED_IS_NOT_SENT:
                    doubt = letter._replace(state="pending", result="", locked_by=None)
                yield f"the lease of letter {number} ends", self._row(state, number, doubt)
            if letter.result in ("sent", "in_doubt") and letter.locked_by is None:
                yield from self._judge_silence(state, number, letter)

    def _judge_silence(
        self, state: State, number: int, letter: Letter
    ) -> Iterator[tuple[str, State]]:
        waits = _is_among(state.queued, number)
        if not letter.clock:
            if not waits:
                started = letter._replace(clock=True)
                yield (
                    f"nothing is ready: the clock of letter {number} starts",
                    self._row(state, number, started),
                )
            return
        if _is_among(state.dead, number):
            return  # it comes in before the time is over
        if waits and self.variant is not Variant.ONE_LOOK:
            yield (
                f"letter {number} may be ready again: its clock stops",
                self._row(state, number, letter._replace(clock=False)),
            )
            return
        if letter.result == "sent" or self.variant is Variant.SILENCE_IN_DOUBT:
            done = letter._replace(state="resolved", result="resolved", clock=False)
            overlooked = number if waits else state.overlooked
            yield (
                f"nothing is heard of letter {number}: resolved",
                self._row(state, number, done)._replace(overlooked=overlooked),
            )
        else:
            left = letter._replace(state="manual", clock=False)
            yield (
                f"nothing is heard of letter {number}: to a person",
                self._row(state, number, left),
            )

    # People

    def _persons(self, state: State) -> Iterator[tuple[str, State]]:
        if state.persons >= self.persons:
            return
        for number, letter in enumerate(state.letters):
            if letter.state in ("manual", "failed", "resolved") and letter.locked_by is None:
                again = letter._replace(state="pending", asked=True, clock=False)
                yield (
                    f"a person sends letter {number} again",
                    self._row(state, number, again)._replace(persons=state.persons + 1),
                )

    # What must hold

    def wrong_in(self, state: State) -> str | None:
        if state.unasked is not None:
            return f"letter {state.unasked} was handled, and sent again by itself"
        if state.overlooked is not None:
            return f"letter {state.overlooked} is resolved, and was ready in its queue"
        for number, letter in enumerate(state.letters):
            if state.handled[number] > 1 + state.persons:
                return f"letter {number} was handled twice, and nobody asked for it"
            somewhere = _is_among(state.taken | state.queued | state.dead, number)
            if letter.state == "resolved" and not (state.handled[number] or somewhere):
                return f"letter {number} is resolved, was never handled, and is nowhere"
            unsettled = [
                each for each in state.wire if each.letter == number and each.worker is not None
            ]
            if len(unsettled) > 1 + state.persons:
                return f"letter {number} is being sent twice at a time"
        return None

    def wrong_at_end(self, state: State) -> str | None:
        for number, letter in enumerate(state.letters):
            if letter.state not in ("resolved", "failed", "manual"):
                return f"letter {number} is {letter.state} for ever"
            if letter.state == "resolved" and not state.handled[number]:
                return f"letter {number} is resolved, and was never handled"
        return None

    # Changes

    def _row(self, state: State, number: int, letter: Letter) -> State:
        rows = (*state.letters[:number], letter, *state.letters[number + 1 :])
        return state._replace(letters=rows)

    def _hand(self, state: State, worker: int, hand: Hand) -> State:
        hands = (*state.hands[:worker], hand, *state.hands[worker + 1 :])
        return state._replace(hands=hands)


def _is_among(copies: frozenset[Copy], number: int) -> bool:
    return any(copy[0] == number for copy in copies)


def _plus(counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (*counts[:number], counts[number] + 1, *counts[number + 1 :])
