"""`spotrelay logs`: what the control plane decided about a service, or what a replica's instance says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotrelay.cli.errors import EXIT_FAILED, CommandError
from spotrelay.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.messages import harmless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotrelay.operate.access import ControlPlane

LONGEST = timedelta(days=90)
"""Log groups keep no more."""

MOST_LINES = 1000
"""The last ones: more than anybody reads."""

UNSAID = frozenset(
    {
        "level", "location", "message", "timestamp", "service", "cold_start", "function_name",
        "function_memory_size", "function_arn", "function_request_id", "xray_trace_id", "_aws",
    }
)  # fmt: skip
"""Of a line, what says nothing about the decision."""


def logs(
    name: ServiceName,
    replica: Annotated[
        int | None,
        typer.Argument(
            help="Show the console output of this replica's instance.", metavar="ID", show_default=False
        ),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back: 10m, 2h or 1d.", metavar="TIME")
    ] = "1h",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show the control plane's decisions about a service, or, with ID, an instance's console output.

    Times are UTC. The console has the kernel's words, and every 20 s the last 8 KiB of what the replica said;
    EC2 keeps its last 64 KiB, for an hour after the instance has ended.

    Example: spotrelay logs demo --since 10m
    """
    from spotrelay.cli import control_plane
    from spotrelay.cli.times import period

    with control_plane.errors_shown("logs"):
        look_back = period(since, "--since", LONGEST)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        if replica is not None:
            _console(plane, name, replica)
            return
        count = 0
        for line in _decisions(plane, name, datetime.now(UTC) - look_back):
            typer.echo(json.dumps(line, ensure_ascii=False) if is_json else _in_words(line))
            count += 1
        if not count and not is_json:
            typer.echo(f"{name}: the control plane logged nothing about it in the last {since}", err=True)


def _console(plane: ControlPlane, name: str, replica_id: int) -> None:
    from spotrelay.aws.console import console_output
    from spotrelay.core.slots import host
    from spotrelay.operate.details import ENDED
    from spotrelay.operate.rows import rows

    seen = rows(plane, name, datetime.now(UTC), ended=ENDED)
    replica = seen.replicas.get(replica_id)
    if replica is None or replica.instance_id is None:
        why = "has no instance" if replica else "isn't known"
        raise CommandError(f"replica {replica_id} of {name} {why}: `spotrelay status {name}`")
    output = console_output(plane.clients, host(replica.instance_id))
    if not output:
        raise CommandError(
            f"EC2 has no console output of {replica.instance_id} yet, or any more: it comes minutes after the"
            " start, and is gone an hour after the end",
            EXIT_FAILED,
        )
    typer.echo(harmless(output))


def _decisions(plane: ControlPlane, name: str, since: datetime) -> Iterator[dict[str, Any]]:
    from spotrelay.aws.errors import translated

    groups = plane.log_groups
    if not groups:
        raise CommandError(
            f"the control plane in {plane.region} doesn't say where its logs are: deploy it again",
            EXIT_FAILED,
        )
    found: list[tuple[int, dict[str, Any]]] = []
    client = plane.clients.logs
    for group in groups:
        with translated():
            pages = client.get_paginator("filter_log_events").paginate(
                logGroupName=group,
                startTime=int(since.timestamp() * 1000),
                filterPattern=f'{{ $.service = "{name}" }}',
            )
            for page in pages:
                for event in page["events"]:
                    line = _read(event["message"])
                    # The pattern spares the transfer of others' lines, and is only as exact as their form.
                    if line is not None and line.get("service") == name and "_aws" not in line:
                        found.append((event["timestamp"], line))
    for at, line in sorted(found, key=lambda one: one[0])[-MOST_LINES:]:
        yield {"at": datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds"), **line}


def _read(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _in_words(line: dict[str, Any]) -> str:
    facts = {
        name: fact
        for name, fact in line.items()
        if name not in UNSAID and name != "at" and fact not in (None, "", [], {})
    }
    said = " ".join(
        f"{name}={fact if isinstance(fact, str | int | float) else json.dumps(fact, ensure_ascii=False)}"
        for name, fact in facts.items()
    )
    return harmless(f"{line['at'][11:23]}  {line.get('message', '')}  {said}")
