"""A plan: what is published, what operators do and which fault strikes, each at its time.

Pure data. It follows from seed, length and number of nodes, and from nothing else, so a seed that
fails can be run again. What the machine makes of it (who is first, where a kill hits) is its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.faults.storm.messages import GHOSTS, KINDS, QUEUES, Message

SHORT: Final = 60.0
"""Seconds below which faults come close together, so that every kind of them has its turn."""
CALM: Final = 0.3
"""The part at the end in which no fault begins."""


class Trouble(StrEnum):
    """What strikes."""

    PROCESS_KILLED = "kill -9 of a process"
    BROKER_KILLED = "kill -9 of a broker node"
    LEADER_LOST = "kill -9 of a leader"
    MAJORITY_LOST = "majority of the cluster lost"
    MEMORY_ALARM = "memory alarm of the broker"
    CUT = "network cut"
    DELAY = "network delayed"
    HALF_OPEN = "network half-open"
    DATABASE_KILLED = "kill -9 of PostgreSQL"
    CONNECTION_LIMIT = "no free connection of PostgreSQL"
    DISK_FULL = "disk of PostgreSQL full"
    SLOW_CONSUMERS = "slow consumers"


OPERATOR: Final = "operator"
PROCESSES: Final = (
    "retrier-collector",
    "retrier-worker",
    "everything",
    "orders-1",
    "orders-2",
    "plain",
    OPERATOR,
)
"""What is killed. The first three are `redrive run` with several roles each, `orders-*` consumers
of the SDK, `plain` one without it, and `operator` is the command that an operator runs just then,
if there is one."""
BROKER, DATABASE = "broker", "database"


class Deed(StrEnum):
    """What an operator does."""

    REPLAY = "replay"
    REPLAY_DETACHED = "replay, detached"
    REPLAY_BY_API = "replay by the API"
    EDIT = "edit"
    DISCARD = "discard"
    DISCARD_BY_API = "discard by the API"
    RESTORE = "restore"
    SWEEP = "sweep"
    LEDGER = "ledger"


FEW_DEEDS: Final = (
    Deed.REPLAY,
    Deed.REPLAY_BY_API,
    Deed.EDIT,
    Deed.SWEEP,
    Deed.DISCARD_BY_API,
)
"""Those of a short plan: a command takes seconds on a busy machine."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something an operator does; `limit` is how many letters at most."""

    at: float
    deed: Deed
    limit: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that strikes, and is mended after a while. `target` is a process, a link or a
    node's number; `lasts` does not count what a server takes to start again."""

    at: float
    trouble: Trouble
    target: str
    lasts: float
    heals: bool = True
    """Whether what was held back arrives in the end; of half-open connections only."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it, each in the order of time. Faults of one lane never overlap."""

    seed: int
    seconds: float
    nodes: int
    messages: tuple[Message, ...]
    acts: tuple[Act, ...]
    lanes: tuple[tuple[Fault, ...], ...]

    @property
    def command(self) -> str:
        """What replays it."""
        return f"make faults SEED={self.seed} MINUTES={self.seconds / 60:g} NODES={self.nodes}"


@dataclass(frozen=True, slots=True)
class Lane:
    """Faults of one kind of victim, one after the other, with a pause between."""

    deck: Sequence[tuple[Trouble, Sequence[str], tuple[float, float]]]
    """What strikes, where, and for how long."""
    pause: tuple[float, float]
    short_pause: tuple[float, float]
    begins: float = 0.1
    """After which part of the time."""
    rounds: int = 1
    """How often each has its turn in a short plan."""


def make_plan(seed: int, seconds: float, nodes: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(seed)
    return Plan(
        seed=seed,
        seconds=seconds,
        nodes=nodes,
        messages=tuple(_messages(chance, seconds)),
        acts=tuple(_acts(chance, seconds)),
        lanes=tuple(tuple(_faults(chance, lane, seconds)) for lane in _lanes(nodes)),
    )


def _messages(chance: random.Random, seconds: float) -> Iterator[Message]:
    at, number = 0.0, 0
    while at < seconds:
        queue = GHOSTS if chance.random() < 0.03 else chance.choice(QUEUES)
        kind = chance.choice(KINDS[queue])
        if kind == "unwieldy" and chance.random() < 0.7:
            kind = "passes"  # each costs a hundred kilobytes of headers
        size = int(chance.paretovariate(0.6) * 20)
        yield Message(round(at, 3), f"{kind}-{number}", queue, min(size, 300_000))
        number += 1
        at += chance.expovariate(12.0)


def _acts(chance: random.Random, seconds: float) -> Iterator[Act]:
    at = seconds * 0.35  # by then there are letters
    deck: list[Deed] = []
    while at < seconds:
        if not deck:
            deck = list(FEW_DEEDS if seconds <= SHORT else Deed)
            chance.shuffle(deck)
        yield Act(round(at, 3), deck.pop(), chance.randint(1, 40))
        at += chance.uniform(2.0, 5.0) if seconds <= SHORT else chance.uniform(1.0, 8.0)


def _lanes(nodes: int) -> Iterator[Lane]:
    killed = (0.2, 2.0)
    numbers = [str(number) for number in range(nodes)]
    yield Lane([(Trouble.PROCESS_KILLED, PROCESSES, killed)], (3, 12), (1.0, 3.0), rounds=5)
    broker = [
        (Trouble.BROKER_KILLED, numbers, (0.0, 1.0)),
        (Trouble.MEMORY_ALARM, numbers, (1.0, 3.0)),
    ]
    if nodes > 2:
        broker += [
            (Trouble.LEADER_LOST, ["dlq-queue", "retry-queue", "orders"], (0.0, 8.0)),
            (Trouble.MAJORITY_LOST, numbers, (1.0, 8.0)),
        ]
    # Not at once: a node takes long to start again, and before that nothing else is worth much.
    yield Lane(broker, (10, 30), (0.5, 1.5), begins=0.3)
    yield Lane(
        [
            (Trouble.DATABASE_KILLED, [DATABASE], (0.2, 3.0)),
            (Trouble.CONNECTION_LIMIT, [DATABASE], (1.0, 3.0)),
            (Trouble.DISK_FULL, [DATABASE], (1.0, 3.0)),
        ],
        (8, 25),
        (1.0, 2.5),
    )
    links = [BROKER, BROKER, DATABASE]
    yield Lane(
        [
            (Trouble.CUT, links, (0.0, 2.0)),
            (Trouble.DELAY, links, (1.0, 4.0)),
            (Trouble.HALF_OPEN, links, (1.0, 15.0 if nodes > 2 else 3.0)),
        ],
        (6, 20),
        (1.0, 3.0),
    )
    yield Lane([(Trouble.SLOW_CONSUMERS, QUEUES, (2.0, 6.0))], (20, 60), (2.0, 6.0))


def _faults(chance: random.Random, lane: Lane, seconds: float) -> Iterator[Fault]:
    pause = lane.short_pause if seconds <= SHORT else lane.pause
    end = seconds * (1 - CALM) if seconds <= SHORT else seconds - SHORT * CALM
    at = seconds * lane.begins + chance.uniform(0.0, pause[1])
    deck: list[tuple[Trouble, Sequence[str], tuple[float, float]]] = []
    dealt = False
    while at < end or (deck and seconds <= SHORT and lane.rounds == 1):
        if not deck and dealt and seconds <= SHORT:
            return  # each kind has had its turn
        if not deck:
            deck, dealt = list(lane.deck) * lane.rounds, True
            chance.shuffle(deck)
        trouble, targets, lasts = deck.pop()
        fault = Fault(
            at=round(at, 3),
            trouble=trouble,
            target=chance.choice(targets),
            lasts=round(chance.uniform(*lasts), 3),
            heals=chance.random() < 0.5,
        )
        yield fault
        at += fault.lasts + chance.uniform(*pause)
