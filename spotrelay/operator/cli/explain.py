"""`spotrelay explain`: why a replica is where it is, and why it went."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.words import duration

if TYPE_CHECKING:
    from spotrelay.operator.look.explain import Explanation


def explain(
    name: ServiceName,
    replica: Annotated[
        int,
        typer.Argument(help="The replica's ID, as in `spotrelay status`.", metavar="ID", show_default=False),
    ],
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Say why a replica exists, which pools were asked for it and which were left out, and why it went.

    And what it cost: Spot at the price of each moment, its disk, and the same time on demand. Times are UTC.

    Example: spotrelay explain demo 17
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.look.details import ENDED, spent_on_replica
    from spotrelay.operator.look.explain import explain as explained

    with control_plane.errors_shown("explain"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        seen = control_plane.seen(plane, name, datetime.now(UTC), ended=ENDED)
        spent = None
        with control_plane.errors_told("explain") as failed:
            spent = spent_on_replica(plane, seen, replica)
        found = explained(seen, replica, spent)
        if found is None:
            known = (
                f"known are {min(seen.replicas)} to {max(seen.replicas)}" if seen.replicas else "it has none"
            )
            raise CommandError(f"{name} has no replica {replica}: {known}; rows are kept for 30 days")
        if is_json:
            echo_json(found.to_json())
        else:
            _print(found, seen.at)
        if failed:
            raise typer.Exit(failed[0].exit_code)


def _print(found: Explanation, now: datetime) -> None:
    from rich.text import Text

    from spotrelay.operator.cli.tables import console, draw, table

    out = console()
    draw(out, Text(found.headline, style="bold"))
    facts = table(("", ""), left=("",), wraps=("",))
    for about, words in found.lines:
        facts.add_row(f"  {about}", words)
    draw(out, facts)
    ends = [at for _, at in found.entered[1:]] + [now]
    for (state, at), end in zip(found.entered, ends, strict=True):
        lasted = f"for {duration((end - at).total_seconds())}"
        is_last = (state, at) == found.entered[-1]
        draw(out, f"  {at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"  {state}" + ("" if is_last else f" {lasted}"))
