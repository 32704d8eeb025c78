"""`redrive letters discard|archive|restore|resolve`: what people decide on letters.

Guarantees: letters are named one by one, or chosen by filters; never all of them by leaving both
out. More than one is asked for first. Filters that name no state mean letters in states from which
it is possible. A letter that may not change is left as it is, counted with the reason, and makes
the exit code 1. Each letter is changed whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.actor import actor
from redrive.cli.asking import ask, is_somebody_there, require_somebody
from redrive.cli.filters import NOTHING_MATCHED, Selection, filtered, whole_id
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import note, print_json
from redrive.domain.editing import LONGEST_REASON
from redrive.domain.lifecycle import State, may_become
from redrive.domain.texts import storable

if TYPE_CHECKING:
    from redrive.settings import Settings
    from redrive.work.decide import Tally, Verb, Which

FAILED: Final = 1
_BECOMES: Final = {
    "discard": State.ARCHIVED,
    "archive": State.ARCHIVED,
    "resolve": State.RESOLVED,
}
_POSSIBLE: Final = {
    **{
        word: tuple(now for now in State if may_become(now, then))
        for word, then in _BECOMES.items()
    },
    "restore": (State.ARCHIVED,),
}
"""By the command: the states of letters that it can be done with."""

Letters = Annotated[
    list[str] | None,
    typer.Argument(metavar="LETTER…", help="Ids, or how they begin; or give filters."),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for the letter's history.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """One of the commands, as it was given."""

    word: Verb
    letters: tuple[str, ...]
    selection: Selection
    reason: str
    yes: bool

    def check(self) -> None:
        if self.letters and not self.selection.is_empty:
            raise typer.BadParameter("name letters or give filters, not both")
        if not self.letters and self.selection.is_empty:
            raise typer.BadParameter(f"say which letters to {self.word}: ids, or filters")


# The commands


@invoked
@filtered
def discard(
    invocation: Invocation,
    selection: Selection,
    letters: Letters = None,
    *,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """Discard letters that are of no use: they are archived, and gone when retention says so."""
    decision = _decision("discard", letters, selection, reason, yes=yes)
    if not yes:
        require_somebody()
    _run(invocation, decision)


@invoked
@filtered
def archive(
    invocation: Invocation,
    selection: Selection,
    letters: Letters = None,
    *,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """Archive letters: no worker sends them, and 'letters restore' brings them back."""
    _run(invocation, _decision("archive", letters, selection, reason, yes=yes))


@invoked
@filtered
def restore(
    invocation: Invocation,
    selection: Selection,
    letters: Letters = None,
    *,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """Bring archived letters back, for a person to decide on."""
    _run(invocation, _decision("restore", letters, selection, reason, yes=yes))


@invoked
@filtered
def resolve(
    invocation: Invocation,
    selection: Selection,
    letters: Letters = None,
    *,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """Say that letters were consumed, where no receipt and no silence tells."""
    _run(invocation, _decision("resolve", letters, selection, reason, yes=yes))


def _decision(
    word: Verb,
    letters: list[str] | None,
    selection: Selection,
    reason: str,
    *,
    yes: bool,
) -> _Decision:
    decision = _Decision(
        word=word,
        letters=tuple(letters or ()),
        selection=selection,
        reason=storable(reason, LONGEST_REASON),
        yes=yes,
    )
    decision.check()
    return decision


# What they have in common


def _run(invocation: Invocation, decision: _Decision) -> None:
    settings = invocation.load().settings
    which = runtime.run_async(_choose(settings, decision))
    if not decision.yes and is_somebody_there():
        count = len(which)
        if count > 1 or (count and decision.word == "discard"):
            ask(f"{decision.word.capitalize()} {wording.plural(count, 'letter')}?")
    tally = runtime.run_async(_decide(settings, decision, which))
    _show(tally, decision, invocation.output)


async def _choose(settings: Settings, decision: _Decision) -> Which:
    """The letters that are named; or else those that match now, before anybody is asked: what
    comes to match while the question is read is not what they say yes to."""
    async with runtime.store(settings) as store:
        if not decision.letters:
            filters = await decision.selection.filters(store.letters)
            if not (filters.status or filters.ids):
                filters = replace(filters, status=_POSSIBLE[decision.word])
            return await store.decisions.listed(filters, decision.selection.limit)
        ids = [await whole_id(store.letters, each) for each in decision.letters]
        return list(dict.fromkeys(ids))


async def _decide(settings: Settings, decision: _Decision, which: Which) -> Tally:
    from redrive.work.decide import decide  # noqa: PLC0415  (not needed for --help)

    async with runtime.store(settings) as store:
        return await decide(
            store.decisions, decision.word, which, actor=actor(), reason=decision.reason
        )


def _show(tally: Tally, decision: _Decision, output: Output) -> None:
    from redrive.work.decide import DONE, tally_document  # noqa: PLC0415

    verb = decision.word
    done = DONE[verb]
    if output is Output.JSON:
        print_json(tally_document(tally, verb))
    elif tally.changed:
        note(f"{done} {wording.plural(tally.changed, 'letter')}")
    for reason, count in tally.unchanged.most_common():
        example = tally.examples[reason]
        which = f"letter {example} is" if count == 1 else f"{count:,} letters are"
        note(f"{which} not {done}: {reason}" + ("" if count == 1 else f"; one is {example}"))
    if tally.unchanged:
        raise typer.Exit(FAILED)
    if not tally.changed:
        given = decision.selection.given.status or _POSSIBLE[decision.word]
        note(f"no letter matches that is {' or '.join(state.word for state in given)}")
        raise typer.Exit(NOTHING_MATCHED)
