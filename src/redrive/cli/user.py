"""`redrive user`: the people who can log in to the API and the console.

Guarantees: a password is read from the terminal without being shown, or from stdin; never from the
command line, where others could see it. Who is changed or deleted is logged out at once. Both are
in the audit log.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from redrive import runtime
from redrive.cli.app import group
from redrive.cli.auditing import audited, require
from redrive.cli.filters import NOTHING_MATCHED
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import Column, note, one_line, print_json, print_table
from redrive.domain.access import LEAST_PASSWORD, Role, User, why_not_user
from redrive.work.show_access import user_document

if TYPE_CHECKING:
    from redrive.settings import Settings

app = group("user")

_COLUMNS: Final = (Column("NAME", cut=True), Column("ROLE", whole=True))
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name to log in with.")]


@app.command("set")
@invoked
def set_(
    invocation: Invocation,
    name: _Name,
    *,
    role: Annotated[Role, typer.Option(help="What they may do.")],
    keep_password: Annotated[
        bool, typer.Option("--keep-password", help="Only change the role.")
    ] = False,
) -> None:
    """Add a user, or change one. The password is asked for, or read from stdin."""
    password = None if keep_password else _password()
    reason = why_not_user(name, "x" * LEAST_PASSWORD if password is None else password)
    if reason is not None:
        raise typer.BadParameter(reason)
    settings = invocation.load().settings
    added = runtime.run_async(_set(settings, name, role, password))
    if added is None:
        note(f"there is no user {name!r}")
        raise typer.Exit(NOTHING_MATCHED)
    outcome = "added" if added else "changed"
    if invocation.output is Output.JSON:
        print_json({"name": name, "role": role.value, "outcome": outcome})
    else:
        typer.echo(f"{outcome} {name}: {role.value}")


def _password() -> str:
    if sys.stdin.isatty():
        given: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return given
    return sys.stdin.readline().rstrip("\r\n")


async def _set(settings: Settings, name: str, role: Role, password: str | None) -> bool | None:
    from redrive.work.passwords import Passwords  # noqa: PLC0415  (argon2 is slow to import)

    hashed = None if password is None else await Passwords().hash(password)
    told = {"name": name, "role": role.value, "password": hashed is not None}
    async with runtime.store(settings, make=True) as store:
        try:
            async with audited(store.audit_log, "users.set", told):
                return await store.access.set_user(name, role, hashed)
        except LookupError:
            return None


@app.command("list")
@invoked
def list_(invocation: Invocation) -> None:
    """List users, by name."""
    users = runtime.run_async(_users(invocation.load().settings))
    if invocation.output is Output.JSON:
        print_json({"items": [user_document(user) for user in users]})
    elif users:
        print_table(_COLUMNS, [[(one_line(user.name), user.role.value) for user in users]])
    if not users:
        note("there is no user")
        raise typer.Exit(NOTHING_MATCHED)


async def _users(settings: Settings) -> list[User]:
    async with runtime.store(settings) as store:
        return await store.access.users()


@app.command()
@invoked
def delete(invocation: Invocation, name: _Name) -> None:
    """Delete a user, who is logged out at once."""
    if not runtime.run_async(_delete(invocation.load().settings, name)):
        note(f"there is no user {name!r}")
        raise typer.Exit(NOTHING_MATCHED)
    if invocation.output is Output.JSON:
        print_json({"name": name, "deleted": True})
    else:
        typer.echo(f"deleted {name}")


async def _delete(settings: Settings, name: str) -> bool:
    async with runtime.store(settings) as store:
        try:
            async with audited(store.audit_log, "users.delete", {"name": name}):
                require(await store.access.delete_user(name), name)
        except LookupError:
            return False
    return True
