"""The Mover's protocol as a model: consume → publish → confirm → settle.

Each message is in its source queue until the broker has its ack; copies are in the target or the
dead letter queue. Whatever is on a wire arrives in any order, or not at all once the connection is
gone: more than TCP would do, so nothing is overlooked. Crashes strike between any two steps:

- of the Mover: all it knew is gone; what it had written may still arrive, also much later, as
  publishes did that a blocked broker took after their publisher was killed;
- of the broker: what it has confirmed stays, the rest stays or goes; connections are gone.

What the broker answers to a publish is anything: taken, no queue (a return), or refused.

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
    ACK_BEFORE_CONFIRM = "acks once it has published"
    ACK_ALL_BEFORE = "acks with multiple up to the newest settled one"
    ACK_RETURNED = "acks what no queue took"
    NO_MARK = "does not mark copies of what was redelivered"


class Copy(NamedTuple):
    """A copy in a queue."""

    dead: bool
    """In the dead letter queue, else in the target."""
    marked: bool
    confirmed: bool


class Sent(NamedTuple):
    """A publish on its way."""

    message: int
    dead: bool
    marked: bool
    session: int


class Answer(NamedTuple):
    """What the broker says of a publish, on its way."""

    message: int
    what: str
    """`taken`, `returned` or `refused`."""
    dead: bool


class Ack(NamedTuple):
    """An ack on its way."""

    tag: int
    multiple: bool


class Delivery(NamedTuple):
    """A message that the Mover holds, in the order of tags."""

    message: int
    marked: bool
    stage: str
    """`held`, `published`, `settled` or `acked`."""


class State(NamedTuple):
    """Everything, on both sides and between."""

    ready: tuple[tuple[int, bool], ...]
    """Messages in the source queue, and whether they were delivered before."""
    unacked: frozenset[tuple[int, int, bool]] = frozenset()
    """Tag, message, redelivered: out for delivery, the broker's view."""
    held: tuple[Delivery, ...] = ()
    """The Mover's view; the tag is the place in it, from 1."""
    publishes: frozenset[Sent] = frozenset()
    answers: frozenset[Answer] = frozenset()
    acks: frozenset[Ack] = frozenset()
    copies: tuple[tuple[Copy, ...], ...] = ()
    """Of each message."""
    session: int = 1
    crashes: int = 0


@dataclass(frozen=True)
class MoverProtocol:
    """The model, for so many messages and crashes."""

    messages: int
    crashes: int
    variant: Variant = Variant.RIGHT
    trouble: bool = True
    """Whether publishes may be returned or refused."""

    def first(self) -> State:
        return State(
            ready=tuple((message, False) for message in range(self.messages)),
            copies=((),) * self.messages,
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._deliver(state)
        yield from self._mover(state)
        yield from self._broker(state)
        if state.crashes < self.crashes:
            yield from self._crashes(state)

    # The broker hands out

    def _deliver(self, state: State) -> Iterator[tuple[str, State]]:
        if state.ready:
            (message, again), *rest = state.ready
            tag = len(state.held) + 1
            marked = again and self.variant is not Variant.NO_MARK
            yield (
                f"message {message} is delivered",
                state._replace(
                    ready=tuple(rest),
                    unacked=state.unacked | {(tag, message, again)},
                    held=(*state.held, Delivery(message, marked, "held")),
                ),
            )

    # What the Mover does

    def _mover(self, state: State) -> Iterator[tuple[str, State]]:
        for place, each in enumerate(state.held):
            if each.stage == "held":
                sent = Sent(each.message, False, each.marked, state.session)
                stage = "settled" if self.variant is Variant.ACK_BEFORE_CONFIRM else "published"
                yield (
                    f"it publishes message {each.message}",
                    state._replace(
                        publishes=state.publishes | {sent},
                        held=_with(state.held, place, each._replace(stage=stage)),
                    ),
                )
        for answer in state.answers:
            yield from self._hear(state, answer)
        if any(each.stage == "settled" for each in state.held):
            yield "it acks what is settled", self._flush(state)

    def _hear(self, state: State, answer: Answer) -> Iterator[tuple[str, State]]:
        place = next(
            (n for n, each in enumerate(state.held) if each.message == answer.message), None
        )
        heard = state._replace(answers=state.answers - {answer})
        assert place is not None  # answers are of this session, as what is held
        each = state.held[place]
        if answer.what == "taken" or (
            answer.what == "returned" and self.variant is Variant.ACK_RETURNED
        ):
            stage = "settled" if each.stage == "published" else each.stage
            held = _with(state.held, place, each._replace(stage=stage))
            yield (
                f"it hears that message {answer.message} was {answer.what}",
                heard._replace(held=held),
            )
        elif not answer.dead:
            # No queue took it, or a full one refused it: the dead letter queue, with the reason.
            sent = Sent(each.message, True, each.marked, state.session)
            yield (
                f"message {answer.message} was {answer.what}: it goes to the dead letter queue",
                heard._replace(publishes=state.publishes | {sent}),
            )
        else:
            # Not even that takes it: it stays where it is, unacked, and is tried again later.
            again = each._replace(stage="held")
            yield (
                f"message {answer.message} stays",
                heard._replace(held=_with(state.held, place, again)),
            )

    def _flush(self, state: State) -> State:
        """Acks with multiple as far as all before is settled, others one by one."""
        acks: set[Ack] = set()
        stages = [each.stage for each in state.held]
        done = [tag for tag, stage in enumerate(stages, 1) if stage in ("settled", "acked")]
        prefix = 0
        while prefix + 1 in done:
            prefix += 1
        if self.variant is Variant.ACK_ALL_BEFORE:
            prefix = max(done)
        if prefix and "settled" in stages[:prefix]:
            acks.add(Ack(prefix, multiple=True))
        acks |= {Ack(tag, False) for tag in done if tag > prefix and stages[tag - 1] == "settled"}
        held = tuple(
            each._replace(stage="acked") if each.stage == "settled" else each for each in state.held
        )
        return state._replace(acks=state.acks | acks, held=held)

    # What arrives at the broker

    def _broker(self, state: State) -> Iterator[tuple[str, State]]:
        for sent in state.publishes:
            gone = state._replace(publishes=state.publishes - {sent})
            where = "the dead letter queue" if sent.dead else "the target"
            late = sent.session != state.session
            confirmed = not late  # nobody is told of a late one, so nothing is promised
            copy = Copy(sent.dead, sent.marked, confirmed)
            taken = gone._replace(copies=_added(state.copies, sent.message, copy))
            if late:
                yield f"message {sent.message} arrives in {where}, late", taken
                yield f"what was left of message {sent.message} is lost on the wire", gone
                continue
            answer = Answer(sent.message, "taken", sent.dead)
            yield (
                f"message {sent.message} is taken by {where}",
                taken._replace(answers=state.answers | {answer}),
            )
            for what in ("returned", "refused") if self.trouble else ():
                answer = Answer(sent.message, what, sent.dead)
                yield (
                    f"message {sent.message} is {what} by {where}",
                    gone._replace(answers=state.answers | {answer}),
                )
        for ack in state.acks:
            left = frozenset(
                each
                for each in state.unacked
                if not (each[0] == ack.tag or (ack.multiple and each[0] <= ack.tag))
            )
            yield (
                f"the ack of {'all up to ' if ack.multiple else ''}tag {ack.tag} arrives",
                state._replace(acks=state.acks - {ack}, unacked=left),
            )

    # Crashes

    def _crashes(self, state: State) -> Iterator[tuple[str, State]]:
        if state.held or state.publishes or state.acks:
            # Acks that were written may have arrived: that is the step before this one.
            yield "kill -9 of the Mover", self._torn(state)
        volatile = [
            (message, place)
            for message, copies in enumerate(state.copies)
            for place, copy in enumerate(copies)
            if not copy.confirmed
        ]
        torn = self._torn(state)._replace(publishes=frozenset())
        yield "kill -9 of the broker; what it had is there", torn
        if volatile:
            kept = tuple(
                tuple(copy for copy in copies if copy.confirmed) for copies in state.copies
            )
            yield (
                "kill -9 of the broker; what it had not confirmed is gone",
                torn._replace(copies=kept),
            )

    def _torn(self, state: State) -> State:
        """The connection is gone: what was out comes back, marked as delivered before."""
        back = tuple((message, True) for _, message, _ in sorted(state.unacked))
        return state._replace(
            ready=back + state.ready,
            unacked=frozenset(),
            held=(),
            answers=frozenset(),
            acks=frozenset(),
            session=state.session + 1,
            crashes=state.crashes + 1,
        )

    # What must hold

    def wrong_in(self, state: State) -> str | None:
        there = {message for message, _ in state.ready}
        there |= {message for _, message, _ in state.unacked}
        for message, copies in enumerate(state.copies):
            safe = any(copy.confirmed for copy in copies)
            if message not in there and not safe:
                return f"message {message} is lost"
            if len(copies) > 1 + state.crashes:
                return (
                    f"message {message} is there {len(copies)} times, after {state.crashes} crashes"
                )
            if sum(not copy.marked for copy in copies) > 1:
                return f"message {message} is there twice, and nothing tells the second copy"
        return None

    def wrong_at_end(self, state: State) -> str | None:
        if state.ready or state.unacked:
            return "it ended with messages in the source queue"
        for message, copies in enumerate(state.copies):
            if not copies:
                return f"message {message} is nowhere"
            if not state.crashes and len(copies) != 1:
                return f"message {message} is there {len(copies)} times without any crash"
        return None


def _with(held: tuple[Delivery, ...], place: int, each: Delivery) -> tuple[Delivery, ...]:
    return (*held[:place], each, *held[place + 1 :])


def _added(
    copies: tuple[tuple[Copy, ...], ...], message: int, copy: Copy
) -> tuple[tuple[Copy, ...], ...]:
    """In an order that says nothing, so that equal states are equal."""
    changed = tuple(sorted((*copies[message], copy)))
    return (*copies[:message], changed, *copies[message + 1 :])
