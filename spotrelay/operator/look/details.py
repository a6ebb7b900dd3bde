"""What takes more than a look at a service's rows: its cost, prices and scores, and what its clients felt."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial

from spotrelay.operator.look.access import ControlPlane
from spotrelay.operator.look.cost import Cost, beginning, cost
from spotrelay.operator.look.curves import Curve, curves
from spotrelay.operator.look.scores import ZoneScores, scores_of
from spotrelay.plane.accounting.days import ROWS_KEPT, Day, bounds, list_prices, of
from spotrelay.plane.accounting.spending import Changes, Spending, spent_on
from spotrelay.plane.aws.prices import Prices
from spotrelay.plane.core.names import target_group_name
from spotrelay.plane.view.snapshot import ServiceSnapshot

ENDED = 10_000
"""Ended replicas that are read for a history or a cost: three hundred losses a day."""


def cost_of(plane: ControlPlane, seen: ServiceSnapshot, count: int) -> Cost | None:
    """What a service cost in so many days, today included; None if nothing is known of it.

    `seen` has its last `ENDED` replicas.

    Raises:
        PortError: AWS doesn't tell.
    """
    now = seen.at
    first = now.date() - timedelta(days=count - 1)
    kept = {day.date: day for day in plane.days.since(seen.service, first)}
    if seen.spec is None and not seen.replicas and not kept:
        return None
    begun = min((min(r.entered.values()) for r in seen.replicas.values()), default=now)
    wanted = [first + timedelta(days=index) for index in range(count)]
    recent = [day for day in wanted if bounds(day)[0] >= now - ROWS_KEPT]
    told = {**kept, **_worked_out(plane, seen, recent)}
    # A service that is younger than the time that is looked back has nothing to miss.
    since = min([*kept, begun.date()])
    return cost(
        seen.service,
        beginning(first, begun, since),
        now,
        [told[day] for day in wanted if day in told and day >= since],
        missing=[day.isoformat() for day in wanted if day not in told and day >= since],
        has_balancer=seen.spec is not None and _is_own(seen.spec.target_group_arn, seen.service),
    )


def spent_on_replica(plane: ControlPlane, seen: ServiceSnapshot, replica_id: int) -> Spending | None:
    """What a replica cost until now; None if it never had an instance, or nothing is known of it.

    Raises:
        PortError: AWS doesn't tell.
    """
    replica = seen.replicas.get(replica_id)
    if replica is None or replica.offering is None or not replica.instance_id:
        return None
    types = {replica.offering.pool.instance_type}
    spot, on_demand = _prices(plane, seen, types, min(replica.entered.values()))
    disk = seen.spec.disk_usd_per_hour if seen.spec else 0.0
    return spent_on(replica, seen.replicas.values(), spot, on_demand, seen.at, disk)


def curves_of(plane: ControlPlane, seen: ServiceSnapshot, start: datetime) -> list[Curve]:
    """The Spot price of each pool that the service may use, since then, the cheapest first.

    Raises:
        PortError: AWS doesn't tell.
    """
    survey, spec = seen.memory.survey, seen.spec
    pools = survey.pools if survey else spec.pools if spec else ()
    types = {pool.instance_type for pool in pools}
    if not types:
        return []
    changes = Prices(plane.clients).spot_since(plane.region, types, start)
    return curves(changes, pools, survey.on_demand_prices if survey else {}, start)


def zone_scores_of(plane: ControlPlane, seen: ServiceSnapshot, since: datetime) -> list[ZoneScores]:
    """Each zone's placement scores since then, the best first.

    Raises:
        PortError: AWS doesn't tell.
    """
    return scores_of(seen, plane.days.since(seen.service, since.date()), since)


def errors_of(plane: ControlPlane, seen: ServiceSnapshot, since: datetime) -> Mapping[datetime, int] | None:
    """Answers of 5xx by minute; None: nobody counts them.

    Raises:
        PortError: AWS doesn't tell.
    """
    return plane.requests.failed_by_minute(seen.spec, since, seen.at) if seen.spec else None


def _is_own(target_group_arn: str, service: str) -> bool:
    """Whether the service's stack made it, and so the load balancer: its name is the service's then."""
    return f"/{target_group_name(service)}/" in target_group_arn


def _worked_out(plane: ControlPlane, seen: ServiceSnapshot, days: Sequence[date]) -> dict[date, Day]:
    types = {r.offering.pool.instance_type for r in seen.replicas.values() if r.offering}
    if not days or not types:
        return {}
    spot, on_demand = _prices(plane, seen, types, bounds(days[0])[0])
    disk = seen.spec.disk_usd_per_hour if seen.spec else 0.0
    rows = seen.replicas.values()
    return {day: of(seen.service, day, rows, seen.memory, spot, on_demand, seen.at, disk) for day in days}


def _prices(
    plane: ControlPlane, seen: ServiceSnapshot, types: Collection[str], start: datetime
) -> tuple[Changes, Mapping[str, float]]:
    """Spot's since then by pool, and on-demand's by instance type."""
    prices = Prices(plane.clients)
    changes = prices.spot_since(plane.region, types, start)
    on_demand = list_prices(seen.memory.survey, types, partial(prices.on_demand, plane.region))
    return {pool: sorted(of_pool) for pool, of_pool in changes.items()}, on_demand
