"""`spotrelay status`: is the service whole, and what is there of it?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.messages import few
from spotrelay.operator.cli.errors import EXIT_FAILED, EXIT_NO_ACCESS, CommandError
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.cells import replica_cells
from spotrelay.plane.view.words import UNKNOWN, duration, percent, usd

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.view.snapshot import ServiceSnapshot
    from spotrelay.plane.view.status import ReplicaRow, Status

WATCH_S = 2.0
"""Between looks: soon enough for a person, and a few reads of the table each."""

NOTE = ""
"""The last column's title."""

TITLES = ("ID", "V", "STATE", "POOL", "AS", "INSTANCE", "AGE", "USD/H", "REPLACES", NOTE)

COLORS = {"good": "green", "leaving": "yellow", "unknown": "yellow", "bad": "red"}
"""Of `Status.tone`."""

STYLES = {"READY": "green", "FAILED": "red", "UNHEALTHY": "red", "WARNED": "yellow", "DRAINING": "yellow"}


def status(
    name: Annotated[
        str | None,
        typer.Argument(help="The service; all of them, if left out.", metavar="NAME", show_default=False),
    ] = None,
    is_watched: Annotated[
        bool, typer.Option("--watch", help="Refresh every two seconds, until Ctrl-C.")
    ] = False,
    is_check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless every service is whole: for scripts.")
    ] = False,
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show whether a service is whole, each of its replicas, what was lost and what it costs now.

    If a permission is missing, the rest is shown, and the exit code is 3.

    Example: spotrelay status demo --watch
    """
    from spotrelay.operator.cli import control_plane

    with control_plane.errors_shown("status"):
        if is_watched and is_json:
            raise CommandError("--watch is for people, --json for scripts: choose one")
        where = Where(region, profile, endpoint_url)
        plane = control_plane.find(name, where) if name else control_plane.find_any(where)
        if is_watched:
            _watch(plane, name)
            return
        found = _look(plane, name)
        if is_json:
            echo_json({"services": [one.to_json() for one in found]})
        else:
            _print(found)
        raise typer.Exit(_exit_code(found, is_check=is_check))


def _look(plane: ControlPlane, name: str | None) -> list[Status]:
    from datetime import UTC, datetime

    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.look.reading import SnapshotReader
    from spotrelay.plane.view.status import status as judged

    names = [name] if name else sorted({*plane.services.names(), *plane.store.services()})
    if not names:
        raise CommandError(f"no service is deployed in {plane.region}")
    reader = SnapshotReader(plane)
    seen = [reader.read(one, datetime.now(UTC)) for one in names]
    if name and _is_nothing(seen[0]):
        if seen[0].history:
            raise CommandError(f"{name} was removed: spotrelay history {name} shows what it had")
        raise control_plane.not_deployed(plane, name)
    return [judged(one) for one in seen]


def _is_nothing(seen: ServiceSnapshot) -> bool:
    """Whether there is nothing of the service but its history, though everything could be read."""
    return seen.spec is None and not seen.present and not seen.missing


def _exit_code(found: list[Status], *, is_check: bool) -> int:
    if is_check and not all(one.is_whole for one in found):
        return EXIT_FAILED
    return EXIT_NO_ACCESS if any("missing " in words for one in found for words in one.not_read) else 0


def _watch(plane: ControlPlane, name: str | None) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        try:
            while True:
                live.update(Group(*(part for one in _look(plane, name) for part in _rendered(one))))
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            return


def _print(found: list[Status]) -> None:
    from spotrelay.operator.cli.tables import console, draw

    out = console()
    for index, one in enumerate(found):
        if index:
            out.print()
        for part in _rendered(one):
            draw(out, part)


def _rendered(one: Status) -> list[RenderableType]:
    from rich.text import Text

    from spotrelay.operator.cli.tables import table

    parts: list[RenderableType] = [_headline(one)]
    if one.why:
        parts.append(Text(one.why))
    if one.replicas or one.failed:
        shown = table(TITLES, left=("STATE", "POOL", "AS", "INSTANCE", "AGE", NOTE), wraps=(NOTE,))
        for row in (*one.replicas, *one.failed):
            shown.add_row(*_cells(row))
        parts.append(shown)
    parts += [Text(line) for line in footer(one)]
    return parts


def _headline(one: Status) -> Text:
    from rich.text import Text

    line = Text(one.service, style="bold")
    line.append(f"  {one.versions}", style="default")
    if one.serving_since is not None:
        line.append(f"  up {duration((one.at - one.serving_since).total_seconds())}", style="default")
    desired = UNKNOWN if one.desired is None else one.desired
    line.append(f"  {one.judgement} {one.ready}/{desired}", style=f"bold {COLORS[one.tone]}")
    if one.on_demand:
        line.append(f"  {one.on_demand} on-demand", style="default")
    line.append(f"  {usd(one.usd_per_hour, 2)} USD/h", style="default")
    if one.share_saved is not None:
        line.append(f", {percent(one.share_saved)} under on-demand", style="default")
    if one.address:
        line.append(f"  {one.address}", style="default")
    return line


def _cells(row: ReplicaRow) -> list[Text]:
    from rich.text import Text

    cells = replica_cells(row)
    return [Text(cell, style=STYLES.get(row.state, "") if at == 2 else "") for at, cell in enumerate(cells)]


def _age(one: Status) -> str:
    if one.image is None or one.image.made_at is None:
        return (
            " is gone: nothing can be launched from it. Take the newest with spotrelay update FILE --image,"
            " or name another in the file"
        )
    return f", {duration((one.at - one.image.made_at).total_seconds())} old"


def footer(one: Status) -> list[str]:
    """The lines below the replicas."""
    lost = f"24 h: {one.lost} lost"
    if one.lost_unwarned:
        lost += f" ({one.lost_unwarned} without a warning)"
    if one.slowest_whole_s is not None:
        lost += f", slowest whole again {duration(one.slowest_whole_s)}"
    failed = (
        f"; {one.failed_before} more failed: spotrelay history {one.service}" if one.failed_before else ""
    )
    dry = few(one.cooling, 3)
    pools = f" of {one.pools}" if one.pools is not None else ""
    lines = [
        f"{lost}{failed}.",
        f"Cooling{pools} pools: {dry or 'none'}.",
        f"Alarms: {one.ringing}.",
    ]
    if one.asked:
        lines.append(f"Wanted: {one.asked}.")
    if one.image:
        lines.append(f"Image: {one.image.id}{_age(one)}.")
    if one.load_unknown:
        lines.append(f"Load: {one.load_unknown}")
    return [*lines, *(f"Not read: {words}" for words in one.not_read)]
