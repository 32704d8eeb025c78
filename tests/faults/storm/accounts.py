"""The accounts: every message that was published is somewhere, and whatever is twice has a reason.

Pure. A message has a first life, which ends when a consumer takes it, when it becomes a letter, or
where it lies in a queue; and each sending of a letter is a life more, which ends when a consumer
takes that, when it comes back to the letter, or in a queue. Each life ends once. An end more is a
duplicate, and is explained only by a fault that struck whoever had that message in hand, before the
second end (see blame.py).

Wrong is: a confirmed message that ended nowhere, a letter that counts as consumed although no
consumer took what was sent, a copy with another body, key or queue, a duplicate without a fault or
a letter of one without its mark, a letter sent again that was in doubt, one that counts as refused
although it was sent; and a copy that lies in a queue, since all had time to come to rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from redrive.domain.letter import Result
from redrive.domain.lifecycle import State
from tests.faults.storm.blame import Blame, blame
from tests.faults.storm.journal import Consumed, Published, Struck
from tests.faults.storm.messages import GHOSTS, KEYS
from tests.faults.storm.wiretap import THE_BROKER, Held, Life

OWN_DEAD: Final = "dlq-queue"
"""What is collected from here has a redrive-id, so second copies are recognised."""
_LONG_BEFORE: Final = 10.0
"""Seconds before a message was first held: what struck then is told beside a duplicate."""


@dataclass(frozen=True, slots=True)
class InQueue:
    """A copy that lies in a queue at the end."""

    identity: str
    digest: str
    queue: str
    letter: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Sending:
    """One attempt of a letter."""

    generation: int
    at: float
    result: Result


@dataclass(frozen=True, slots=True)
class Filed:
    """A letter, as it is at the end."""

    id: str
    identity: str
    digest: str
    state: State
    queue: str | None
    key: str
    collected_from: str
    at: float
    marked: bool
    """Whether it says that it may be a second copy."""
    sendings: tuple[Sending, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that there is at the end."""

    published: Sequence[Published]
    consumed: Sequence[Consumed]
    in_queues: Sequence[InQueue]
    witnessed: Mapping[str, int]
    """Copies in the queue that retries and replays do not come by."""
    letters: Sequence[Filed]
    struck: Sequence[Struck]
    held: Sequence[Held]
    """Who had which copy in hand."""
    ended: float


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A life that ended once more. `why` is the fault that explains it, if one does."""

    identity: str
    how: str
    why: Blame | None
    held: Sequence[Held]


@dataclass(frozen=True, slots=True)
class _End:
    at: float
    how: str


@dataclass
class Accounts:
    """What the accounts say. Right if there is no problem."""

    found: Found
    lost: list[str] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def settle_accounts(found: Found, digests: Callable[[Published], set[str]]) -> Accounts:
    """The accounts of what was found; `digests` are those that copies of a message may have."""
    accounts = Accounts(found)
    known = {each.message.identity: each for each in found.published}
    _check_copies(accounts, known, digests)
    _check_lives(accounts, known)
    _check_letters(accounts)
    accounts.problems += [f"{each.identity} got stuck in {each.queue}" for each in found.in_queues]
    _check_witness(accounts)
    if accounts.lost:
        accounts.problems.append(f"lost: {', '.join(accounts.lost[:20])}")
    accounts.problems += [
        f"{each.identity} is there twice and no fault explains it: {each.how}; "
        f"{_trail(each, accounts.found.struck)}"
        for each in accounts.duplicates
        if each.why is None
    ]
    return accounts


def _check_copies(
    accounts: Accounts,
    known: Mapping[str, Published],
    digests: Callable[[Published], set[str]],
) -> None:
    """Whatever is found is what was published, byte for byte, where it belongs."""
    found, problems = accounts.found, accounts.problems
    lawful = {identity: digests(published) for identity, published in known.items()}
    copies: list[Consumed | InQueue | Filed] = [
        *found.consumed,
        *found.in_queues,
        *found.letters,
    ]
    for each in copies:
        published = known.get(each.identity)
        if published is None:
            problems.append(f"{each.identity!r} was never published: {each}")
            continue
        if each.digest not in lawful[each.identity]:
            problems.append(f"{each.identity} has another body: {each}")
        queue = published.message.queue
        if isinstance(each, (Consumed, Filed)) and (each.queue, each.key) != (queue, KEYS[queue]):
            problems.append(f"{each.identity} belongs to {queue} with {KEYS[queue]}: {each}")


def _check_lives(accounts: Accounts, known: Mapping[str, Published]) -> None:
    found = accounts.found
    first, later = _ends(found)
    hands: dict[str, list[Held]] = defaultdict(list)
    for held in found.held:
        hands[held.life.identity].append(held)
    for identity, published in known.items():
        ends = first.get(identity, [])
        if not ends and published.confirmed:
            accounts.lost.append(identity)
        # Of all its lives: a second copy of a letter that was sent may become a letter too.
        _note_duplicates(accounts, identity, ends, hands[identity])
    for letter in found.letters:
        for sending in letter.sendings:
            ends = later.get((letter.id, sending.generation), [])
            life = Life(letter.identity, letter.id, sending.generation)
            of_it = [held for held in hands[letter.identity] if held.life == life]
            _note_duplicates(accounts, letter.identity, ends, of_it)
            if ends and sending.result is Result.REFUSED:
                accounts.problems.append(
                    f"letter {letter.id} of {letter.identity} was sent, and counts as refused"
                )
        if letter.state is State.RESOLVED:
            last = [each for each in letter.sendings if each.result is not Result.REFUSED][-1:]
            if not any(later.get((letter.id, each.generation)) for each in last):
                accounts.lost.append(f"{letter.identity} (letter {letter.id} is resolved)")


def _ends(found: Found) -> tuple[dict[str, list[_End]], dict[tuple[str, int], list[_End]]]:
    """The ends of first lives by identity, and of sendings by letter and generation."""
    first: dict[str, list[_End]] = defaultdict(list)
    later: dict[tuple[str, int], list[_End]] = defaultdict(list)
    for taken in found.consumed:
        end = _End(taken.at, "consumed")
        if taken.letter is None:
            first[taken.identity].append(end)
        else:
            later[taken.letter, taken.generation].append(end)
    for copy in found.in_queues:
        end = _End(found.ended, f"in {copy.queue}")
        if copy.letter is None:
            first[copy.identity].append(end)
        else:
            later[copy.letter, copy.generation].append(end)
    for letter in found.letters:
        first[letter.identity].append(_End(letter.at, f"letter {letter.id}"))
        for sending in letter.sendings:
            if sending.result is Result.RETURNED:
                # when it came back is not kept for each sending
                later[letter.id, sending.generation].append(_End(found.ended, "came back"))
    return first, later


def _note_duplicates(
    accounts: Accounts, identity: str, ends: list[_End], held: Sequence[Held]
) -> None:
    ends = sorted(ends, key=lambda each: each.at)
    for number, (before, end) in enumerate(pairwise(ends)):
        why = blame(accounts.found.struck, held, before=end.at, nth=number)
        accounts.duplicates.append(Duplicate(identity, f"{before.how}, {end.how}", why, held))


def _trail(duplicate: Duplicate, struck: Iterable[Struck]) -> str:
    """Whose hands it went through, and what struck meanwhile, in seconds since the first."""
    hands = sorted(duplicate.held, key=lambda each: each.since)
    if not hands:
        return "in the hands of: nobody"
    first, last = hands[0].since, max(each.until for each in hands)
    spans = (
        f"{each.holder} {each.since - first:.1f} to {each.until - first:.1f} s"
        f"{'' if each.safe or each.holder == THE_BROKER else ', not settled'}"
        for each in hands
    )
    faults = (
        f"{each.fault.trouble.value} ({each.fault.target}) {each.began - first:.1f} to "
        f"{each.ended - first:.1f} s"
        for each in struck
        if each.began <= last and each.ended >= first - _LONG_BEFORE
    )
    return f"in the hands of: {', '.join(spans)}; meanwhile: {', '.join(faults) or 'nothing'}"


def _check_letters(accounts: Accounts) -> None:
    letters, problems = accounts.found.letters, accounts.problems
    unmarked = Counter(
        (each.identity, each.queue)
        for each in letters
        if each.collected_from == OWN_DEAD and not each.marked
    )
    problems += [
        f"{identity} has {number} letters that do not say so"
        for (identity, _), number in unmarked.items()
        if number > 1
    ]
    for letter in letters:
        if letter.state in (State.PENDING, State.PROCESSING):
            problems.append(f"letter {letter.id} of {letter.identity} is {letter.state.word} still")
        if any(each.result is Result.IN_DOUBT for each in letter.sendings[:-1]):
            problems.append(f"letter {letter.id} was in doubt, and was sent again: {letter}")
        if any(each.result is Result.SENDING for each in letter.sendings):
            problems.append(f"letter {letter.id} is being sent still: {letter}")


def _check_witness(accounts: Accounts) -> None:
    """One copy of each message came by its exchange: the producer's, and none of Redrive's."""
    for published in accounts.found.published:
        if published.message.queue == GHOSTS:
            continue
        copies = accounts.found.witnessed.get(published.message.identity, 0)
        if copies > 1 or (published.confirmed and copies == 0):
            accounts.problems.append(
                f"{published.message.identity} came {copies} times by its exchange"
            )
