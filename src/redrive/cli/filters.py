"""The filters of letters: the same options, with the same meaning, for every command.

    @app.command("list")
    @invoked
    @filtered
    def list_(invocation: Invocation, selection: Selection) -> None:
        ...
        filters = await selection.filters(store.letters)

Guarantees: what cannot be meant (a state that there is not, a date that is none, an empty text but
where a letter may have one, a beginning of an id that fits several letters) is wrong use, and says
what would be right. Dates without a zone are
UTC; a day alone begins, or ends, with the day.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Protocol

import typer

from redrive.domain.durations import parse_duration
from redrive.domain.filters import Filters
from redrive.domain.lifecycle import State, read_state
from redrive.domain.moments import before, read_moment

SHORTEST_ID: Final = 6
"""How much of an id must be given."""
_MOST_LISTED: Final = 5
NOTHING_MATCHED: Final = 3


class Ids(Protocol):
    """Where ids can be looked up: the letters of the store."""

    async def ids_beginning(self, prefix: str, limit: int = 10) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters, as given on one command line."""

    given: Filters
    """All but the ids."""
    ids: tuple[str, ...]
    """Ids or beginnings of ids."""
    limit: int | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was given, which would mean every letter."""
        return self == Selection(Filters(), (), None)

    async def filters(self, letters: Ids) -> Filters:
        """The filters with whole ids."""
        whole = [await whole_id(letters, each) for each in self.ids]
        return replace(self.given, ids=tuple(dict.fromkeys(whole)))


async def whole_id(letters: Ids, beginning: str, what: str = "letter") -> str:
    """The one id that begins so; else the command ends, and says why. `what` has these ids."""
    wanted = beginning.strip().lower()
    if len(wanted) < SHORTEST_ID:
        raise typer.BadParameter(
            f"{beginning!r} is too short for an id: give its first {SHORTEST_ID} characters or more"
        )
    found = await letters.ids_beginning(wanted, _MOST_LISTED + 1)
    if not found:
        typer.echo(f"redrive: no {what} has an id that begins with {beginning!r}", err=True)
        raise typer.Exit(NOTHING_MATCHED)
    if len(found) > 1:
        more = ", …" if len(found) > _MOST_LISTED else ""
        listed = ", ".join(found[:_MOST_LISTED]) + more
        raise typer.BadParameter(f"several {what}s begin with {beginning!r}: {listed}")
    return found[0]


# Reading what people write


def _require_some(**given: str | None) -> None:
    """An empty variable of a script must not come to mean every letter, nor none."""
    for name, value in given.items():
        if value == "":
            option = name.replace("_", "-")
            raise typer.BadParameter(f"--{option}: expected some text, got nothing")


def _moment(option: str, text: str | None, now: datetime, *, end: bool = False) -> datetime | None:
    if text is None:
        return None
    try:
        return read_moment(text, now, end_of_day=end)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{option}: expected a time such as 2026-02-11T12:00:00Z, a day such as 2026-02-11,"
            f" or how long ago such as 2h, got {text!r}"
        ) from None


def _states(words: list[str] | None) -> tuple[State, ...]:
    states = []
    for word in words or ():
        found = read_state(word.strip().lower())
        if found is None:
            known = ", ".join(state.word for state in State)
            raise typer.BadParameter(f"--status: expected one of {known}, got {word!r}")
        states.append(found)
    return tuple(dict.fromkeys(states))


def _until(end: datetime | None, min_age: str | None, now: datetime) -> datetime | None:
    if min_age is None:
        return end
    try:
        oldest = before(now, parse_duration(min_age.strip()))
    except ValueError:
        raise typer.BadParameter(
            f"--min-age: expected a duration such as 10m or 2h, got {min_age!r}"
        ) from None
    return oldest if end is None else min(end, oldest)


# The options


def _filter_options(  # noqa: PLR0913  (each is an option)
    *,
    id_: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="ID", help="This letter, by its id or its beginning; or more."
        ),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="In this state, such as pending; or more."),
    ] = None,
    error_type: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of this error type; * and ? are wildcards.")
    ] = None,
    error_reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With this reason; * and ? are wildcards.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Failed in this queue; wildcards too.")
    ] = None,
    exchange: Annotated[
        str | None, typer.Option(metavar="NAME", help="Published to this exchange; wildcards too.")
    ] = None,
    routing_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With this routing key; * crosses dots.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Of this group, as 'groups list' names it.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="From this application; wildcards too.")
    ] = None,
    tag: Annotated[
        str | None, typer.Option(metavar="TAG", help="With this tag; wildcards too.")
    ] = None,
    possible_duplicate: Annotated[
        bool,
        typer.Option("--possible-duplicate", help="Only what may be a second copy of a letter."),
    ] = False,
    start_date: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Collected then or later: a time, a day, or 2h (ago)."),
    ] = None,
    end_date: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Collected then or earlier; a day counts whole."),
    ] = None,
    min_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Collected at least so long ago: 10m.")
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With this text anywhere in it.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1_000_000, help="At most so many.")
    ] = None,
) -> Selection:
    _require_some(
        error_type=error_type, queue=queue, group=group, source=source, tag=tag, search=search
    )
    now = datetime.now(UTC)
    start = _moment("--start-date", start_date, now)
    end = _moment("--end-date", end_date, now, end=True)
    if start is not None and end is not None and end < start:
        raise typer.BadParameter(
            f"--end-date: expected a time from --start-date {start_date!r} on, got {end_date!r}"
        )
    return Selection(
        Filters(
            status=_states(status),
            error_type=error_type,
            error_reason=error_reason,
            queue=queue,
            exchange=exchange,
            routing_key=routing_key,
            group=group,
            source=source,
            tag=tag,
            possible_duplicate=possible_duplicate,
            created_from=start,
            created_until=_until(end, min_age, now),
            search=search,
        ),
        tuple(id_ or ()),
        limit,
    )


_OPTIONS = inspect.signature(_filter_options, eval_str=True).parameters


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Add the filters to a command whose first parameters are `Invocation` and `Selection`."""
    first, _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def run(invocation: Any, **values: Any) -> None:
        chosen = {name: values.pop(name) for name in _OPTIONS}
        command(invocation, _filter_options(**chosen), **values)

    signature = inspect.Signature([first, *own, *_OPTIONS.values()])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run
