"""What `dlq_event_config` and the config file say of a routing key.

`PolicyBook` is a snapshot: made once from all rows and entries, it answers `find` for every message
without I/O. Guarantees:

- Lookup: database exact, file exact, database wildcard, file wildcard, else None. A name is a
  pattern if one of its dot-separated words is `*` (one word) or `#` (zero or more); every other
  name is exact, also `order*`. Among patterns more literal words win, then fewer `#`, then more
  `*`, then the lower id (in a file: what stands first).
- A row that cannot be meant (negative, not a number, without a name) is left out and never stops
  the others; `problems` names it. Of rows with one name the highest id counts.
- Matching agrees with a topic exchange: the empty key has no words, `a..b` has an empty one. All
  patterns are followed at once, so that `#` costs no backtracking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

ReturnTo = Literal["queue", "exchange"]
PolicySource = Literal["database", "file", "properties"]

DEFAULT_MAX_RETRIES: Final = 3
MOST_RETRIES: Final = 2**31 - 1
"""What the table's integer, and the header `redrive-attempt`, can hold."""
LONGEST_NAME: Final = 100
"""Characters that the table's column holds."""
_REMEMBERED: Final = 10_000
"""Routing keys whose answer is kept. Beyond it all are forgotten: a key that repeats comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How messages of a routing key are retried."""

    name: str
    max_retries: int = DEFAULT_MAX_RETRIES
    return_to: ReturnTo = "queue"
    retry_expired: bool = False
    source: PolicySource = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A row of `dlq_event_config` with what `redrive_policy` adds, not yet believed."""

    id: object
    name: object
    max_retries: object
    return_to: ReturnTo = "queue"
    retry_expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProblem:
    """Something that was left out: where it stands, and why it cannot count."""

    source: PolicySource
    place: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.name!r} {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """One line of the book, for people: what it says, and whether it counts."""

    name: str
    max_retries: int | None
    return_to: ReturnTo
    retry_expired: bool
    source: PolicySource
    place: str
    state: Literal["in force", "shadowed", "refused", "ignored"] = "in force"
    reason: str = ""


def is_pattern(name: str) -> bool:
    """Whether a name has wildcards."""
    return any(word in ("*", "#") for word in name.split("."))


def refusal(name: str, max_retries: int) -> str | None:
    """Why the table cannot take this policy; None if it can."""
    if not name:
        return "expected a routing key or a pattern, got an empty name"
    if len(name) > LONGEST_NAME:
        return f"expected a name of at most {LONGEST_NAME} characters, got {len(name)}"
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in name):
        return "expected a name that is text: PostgreSQL holds no NUL and no half of a character"
    if not 0 <= max_retries <= MOST_RETRIES:
        return f"expected max retries from 0 to {MOST_RETRIES}, got {max_retries}"
    return None


def slip(name: str) -> str | None:
    """What is probably not meant by a name; None if nothing seems wrong."""
    for word in name.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            return (
                f"{word!r} is no wildcard: * and # stand for whole words, between dots. This is for"
                f" the routing key {name!r} alone"
            )
    return None


class PolicyBook:
    """All policies at one moment. `find` is made for the hot path; the rest is for people."""

    __slots__ = ("_exact", "_known", "_patterns", "entries", "problems")

    def __init__(
        self,
        rows: Iterable[PolicyRow] = (),
        file: Sequence[Policy] = (),
        problems: Sequence[PolicyProblem] = (),
    ) -> None:
        """Rows of the table, entries of the files (nearest first), and what was wrong in those."""
        entries = [*_database_entries(rows), *_file_entries(file, problems)]
        self._exact: dict[str, Policy] = {}
        # The database's patterns all come before the file's.
        self._patterns = (_PatternTree(), _PatternTree())
        owners: dict[str, PolicyEntry] = {}
        kept: list[PolicyEntry] = []
        for entry in entries:
            if entry.state == "in force" and entry.name in owners:
                kept.append(_shadowed(entry, owners[entry.name]))
                continue
            kept.append(entry)
            if entry.state == "in force":
                owners[entry.name] = entry
                self._add(entry)
        self.entries: tuple[PolicyEntry, ...] = tuple(kept)
        self.problems: tuple[PolicyProblem, ...] = tuple(
            PolicyProblem(
                source=entry.source, place=entry.place, name=entry.name, reason=entry.reason
            )
            for entry in kept
            if entry.state == "refused"
        )
        self._known: dict[str, Policy | None] = {}

    def find(self, routing_key: str) -> Policy | None:
        """The policy of a routing key; None where nothing is configured."""
        try:
            return self._known[routing_key]
        except KeyError:
            pass
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        policy = self._known[routing_key] = self._look_up(routing_key)
        return policy

    def __len__(self) -> int:
        """How many names are in force."""
        return sum(entry.state == "in force" for entry in self.entries)

    def __eq__(self, other: object) -> bool:
        """Two books that say the same of everything."""
        return isinstance(other, PolicyBook) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]  # compared by what they say

    def _add(self, entry: PolicyEntry) -> None:
        policy = Policy(
            name=entry.name,
            max_retries=DEFAULT_MAX_RETRIES if entry.max_retries is None else entry.max_retries,
            return_to=entry.return_to,
            retry_expired=entry.retry_expired,
            source=entry.source,
        )
        if is_pattern(policy.name):
            self._patterns[policy.source != "database"].add(policy)
        else:
            self._exact[policy.name] = policy

    def _look_up(self, routing_key: str) -> Policy | None:
        if routing_key in self._exact:
            return self._exact[routing_key]
        words = routing_key.split(".") if routing_key else []
        database, file = self._patterns
        return database.best(words) or file.best(words)


# What stands in the table and the files, in the order in which it counts.


def _database_entries(rows: Iterable[PolicyRow]) -> list[PolicyEntry]:
    """The highest id of a name first, so that the others are shadowed; then as the ids run."""
    newest_first = sorted(rows, key=_id_of, reverse=True)
    owners: dict[object, PolicyEntry] = {}
    entries: list[tuple[int, PolicyEntry]] = []
    for row in newest_first:
        entry = _entry(row)
        if entry.state == "in force":
            if entry.name in owners:
                entry = _shadowed(entry, owners[entry.name])
            else:
                owners[entry.name] = entry
        entries.append((_id_of(row), entry))
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def _id_of(row: PolicyRow) -> int:
    # SQLite lets a primary key be NULL; such a row counts for less than any other.
    return row.id if isinstance(row.id, int) else -(2**63)


def _entry(row: PolicyRow) -> PolicyEntry:
    number = row.max_retries
    state: Literal["in force", "refused", "ignored"] = "in force"
    reason = ""
    if row.name is None:
        state, reason = "ignored", "has no name"
    elif not isinstance(row.name, str):
        state, reason = "refused", "is not text"
    elif number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        state, reason = "refused", f"has max_retries {number!r}, which is no whole number"
    elif isinstance(number, int) and number < 0:
        state, reason = "refused", f"has max_retries {number}, which is negative"
    elif isinstance(number, int) and number > MOST_RETRIES:
        state, reason = "refused", f"has max_retries {number}, which is more than {MOST_RETRIES}"
    return PolicyEntry(
        name="" if row.name is None else str(row.name),
        max_retries=number if isinstance(number, int) else None,
        return_to=row.return_to,
        retry_expired=row.retry_expired,
        source="database",
        place=f"id {row.id}",
        state=state,
        reason=reason,
    )


def _file_entries(
    policies: Sequence[Policy], problems: Sequence[PolicyProblem]
) -> list[PolicyEntry]:
    return [
        *(
            PolicyEntry(
                name=policy.name,
                max_retries=policy.max_retries,
                return_to=policy.return_to,
                retry_expired=policy.retry_expired,
                source=policy.source,
                place="[[policy]]" if policy.source == "file" else "properties file",
            )
            for policy in policies
        ),
        *(
            PolicyEntry(
                name=problem.name,
                max_retries=None,
                return_to="queue",
                retry_expired=False,
                source=problem.source,
                place=problem.place,
                state="refused",
                reason=problem.reason,
            )
            for problem in problems
        ),
    ]


def _shadowed(entry: PolicyEntry, by: PolicyEntry) -> PolicyEntry:
    where = f"at {by.place}" if by.source == entry.source else f"in the {by.source} ({by.place})"
    return replace(entry, state="shadowed", reason=f"by the same name {where}")


# Topic patterns


@dataclass(slots=True, eq=False)
class _Node:
    """What follows a prefix of patterns. A `#` node stays for every further word."""

    words: dict[str, _Node] = field(default_factory=dict)
    is_hash: bool = False
    rank: tuple[int, int, int, int] | None = None
    policy: Policy | None = None


class _PatternTree:
    """Patterns that share their first words share nodes; all are followed at once."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        self._root = _Node()
        self._size = 0

    def add(self, policy: Policy) -> None:
        """Patterns come in the order of their ids, the lowest first."""
        words = policy.name.split(".")
        stars, hashes = words.count("*"), words.count("#")
        node = self._root
        for word in words:
            node = node.words.setdefault(word, _Node(is_hash=word == "#"))
        self._size += 1
        node.rank = (stars + hashes - len(words), hashes, -stars, self._size)
        node.policy = policy

    def best(self, words: Sequence[str]) -> Policy | None:
        """The best of the patterns that match."""
        if not self._size:
            return None
        active = _with_hashes([self._root])
        for word in words:
            following: list[_Node] = []
            for node in active:
                if node.is_hash:
                    following.append(node)
                # A word of the key that is itself `#` or `*` is a word like any other.
                if word not in ("*", "#") and word in node.words:
                    following.append(node.words[word])
                if "*" in node.words:
                    following.append(node.words["*"])
            active = _with_hashes(following)
            if not active:
                return None
        found = [(node.rank, node.policy) for node in active if node.rank is not None]
        return min(found, key=lambda pair: pair[0])[1] if found else None


def _with_hashes(nodes: Iterable[_Node]) -> list[_Node]:
    """The nodes, each once, and the `#` nodes behind them, since `#` may be no word at all."""
    seen: dict[int, _Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            if "#" in node.words:
                waiting.append(node.words["#"])
    return list(seen.values())
