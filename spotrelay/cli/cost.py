"""`spotrelay cost`: what was paid, what the same hours would have cost on-demand, and what was saved."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operate.words import percent, usd

if TYPE_CHECKING:
    from spotrelay.accounting.days import Day
    from spotrelay.operate.access import ControlPlane
    from spotrelay.operate.cost import Cost
    from spotrelay.operate.snapshot import ServiceSnapshot

LONGEST_DAYS = 400
"""Days are kept for so long."""

ROWS_KEPT = timedelta(days=29)
"""Rows are kept for 30 days: what is younger is worked out anew, and to the second."""


def cost(
    name: ServiceName,
    days: Annotated[
        int, typer.Option("--days", help="How many days to look back, today included.", min=1)
    ] = 7,
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show what a service's instances, disks and load balancer cost, and what on-demand would have cost.

    Days are UTC's. The last month is worked out from the replicas and EC2's price history; what is older was
    written down each day.
    """
    from spotrelay.cli import control_plane

    with control_plane.errors_shown("cost"):
        if days > LONGEST_DAYS:
            raise control_plane.CommandError(f"--days: expected {LONGEST_DAYS} at most, got {days}")
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        found = _cost(plane, name, days)
        if is_json:
            typer.echo(json.dumps(found.to_json(), indent=2))
        else:
            _print(found, days)


def _cost(plane: ControlPlane, name: str, count: int) -> Cost:
    from spotrelay.accounting.days import bounds
    from spotrelay.cli import control_plane
    from spotrelay.cli.history import ENDED
    from spotrelay.operate.cost import cost as summed
    from spotrelay.operate.reading import SnapshotReader

    now = datetime.now(UTC)
    seen = SnapshotReader(plane).rows(name, now, ended=ENDED)
    first = now.date() - timedelta(days=count - 1)
    kept = {day.date: day for day in plane.days.since(name, first)}
    if seen.spec is None and not seen.replicas and not kept:
        raise control_plane.CommandError(control_plane.not_deployed(plane, name))
    begun = min((min(r.entered.values()) for r in seen.replicas.values()), default=now)
    wanted = [first + timedelta(days=index) for index in range(count)]
    recent = [day for day in wanted if bounds(day)[0] >= now - ROWS_KEPT]
    told = {**kept, **_worked_out(plane, seen, recent)}
    # A service that is younger than the time that is looked back has nothing to miss.
    since = min([*kept, begun.date()])
    missing = [day.isoformat() for day in wanted if day not in told and day >= since]
    start = max(bounds(first)[0], min(begun, bounds(since)[0] if kept else begun))
    return summed(
        name,
        start,
        now,
        [told[day] for day in wanted if day in told and day >= since],
        missing=missing,
        has_balancer=seen.spec is not None and _is_own(seen.spec.target_group_arn, name),
    )


def _is_own(target_group_arn: str, service: str) -> bool:
    """Whether the service's stack made it, and so the load balancer: its name is the service's then."""
    from spotrelay.core.names import target_group_name

    return f"/{target_group_name(service)}/" in target_group_arn


def _worked_out(plane: ControlPlane, seen: ServiceSnapshot, days: list[date]) -> dict[date, Day]:
    from spotrelay.accounting.days import bounds, of
    from spotrelay.aws.prices import Prices

    types = {r.offering.pool.instance_type for r in seen.replicas.values() if r.offering}
    if not days or not types:
        return {}
    changes = Prices(plane.clients).spot_since(plane.region, types, bounds(days[0])[0])
    spot = {pool: sorted(of_pool) for pool, of_pool in changes.items()}
    disk = seen.spec.disk_usd_per_hour if seen.spec else 0.0
    rows = seen.replicas.values()
    return {day: of(seen.service, day, rows, seen.memory, spot, seen.at, disk) for day in days}


def _print(found: Cost, days: int) -> None:
    from rich.table import Table

    from spotrelay.cli.tables import console

    out, spent = console(), found.spent
    saved = percent(found.share_saved)
    out.print(
        f"{found.service}: ${found.total_usd:,.2f} in {days} day{'s' if days > 1 else ''}"
        f" (Spot {spent.spot_usd:,.2f}, on-demand {spent.on_demand_usd:,.2f}, disks {spent.disk_usd:,.2f},"
        f" load balancer {found.balancer_usd:,.2f}, SpotRelay {found.control_plane_usd:,.2f});"
        f" the same instances on demand ${spent.listed_usd:,.2f}; saved {saved}",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    titles = ("DAY", "SPOT H", "ON-DEMAND H", "SPOT", "ON-DEMAND", "DISKS", "IF ON-DEMAND", "SAVED")
    for title in titles:
        table.add_column(title, no_wrap=True, justify="left" if title == "DAY" else "right")
    for day in found.days:
        one = day.spent
        table.add_row(
            day.date,
            f"{one.spot_hours:,.1f}",
            f"{one.on_demand_hours:,.1f}",
            usd(one.spot_usd, 2),
            usd(one.on_demand_usd, 2),
            usd(one.disk_usd, 2),
            usd(one.listed_usd, 2),
            usd(one.saved_usd, 2),
        )
    out.print(table)
    out.print(f"An estimate, in USD: {found.of}.", highlight=False, soft_wrap=True)
