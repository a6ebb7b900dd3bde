"""`spotrelay validate`: what is wrong with a service file, or what it amounts to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spotrelay.cli.files import Env, EnvFile, Files, Name, Secret, given, load_all
from spotrelay.service import Description, Problem, Service, describe
from spotrelay.service.userdata import MAX_BYTES

EXIT_INVALID = 2
"""The same code as for wrong arguments: nothing was done, the input must change."""


def validate(
    files: Files,
    is_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    env: Env = None,
    env_file: EnvFile = None,
    secret: Secret = None,
    name: Name = None,
    account: Annotated[
        bool, typer.Option("--account", help="Ask AWS whether the account's quotas suffice for them.")
    ] = False,
    region: Annotated[
        str | None, typer.Option(help="Whose quotas --account asks for.", metavar="R", show_default=False)
    ] = None,
) -> None:
    """Check service files, and show what they would run on.

    Problems go to standard error, one line each (file:line:column: field: problem), and the exit code is 2;
    so do quotas that are too small. If AWS can't be asked, it is 1. Warnings are about what is probably not
    meant, notices about what is done in another way than in SkyServe.
    """
    out, err = Console(), Console(stderr=True)
    services, problems = load_all(files, given(env, env_file, secret, name))
    advice: Sequence[str] = ()
    if account and services:
        lacks, advice = _lacks(services, region)
        problems += lacks
    if is_json:
        typer.echo(_json(services, problems, advice))
    else:
        for service in services:
            out.print(_table(describe(service)))
            for kind, told in (("warning", service.warnings), ("notice", service.notices)):
                for problem in told:
                    _labelled(err, kind, str(problem))
        for line in advice:
            _labelled(err, "warning", line)
        for problem in problems:
            _line(err, problem)
    if problems:
        raise typer.Exit(EXIT_INVALID)


def _labelled(console: Console, kind: str, text: str) -> None:
    console.print(f"{kind}: ", style={"warning": "yellow", "notice": "cyan"}[kind], end="")
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _json(services: Sequence[Service], problems: Sequence[Problem], advice: Sequence[str]) -> str:
    """Everything that the tables and lines say, for scripts."""
    return json.dumps(
        {
            "services": [
                {
                    "file": str(service.path),
                    **asdict(describe(service)),
                    "warnings": [asdict(problem) for problem in service.warnings],
                    "notices": [asdict(problem) for problem in service.notices],
                }
                for service in services
            ],
            "warnings": list(advice),
            "problems": [asdict(problem) for problem in problems],
        },
        indent=2,
        ensure_ascii=False,
    )


def _lacks(services: Sequence[Service], region: str | None) -> tuple[list[Problem], list[str]]:
    """What the account lacks for the services, and what is well to know."""
    from spotrelay.cli.account import account_in
    from spotrelay.cli.control_plane import errors_shown

    with errors_shown("validate --account"):
        asked = account_in(region)
        lacks = [
            Problem(str(service.path), None, "", lack)
            for service in services
            for lack in asked.lacks(service)
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
