"""`redrive token`: what programs show to the API instead of a password.

Guarantees: a token's secret is printed once, on stdout and nowhere else; the store has a digest of
it. A revoked token is refused with the next request. The last that somebody could log in with is
not revoked. What is made and revoked is in the audit log.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from redrive import runtime
from redrive.cli import wording
from redrive.cli.actor import actor
from redrive.cli.app import group
from redrive.cli.auditing import audited
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import Cell, Column, Marked, note, one_line, print_json, print_table
from redrive.domain.access import LONGEST_USER, Role, Token
from redrive.domain.ids import letter_id
from redrive.errors import RedriveError
from redrive.work.show_access import token_document

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("token")

_COLUMNS: Final = (
    Column("ID", whole=True),
    Column("NAME", cut=True),
    Column("ROLE", whole=True),
    Column("MADE", whole=True),
    Column("STATE", whole=True),
)


@app.command()
@invoked
def create(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="What uses it, such as ci.")],
    *,
    role: Annotated[Role, typer.Option(help="What it may do.")],
    days: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=3650, help="How long; for ever without."),
    ] = None,
) -> None:
    """Make a token, and print its secret: it is shown this once."""
    if not 1 <= len(name) <= LONGEST_USER or not (name.isascii() and name.isprintable()):
        raise typer.BadParameter(f"expected a name of 1 to {LONGEST_USER} ASCII characters")
    lasts = None if days is None else timedelta(days=days)
    token, secret = runtime.run_async(_create(invocation.load().settings, name, role, lasts))
    if invocation.output is Output.JSON:
        print_json({**token_document(token), "token": secret})
    else:
        typer.echo(secret)
    note("send it as 'Authorization: Bearer …'; it is not shown again")


async def _create(
    settings: Settings, name: str, role: Role, lasts: timedelta | None
) -> tuple[Token, str]:
    from redrive.work.passwords import PREFIX, digest, new_secret  # noqa: PLC0415

    secret = PREFIX + new_secret()
    told = {"name": name, "role": role.value, "days": None if lasts is None else lasts.days}
    async with (
        runtime.store(settings, make=True) as store,
        audited(store.audit_log, "tokens.create", told) as entry,
    ):
        token = await store.access.add_token(
            letter_id(datetime.now(UTC), secrets.randbits(74)),
            digest(secret),
            name=name,
            role=role,
            by=actor(),
            lasts=lasts,
        )
        entry["id"] = token.id
    return token, secret


@app.command("list")
@invoked
def list_(invocation: Invocation) -> None:
    """List tokens, newest first; revoked ones too."""
    tokens = runtime.run_async(_tokens(invocation.load().settings))
    now = datetime.now(UTC)
    if invocation.output is Output.JSON:
        print_json({"items": [token_document(token) for token in tokens]})
    elif tokens:
        print_table(_COLUMNS, [[_row(token, now) for token in tokens]])
    if not tokens:
        note("there is no token")
        raise typer.Exit(NOTHING_MATCHED)


async def _tokens(settings: Settings) -> list[Token]:
    async with runtime.store(settings) as store:
        return await store.access.tokens()


def _row(token: Token, now: datetime) -> tuple[Cell, ...]:
    if token.is_valid(now):
        until = token.expires_at
        state = Marked(
            "valid" if until is None else f"ends {wording.relative(until, now)}", "green"
        )
    else:
        state = Marked("revoked" if token.revoked_at else "expired", "dim")
    made = f"{wording.ago(token.created_at, now)} by {one_line(token.created_by)}"
    return token.id, one_line(token.name), token.role.value, made, state


@app.command()
@invoked
def revoke(
    invocation: Invocation,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, or its name.")],
) -> None:
    """Revoke a token, or every one of that name: the next request with it is refused."""
    revoked, refused = runtime.run_async(_revoke(invocation.load().settings, token))
    if invocation.output is Output.JSON:
        print_json({"items": [token_document(each) for each in revoked]})
    for each in revoked:
        note(f"revoked {each.name} ({each.id})")
    if refused is not None:
        raise refused
    if not revoked:
        note(f"there is no token {token!r} that can be used")
        raise typer.Exit(NOTHING_MATCHED)


async def _revoke(settings: Settings, wanted: str) -> tuple[list[Token], RedriveError | None]:
    """Those that were revoked, and why the others were not."""
    revoked: list[Token] = []
    async with runtime.store(settings) as store:
        found = [
            each
            for each in await store.access.tokens()
            if wanted in (each.id, each.name) and each.revoked_at is None
        ]
        try:
            for each in found:
                async with audited(store.audit_log, "tokens.revoke", {"id": each.id}):
                    gone = await store.access.revoke(each.id)
                if gone is not None:
                    revoked.append(gone)
        except RedriveError as error:
            return revoked, error
    return revoked, None
