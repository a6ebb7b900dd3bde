"""`spotrelay history`: what was lost, what replaced it, and what clients felt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.messages import few
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.cells import loss_cells
from spotrelay.plane.view.words import clock

if TYPE_CHECKING:
    from spotrelay.operator.look.history import History
    from spotrelay.plane.view.losses import Loss

TITLES = ("AT", "LOST", "FROM", "AS", "", "BY", "OUT", "LAUNCHED", "READY", "WHOLE", "5XX")

KEPT = timedelta(days=30)
"""For how long the table keeps replicas that ended."""


def history(
    name: ServiceName,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back: 90m, 24h or 7d.", metavar="TIME")
    ] = "7d",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show each loss with its times and what replaced it, and the starts that failed.

    OUT, LAUNCHED, READY and WHOLE count from EC2's warning, or from when a loss without one was noticed. 5XX
    are the errors that clients got from then until the fleet was whole. Times are UTC.

    Example: spotrelay history demo --since 24h
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.times import period
    from spotrelay.operator.look.details import ENDED, errors_of
    from spotrelay.operator.look.history import history as told

    with control_plane.errors_shown("history"):
        look_back = period(since, "--since", KEPT)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        now = datetime.now(UTC)
        seen = control_plane.seen(plane, name, now, ended=ENDED)
        with control_plane.errors_told("history") as failed:
            errors = errors_of(plane, seen, now - look_back)
        found = told(seen, now - look_back, None if failed else errors)
        if is_json:
            echo_json(found.to_json())
        else:
            _print(found, since)
        if failed:
            raise typer.Exit(failed[0].exit_code)


def _print(found: History, since: str) -> None:
    from spotrelay.operator.cli.tables import console, draw, table

    out = console()
    if not found.losses:
        draw(out, f"{found.service}: nothing was lost in the last {since}")
    else:
        shown = table(TITLES, left=("AT", "FROM", "AS", "", "BY"), names=2)
        for loss in found.losses:
            shown.add_row(*_cells(loss, found))
        draw(out, shown)
    for failure in found.failures:
        ids = few(failure.replicas, 5)
        at = clock(failure.last, found.at)
        draw(out, f"{at}  failed to start: {ids} (version {failure.version}): {failure.reason}")


def _cells(loss: Loss, found: History) -> list[str]:
    felt = found.felt(loss)
    return [
        clock(loss.at, found.at),
        str(loss.replica),
        str(loss.pool or ""),
        str(loss.offering.purchase_option) if loss.offering else "",
        *loss_cells(loss),
        "?" if felt is None else str(felt),
    ]
