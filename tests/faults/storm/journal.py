"""What happened, with the time of each: the storm's own notes. All times are the machine's clock.

Consumers are processes of their own that may be killed: each appends whole lines to a file before
it acks, so nothing that it noted is lost with it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults.storm.messages import Message
from tests.faults.storm.plan import Act, Fault


@dataclass(frozen=True, slots=True)
class Published:
    """A message that a producer has sent; in doubt if no confirm of it arrived."""

    message: Message
    at: float
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Consumed:
    """A message that a consumer has taken. Noted before the ack."""

    identity: str
    digest: str
    queue: str
    key: str
    letter: str | None
    generation: int
    at: float


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault as it was: when it began, and when all was mended."""

    fault: Fault
    began: float
    ended: float
    note: str = ""

    @property
    def was_struck(self) -> bool:
        """Whether it was what the plan says; else the note begins so."""
        return not self.note.startswith("not ")


@dataclass(frozen=True, slots=True)
class Done:
    """What came of something that an operator did: an exit code, or a status of the API."""

    act: Act
    at: float
    outcome: str


@dataclass
class Journal:
    """What the storm's own process notes."""

    began: float = field(default_factory=time.time)
    published: list[Published] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What is wrong already, whatever the accounts say."""

    def since(self, at: float) -> str:
        return f"{at - self.began:.1f} s"


class Notes:
    """A consumer's file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def take(self, consumed: Consumed) -> None:
        """Note it. One write: a kill leaves the whole line, or nothing."""
        os.write(self._file, json.dumps(asdict(consumed)).encode() + b"\n")


def read_notes(folder: Path) -> list[Consumed]:
    """What all consumers have taken, in the order of time."""
    lines = [line for file in folder.glob("*.notes") for line in file.read_text().splitlines()]
    return sorted((Consumed(**json.loads(line)) for line in lines), key=lambda each: each.at)
