"""`redrive db`: the store's tables.

Guarantees: an upgrade happens as a whole or not at all; a store of a newer Redrive is refused. On
SQLite a copy of the file is made first. What is not Redrive's own is not touched.
"""

from __future__ import annotations

from redrive import runtime
from redrive.cli.app import group
from redrive.cli.invocation import Invocation, Output, invoked
from redrive.cli.rendering import print_json, print_table

app = group("db")


@app.command()
@invoked
def upgrade(invocation: Invocation) -> None:
    """Make the store's tables, or bring older ones to this version."""
    done = runtime.run_async(runtime.upgrade_store(invocation.load().settings))
    backup = str(done.backup) if done.backup else None
    if invocation.output is Output.JSON:
        print_json({"before": done.before, "after": done.after, "backup": backup})
        return
    print_table(
        ("SCHEMA BEFORE", "SCHEMA NOW", "COPY"),
        [[(done.before or "(none)", done.after, backup or "(none)")]],
    )
