"""`spotrelay validate`: what is wrong with a service file, or what it amounts to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spotrelay.service import Description, Problem, Service, ServiceFileError, describe, load
from spotrelay.service.userdata import MAX_BYTES

EXIT_INVALID = 2
"""The same code as for wrong arguments: nothing was done, the input must change."""


def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Service files.", show_default=False)
    ],
    account: Annotated[
        bool, typer.Option("--account", help="Ask AWS whether the account's quotas suffice for them.")
    ] = False,
    region: Annotated[
        str | None, typer.Option(help="Whose quotas --account asks for.", metavar="R", show_default=False)
    ] = None,
) -> None:
    """Check service files, and show what they would run on.

    Problems go to standard error, one line each (file:line: field: problem), and the exit code is 2; so do
    quotas that are too small. If AWS can't be asked, it is 1.
    """
    out, err = Console(), Console(stderr=True)
    problems: list[Problem] = []
    services: list[tuple[Path, Service]] = []
    for file in files:
        try:
            service = load(file)
        except ServiceFileError as error:
            problems += error.problems
            continue
        out.print(_table(describe(service)))
        for warning in service.warnings:
            err.print("warning: ", style="yellow", end="")
            _line(err, warning)
        for notice in service.notices:
            err.print("notice: ", style="cyan", end="")
            _line(err, notice)
        services.append((file, service))
    if account and services:
        lacks, advice = _lacks(services, region)
        problems += lacks
        for line in advice:
            err.print("warning: ", style="yellow", end="")
            err.print(line, markup=False, highlight=False, soft_wrap=True)
    for problem in problems:
        _line(err, problem)
    if problems:
        raise typer.Exit(EXIT_INVALID)


def _lacks(services: Sequence[tuple[Path, Service]], region: str | None) -> tuple[list[Problem], list[str]]:
    """What the account lacks for the services, and what is well to know."""
    from spotrelay.cli.account import account_in
    from spotrelay.cli.control_plane import errors_shown

    with errors_shown("validate --account"):
        asked = account_in(region)
        lacks = [
            Problem(str(file), None, "", lack) for file, service in services for lack in asked.lacks(service)
        ]
        return lacks, asked.warnings()


def _line(console: Console, problem: Problem) -> None:
    """One problem on one line, unwrapped, so that editors and scripts can read it."""
    console.print(str(problem), markup=False, highlight=False, soft_wrap=True)


def _standbys(facts: Description) -> str:
    if not (facts.standby or facts.standby_auto):
        return "none"
    many = f"as many as pay, {facts.standby} to begin with" if facts.standby_auto else f"{facts.standby}"
    return f"{many}, on-demand, stopped until a replica is missing"


def _table(facts: Description) -> Table:
    table = Table(title=facts.name, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows = {
        "replicas": f"{facts.replicas}, {facts.purchase}",
        "standbys": _standbys(facts),
        "accelerators": "\n".join(facts.accelerators) or "none",
        "instance types": "\n".join(facts.instance_types),
        "capacity pools": f"{facts.pools_per_zone} in each of {', '.join(facts.zones)}"
        if facts.zones
        else f"{facts.pools_per_zone} in each zone",
        "regions": ", ".join(facts.regions) or "the one that it is deployed to",
        "quotas": "\n".join(facts.quotas) or "none is known",
        "port": str(facts.port),
        "health check": facts.health_check,
        "readiness probe": facts.readiness_probe,
        "idle time-out": f"{facts.idle_timeout_s} s",
        "drain": f"{facts.drain_s} s",
        "new versions": facts.updates,
        "disk": facts.disk,
        "image": facts.image,
        "user data": f"{facts.user_data_bytes} of {MAX_BYTES} bytes",
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))  # or a path with brackets in it would be taken for markup
    return table
