"""`spotrelay logs`: what the control plane decided about a service, or what a replica's instance says.

Whoever reads has little time: a sentence for each record comes first, and its facts are for who asks.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotrelay.messages import harmless
from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import SCHEMA
from spotrelay.plane.core.names import COUNTED, TOLD
from spotrelay.plane.view.words import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spotrelay.operator.look.access import ControlPlane

LONGEST = timedelta(days=90)
"""Log groups keep no more."""

MOST_LINES = 1000
"""The last ones: more than anybody reads."""

FOLLOW_S = 2.0
"""Between looks: soon enough for a person, and far from the account's limit of FilterLogEvents a second."""

LATE = timedelta(seconds=30)
"""How late CloudWatch may show a line beside others of its time: each look goes back so far once more."""

UNSAID = frozenset(
    {
        "level", "location", "message", "timestamp", "service", "cold_start", "function_name",
        "function_memory_size", "function_arn", "function_request_id", "xray_trace_id",
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
    is_followed: Annotated[
        bool, typer.Option("--follow", help="Show what is decided from now on, too, until Ctrl-C.")
    ] = False,
    is_verbose: Annotated[
        bool, typer.Option("--verbose", help="Show each record with all of its facts.")
    ] = False,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines: one object for each record.")
    ] = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show the control plane's decisions about a service, or, with ID, an instance's console output.

    A sentence for each decision, in order of time. Times are UTC. The console has the kernel's words, and
    every 20 s the last 8 KiB of what the replica said; EC2 keeps its last 64 KiB, for an hour after the
    instance has ended.

    Example: spotrelay logs demo --since 10m
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.times import period

    with control_plane.errors_shown("logs"):
        look_back = period(since, "--since", LONGEST)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        if replica is not None:
            if is_followed or is_verbose or is_json:
                raise CommandError(
                    "with ID it is text, as EC2 has it: leave out --follow, --verbose and --json"
                )
            _console(plane, name, replica)
            return

        def show(record: Record) -> None:
            typer.echo(shown(record, datetime.now(UTC), is_verbose=is_verbose, is_json=is_json))

        begin = datetime.now(UTC) - look_back
        found = _records(plane, name, begin)
        for record in found[-MOST_LINES:]:
            show(record)
        if not found and not is_json:
            typer.echo(f"{name}: the control plane logged nothing about it in the last {since}", err=True)
        if is_followed:
            with suppress(KeyboardInterrupt):
                read, wait = partial(_records, plane, name), partial(time.sleep, FOLLOW_S)
                for more in followed(read, found, begin, wait):
                    for record in more:
                        show(record)


@dataclass(frozen=True, slots=True)
class Record:
    """One of the log."""

    id: str
    """CloudWatch's, by which it is known again."""
    at: datetime
    line: dict[str, Any]


def followed(
    read: Callable[[datetime], list[Record]], seen: list[Record], since: datetime, wait: Callable[[], None]
) -> Iterator[list[Record]]:
    """What comes after those that were `seen`, look by look, each once; for ever."""
    known = {record.id: record.at for record in seen}
    while True:
        wait()
        newest = max(known.values(), default=since)
        since = max(since, newest - LATE)
        known = {id_: at for id_, at in known.items() if at >= since}
        new = [record for record in read(since) if record.id not in known]
        known |= {record.id: record.at for record in new}
        yield new


def _console(plane: ControlPlane, name: str, replica_id: int) -> None:
    from spotrelay.operator.aws.console import console_output
    from spotrelay.operator.look.details import ENDED
    from spotrelay.plane.core.slots import host
    from spotrelay.plane.view.rows import rows

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


def _records(plane: ControlPlane, name: str, since: datetime) -> list[Record]:
    """What the functions logged about the service since then, in order of time."""
    from spotrelay.operator.aws.log_lines import lines

    if not plane.log_groups:
        raise CommandError(
            f"the control plane in {plane.region} doesn't say where its logs are: deploy it again",
            EXIT_FAILED,
        )
    found: list[Record] = []
    for event, line in lines(plane.clients, plane.log_groups, f'{{ $.service = "{name}" }}', since):
        # What was counted is no decision; an earlier version's metrics have no message.
        if line.get("service") == name and line.get("message") not in (None, COUNTED, TOLD):
            at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
            found.append(Record(event["eventId"], at, line))
    return sorted(found, key=lambda record: record.at)


def shown(record: Record, now: datetime, *, is_verbose: bool = False, is_json: bool = False) -> str:
    """A record as it is printed: in a sentence, with all of its facts, or as JSON."""
    from spotrelay.operator.look.decisions import sentence

    told = sentence(record.line)
    if is_json:
        at = record.at.isoformat(timespec="milliseconds")
        ours = {"schema": SCHEMA, "at": at, "sentence": told}
        # An event that was sent has a time and a schema of its own.
        return json.dumps({**ours, **record.line, **ours}, ensure_ascii=False)
    facts = ""
    if is_verbose:
        known = {"record": record.line.get("message", "")} | {
            name: fact
            for name, fact in record.line.items()
            if name not in UNSAID and fact not in (None, "", [], {})
        }
        facts = "".join(f"\n    {name}={_fact(fact)}" for name, fact in known.items())
    return harmless(f"{clock(record.at, now)}  {told}{facts}")


def _fact(fact: Any) -> str:
    return str(fact) if isinstance(fact, str | int | float) else json.dumps(fact, ensure_ascii=False)
