"""`redrive export`: what other software needs to watch Redrive, made of the same definitions.

Guarantees: writes to stdout and nothing else; needs neither broker nor store.
"""

from __future__ import annotations

import typer

from redrive.cli.app import group
from redrive.cli.invocation import Invocation, invoked
from redrive.cli.rendering import print_json

app = group("export")


@app.command("prometheus-rules")
@invoked
def prometheus_rules(invocation: Invocation) -> None:
    """Write recording and alerting rules for Prometheus, as YAML: the alerts of the settings."""
    from redrive.domain.prometheus_rules import prometheus_rules as made  # noqa: PLC0415
    from redrive.settings.alerts import rules_by  # noqa: PLC0415

    typer.echo(made(rules_by(invocation.load().settings.alert)), nl=False)


@app.command()
@invoked
def grafana(invocation: Invocation) -> None:
    """Write a dashboard for Grafana, as JSON to be imported."""
    from redrive.domain.dashboard import dashboard  # noqa: PLC0415

    invocation.load()
    print_json(dashboard())
