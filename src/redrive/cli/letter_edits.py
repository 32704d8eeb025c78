"""`redrive letters edit`: another body, other headers, for one letter or for all that match.

Guarantees: the original is kept, and an edit can be undone until it was sent. A message that
somebody else has changed meanwhile is left alone. Of many letters the edit is first shown on one,
with how many it fits and why not the others; then all are edited or, if it does not fit some of
them and nobody said to leave those out, none.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.actor import actor
from redrive.cli.asking import ask
from redrive.cli.filters import NOTHING_MATCHED, Selection, filtered, whole_id
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.letter_changes import FAILED, Reason, Yes
from redrive.cli.rendering import console, note, one_line, print_json
from redrive.domain.editing import LONGEST_REASON, standing
from redrive.domain.texts import storable
from redrive.errors import EditRefused, RedriveError

if TYPE_CHECKING:
    from redrive.domain.letter import Kept
    from redrive.settings import Settings
    from redrive.work.edit import EditOrder
    from redrive.work.edit_group import Spool, Survey

_STDIN: Final = Path("-")
_SAMPLE_LINES: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """The command as it was given, but for which letters."""

    order: EditOrder
    reason: str
    yes: bool
    skip_unfit: bool


@invoked
@filtered
def edit(  # noqa: PLR0913  (each is an option)
    invocation: Invocation,
    selection: Selection,
    letter: Annotated[
        str | None,
        typer.Argument(metavar="LETTER", help="Its id, or how it begins; or give filters."),
    ] = None,
    *,
    body: Annotated[
        Path | None, typer.Option(metavar="FILE", help="This file is the new body; - for stdin.")
    ] = None,
    patch: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A JSON Patch for the body (RFC 6902); - for stdin."),
    ] = None,
    set_header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set a header, of the type that it has; or more."),
    ] = None,
    remove_header: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove a header; or more.")
    ] = None,
    content_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Another content type; '' for none.")
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take the newest edit back, unless it was sent.")
    ] = False,
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="Leave out letters that the edit does not fit.")
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
) -> None:
    """Change what is sent of a letter, or of all that match; the original is kept.

    Without --body, --patch and headers, your editor opens with the body's text.
    """
    if (letter is None) == selection.is_empty:
        raise typer.BadParameter("name a letter, or give filters; one of them")
    order = _order(body, patch, set_header, remove_header, content_type)
    reason = storable(reason, LONGEST_REASON)
    settings = invocation.load().settings
    if undo:
        if letter is None or not order.is_empty:
            raise typer.BadParameter("--undo: expected one letter, and no other change")
        _undo(invocation, settings, letter, reason)
        return
    given = _Edit(order=order, reason=reason, yes=yes, skip_unfit=skip_unfit)
    if letter is not None:
        _edit_one(invocation, settings, letter, given)
    else:
        _edit_group(invocation, settings, selection, given)


# What to change


def _order(
    body: Path | None,
    patch: Path | None,
    set_header: list[str] | None,
    remove_header: list[str] | None,
    content_type: str | None,
) -> EditOrder:
    from redrive.domain.json_patch import read_patch  # noqa: PLC0415  (--help does without)
    from redrive.work.edit import EditOrder  # noqa: PLC0415

    try:
        order = EditOrder(
            body=None if body is None else _read(body),
            patch=None if patch is None else read_patch(_read_text(patch)),
            set_headers=tuple(_header(each) for each in set_header or ()),
            remove_headers=tuple(remove_header or ()),
            content_type=content_type,
        )
        order.check()
    except EditRefused as refused:
        raise typer.BadParameter(str(refused)) from None
    return order


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == _STDIN else file.read_bytes()
    except OSError as error:
        raise RedriveError(f"{file} cannot be read: {error.strerror}") from None


def _read_text(file: Path) -> str:
    try:
        return _read(file).decode()
    except UnicodeDecodeError:
        raise typer.BadParameter(f"--patch: expected text in UTF-8 in {file}") from None


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"--set-header: expected NAME=VALUE, got {text!r}")
    return name, value


# One letter


def _edit_one(invocation: Invocation, settings: Settings, beginning: str, given: _Edit) -> None:
    from redrive.work.edit import editable_of, prepare  # noqa: PLC0415

    kept = runtime.run_async(_kept(settings, beginning))
    order = _in_editor(kept) if given.order.is_empty else given.order
    letter_id = kept.letter.id
    try:
        prepared = prepare(editable_of(kept), order)
    except EditRefused as refused:
        said = f"letter {letter_id} is not edited: {refused}"
        raise EditRefused(said, remedy=refused.remedy) from None
    number: int | None = None
    if prepared is not None:

        async def store_it() -> int | None:
            async with runtime.store(settings) as store:
                await store.edits.edit([prepared], actor(), given.reason)
                now = await store.letters.kept(letter_id)
                newest = None if now is None else standing(now.edits)
                return None if newest is None else newest.number

        number = runtime.run_async(store_it())
    if invocation.output is Output.JSON:
        print_json({"id": letter_id, "edited": prepared is not None, "edit": number})
    elif prepared is None:
        note(f"letter {letter_id} is as it was: the edit changes nothing")
    else:
        note(f"edited letter {letter_id}; 'redrive letters edit {letter_id} --undo' takes it back")


async def _kept(settings: Settings, beginning: str) -> Kept:
    async with runtime.store(settings) as store:
        letter_id = await whole_id(store.letters, beginning)
        kept = await store.letters.kept(letter_id)
    if kept is None:
        note(f"letter {letter_id} was deleted meanwhile")
        raise typer.Exit(NOTHING_MATCHED)
    return kept


def _in_editor(kept: Kept) -> EditOrder:
    """What the person makes of the body."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise typer.BadParameter(
            "say what to change: --body, --patch, --set-header, --remove-header or --content-type"
        )
    from redrive.cli.editor import edited  # noqa: PLC0415
    from redrive.domain.editing import is_json_type, why_not_edited  # noqa: PLC0415
    from redrive.work.edit import EditOrder, as_sent, body_of_text, text_to_edit  # noqa: PLC0415

    reason = why_not_edited(kept.letter.status)
    if reason is not None:
        raise EditRefused(f"letter {kept.letter.id} is not edited: {reason}")
    message = as_sent(kept)
    suffix = ".json" if is_json_type(kept.letter.content_type) else ".txt"
    text = edited(text_to_edit(message), suffix)
    return EditOrder(body=body_of_text(message, text))


def _undo(invocation: Invocation, settings: Settings, beginning: str, reason: str) -> None:
    async def take_back() -> tuple[str, int]:
        async with runtime.store(settings) as store:
            letter_id = await whole_id(store.letters, beginning)
            undone = await store.edits.undo(letter_id, actor(), reason)
            return letter_id, undone.number

    letter_id, number = runtime.run_async(take_back())
    if invocation.output is Output.JSON:
        print_json({"id": letter_id, "undone": number})
    else:
        note(f"undone: edit {number} of letter {letter_id}")


# All that match


def _edit_group(
    invocation: Invocation, settings: Settings, selection: Selection, given: _Edit
) -> None:
    if given.order.is_empty or given.order.body is not None:
        raise typer.BadParameter(
            "for all that match, give --patch, --set-header, --remove-header or --content-type"
        )
    from redrive.work.edit_group import Spool  # noqa: PLC0415

    edited = code = 0
    with Spool() as spool:
        found = runtime.run_async(_survey(settings, selection, given.order, spool))
        if found.letters:
            _preview(invocation, settings, found, skip=given.skip_unfit)
        if not found.letters:
            note("no letter matches")
            code = NOTHING_MATCHED
        elif found.unfit and not given.skip_unfit:
            note("nothing was edited: --skip-unfit leaves those out, and edits the others")
            code = FAILED
        elif not found.fit:
            note("nothing was edited: it changes none of them")
            code = FAILED if found.unfit else 0
        else:
            if not given.yes:
                ask(f"Edit {wording.plural(found.fit, 'letter')}?")
            edited = runtime.run_async(_write(settings, spool, given, found))
            note(f"edited {wording.plural(edited, 'letter')}")
    if invocation.output is Output.JSON:
        print_json(_document(settings, found, edited))
    raise typer.Exit(code)


async def _survey(
    settings: Settings, selection: Selection, order: EditOrder, spool: Spool
) -> Survey:
    from redrive.work.edit_group import survey  # noqa: PLC0415

    async with runtime.store(settings) as store:
        filters = await selection.filters(store.letters)
        return await survey(store.edits, filters, order, spool, selection.limit)


async def _write(settings: Settings, spool: Spool, given: _Edit, found: Survey) -> int:
    left_out: list[tuple[str, str]] = []
    async with runtime.store(settings) as store:
        edited = await store.edits.edit_all(
            spool.batches(),
            actor(),
            given.reason,
            left_out=left_out if given.skip_unfit else None,
        )
    for letter_id, reason in left_out:
        note(f"left out: {reason}")
        found.leave_out(letter_id, reason)
    return edited


def _preview(invocation: Invocation, settings: Settings, found: Survey, *, skip: bool) -> None:
    """One letter before and after, and how many there are."""
    if invocation.output is Output.TABLE and found.sample is not None:
        from rich.text import Text  # noqa: PLC0415  (slow to import: only where it is used)

        out = console()
        out.print(Text(f"Letter {found.sample.letter_id}, as an example", "bold"), soft_wrap=True)
        lines = _difference(settings, found)
        for line in lines[:_SAMPLE_LINES]:
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            out.print(Text(f"  {one_line(line)}", style), soft_wrap=True)
        if len(lines) > _SAMPLE_LINES:
            out.print(Text(f"  … {len(lines) - _SAMPLE_LINES:,} lines more", "yellow"))
    also = f", and {found.unchanged:,} are so already" if found.unchanged else ""
    note(f"it fits {wording.plural(found.fit, 'letter')}{also}")
    for unfit in found.unfit:
        left = "left out" if skip else "does not fit"
        note(
            f"{left}: {wording.plural(unfit.letters, 'letter')}, as {unfit.example}: {unfit.reason}"
        )


def _difference(settings: Settings, found: Survey) -> list[str]:
    from redrive.work.edit_report import sample_difference  # noqa: PLC0415
    from redrive.work.redact import Redaction  # noqa: PLC0415

    return sample_difference(found, Redaction.by(settings.redaction))


def _document(settings: Settings, found: Survey, edited: int) -> dict[str, Any]:
    from redrive.work.edit_report import survey_document  # noqa: PLC0415
    from redrive.work.redact import Redaction  # noqa: PLC0415

    return survey_document(found, edited, Redaction.by(settings.redaction))
