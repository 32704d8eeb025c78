"""`redrive run`: the roles, in one process, until SIGTERM or Ctrl-C.

Guarantees: what is in flight is finished or given back within 10 s of the signal; a second signal
ends at once. Losing the broker or the database is survived: the roles wait and come back.
"""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.app import single
from redrive.cli.invocation import Invocation, invoked

app = single("run")


@app.command()
@invoked
def run(
    invocation: Invocation,
    roles: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE,…", help="Which roles to start, with commas between; all by default."
        ),
    ] = None,
) -> None:
    """Start the roles and keep them running until SIGTERM or Ctrl-C."""
    from redrive.cli.logs import configure_logs  # noqa: PLC0415  (not needed for --help)
    from redrive.roles import choose_roles, run_roles  # noqa: PLC0415
    from redrive.runtime import run_async  # noqa: PLC0415

    chosen = choose_roles(roles)
    settings = invocation.load().settings
    configure_logs()
    run_async(run_roles(settings, chosen))
