"""The accounts as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from redrive.domain.lifecycle import State
from tests.faults.storm.accounts import Accounts, Duplicate
from tests.faults.storm.journal import Journal, Struck
from tests.faults.storm.plan import Plan


def report(plan: Plan, journal: Journal, accounts: Accounts, problems: Sequence[str]) -> str:
    """A table, and what is wrong."""
    return "\n".join([*_table_of_all(plan, journal, accounts), *_wrong(plan, problems)])


def _table_of_all(plan: Plan, journal: Journal, accounts: Accounts) -> Iterator[str]:
    found = accounts.found
    confirmed = sum(each.confirmed for each in found.published)
    yield f"storm of seed {plan.seed}, {plan.seconds:g} s, broker nodes: {plan.nodes}"
    yield from _table(
        "published", {"confirmed": confirmed, "in doubt": len(found.published) - confirmed}
    )
    first = sum(each.letter is None for each in found.consumed)
    taken = {"at first or by a retry": first, "by a replay": len(found.consumed) - first}
    yield from _table("consumed", taken)
    yield from _table("in queues", Counter(each.queue for each in found.in_queues))
    states = Counter(each.state for each in found.letters)
    yield from _table("in the store", {state.word: states[state] for state in State})
    results = Counter(each.result.value for letter in found.letters for each in letter.sendings)
    yield from _table("letters sent", results)
    yield from _table(
        "operators", Counter(f"{each.act.deed}: {each.outcome}" for each in journal.done)
    )
    yield from _table("faults struck", _by_trouble(found.struck))
    yield from _table(
        "duplicates, by the fault that made them",
        Counter(_why(each) for each in accounts.duplicates),
    )
    yield from _table(
        "duplicates, by what they are", Counter(_how(each.how) for each in accounts.duplicates)
    )
    yield f"lost: {len(accounts.lost)}"


def _wrong(plan: Plan, problems: Sequence[str]) -> Iterator[str]:
    yield f"problems: {len(problems)}"
    yield from (f"  {problem}" for problem in problems[:40])
    if problems:
        yield f"the same plan again: {plan.command}"


def _table(title: str, rows: dict[str, int] | Counter[str]) -> Iterator[str]:
    yield f"{title}: {sum(rows.values())}"
    yield from (f"  {number:>6}  {name}" for name, number in sorted(rows.items()) if number)


def _by_trouble(struck: Iterable[Struck]) -> Counter[str]:
    return Counter(
        str(each.fault.trouble) if each.was_struck else f"{each.fault.trouble}, {each.note}"
        for each in struck
    )


def _why(duplicate: Duplicate) -> str:
    why = duplicate.why
    return f"{why.struck.fault.trouble}, held by {why.holder}" if why else "nothing"


def _how(text: str) -> str:
    """Without ids."""
    return ", ".join(part.split(" 0")[0] for part in text.split(", "))
