"""`spotrelay cost`: what was paid, what the same hours would have cost on-demand, and what was saved."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.view.words import percent, usd

if TYPE_CHECKING:
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.operator.look.cost import Cost

LONGEST_DAYS = 400
"""Days are kept for so long."""


def cost(
    name: ServiceName,
    days: Annotated[
        int, typer.Option("--days", help="How many days to look back, today included.", min=1, metavar="N")
    ] = 7,
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show what a service's instances, disks and load balancer cost, and what on-demand would have cost.

    Days are in UTC. The last month is calculated from the replicas and EC2's price history; older days are
    shown as they were recorded.

    Example: spotrelay cost demo --days 30
    """
    from spotrelay.operator.cli import control_plane

    with control_plane.errors_shown("cost"):
        if days > LONGEST_DAYS:
            raise CommandError(f"--days: expected {LONGEST_DAYS} at most, got {days}")
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        found = _cost(plane, name, days)
        if is_json:
            echo_json(found.to_json())
        else:
            _print(found, days)


def _cost(plane: ControlPlane, name: str, count: int) -> Cost:
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.look.details import ENDED, cost_of
    from spotrelay.plane.view.rows import rows

    found = cost_of(plane, rows(plane, name, datetime.now(UTC), ended=ENDED), count)
    if found is None:
        raise control_plane.not_deployed(plane, name)
    return found


def _print(found: Cost, days: int) -> None:
    from spotrelay.operator.cli.tables import console, draw, table

    out, spent = console(), found.spent
    saved = percent(found.share_saved)
    draw(
        out,
        f"{found.service}: ${found.total_usd:,.2f} in {days} day{'s' if days > 1 else ''}"
        f" (Spot {spent.spot_usd:,.2f}, on-demand {spent.on_demand_usd:,.2f}, disks {spent.disk_usd:,.2f},"
        f" load balancer {found.balancer_usd:,.2f}, SpotRelay {found.control_plane_usd:,.2f});"
        f" the same instances on demand ${spent.listed_usd:,.2f}; saved {saved}",
    )
    titles = ("DAY", "SPOT H", "ON-DEMAND H", "SPOT", "ON-DEMAND", "DISKS", "IF ON-DEMAND", "SAVED")
    days_table = table(titles, left=("DAY",))
    for day in found.days:
        one = day.spent
        days_table.add_row(
            day.date,
            f"{one.spot_hours:,.1f}",
            f"{one.on_demand_hours:,.1f}",
            usd(one.spot_usd, 2),
            usd(one.on_demand_usd, 2),
            usd(one.disk_usd, 2),
            usd(one.listed_usd, 2),
            usd(one.saved_usd, 2),
        )
    draw(out, days_table)
    draw(out, f"An estimate, in USD: {found.of}.")
