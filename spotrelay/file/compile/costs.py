"""What the instances of a service cost a month: on-demand, and as Spot usually does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from statistics import median

from spotrelay.file.model import Service
from spotrelay.file.values import eligibility
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.core.slots import fitting
from spotrelay.plane.core.timing import HOURS_OF_MONTH

LOOK_BACK = timedelta(days=7)
"""Spot prices drift slowly, so those of the last week say more of the next month than older ones do. A week
has every weekday once, and its changes fit into some pages of EC2's answer."""

Changes = Mapping[CapacityPool, Sequence[tuple[datetime, float]]]
"""When each pool's Spot price changed, and to what: USD per hour."""


@dataclass(frozen=True, slots=True)
class TypePrices:
    """What one instance costs an hour, in USD."""

    on_demand_usd: float | None
    """The list price; None: the list has none."""
    spot_usd: Mapping[str, float]
    """What Spot usually costs, by zone."""

    def shared_by(self, replicas: int) -> TypePrices:
        """What each of so many replicas costs that share an instance."""
        on_demand = None if self.on_demand_usd is None else self.on_demand_usd / replicas
        return TypePrices(on_demand, {zone: price / replicas for zone, price in self.spot_usd.items()})


@dataclass(frozen=True, slots=True)
class Month:
    """What all replicas cost a month, in USD; None where a price that it takes isn't known."""

    replicas: int
    on_demand_usd: float | None
    """If all of them are on-demand."""
    spot_usd: float | None
    """As the file buys them, where Spot gives all that it is asked for; None, too, if the file buys none."""
    spot_dearest_usd: float | None
    """The same if all Spot were in the dearest pool that the file allows."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a service's instances cost in a region, without disks, load balancer and traffic."""

    region: str
    at: str
    """When the prices were asked for, ISO 8601."""
    hours: int
    """Of a month."""
    days: int
    """How far Spot prices were looked back at."""
    pools: int
    """Those in which the service may run and that have a Spot price."""
    of: str
    """What the figures are of, for people."""
    months: tuple[Month, ...]
    """For the file's replicas; where their number follows the load, for the fewest and for the most."""
    instance_types: Mapping[str, TypePrices]
    """In the service's order, those that have a price in the region."""


def usual(changes: Iterable[tuple[datetime, float]], now: datetime) -> float:
    """The price below which a pool was for half of the time, from its first known change on.

    Raises:
        ValueError: there is no change.
    """
    known = sorted(changes)
    if not known:
        raise ValueError("no price is known")
    ends = [at for at, _ in known[1:]] + [now]
    start = now - LOOK_BACK
    # EC2 tells the price that stood at the start with the time at which it came, which is earlier.
    lasted = sorted(
        (price, max((end - max(at, start)).total_seconds(), 0.0))
        for (at, price), end in zip(known, ends, strict=True)
    )
    half, past = sum(seconds for _, seconds in lasted) / 2, 0.0
    for price, seconds in lasted:
        past += seconds
        if past >= half:
            return price
    return lasted[-1][0]  # floats, summed in another order


def costs(
    service: Service, region: str, on_demand: Mapping[str, float | None], spot: Changes, now: datetime
) -> Costs:
    """What the service, as it is deployed in the region, costs there.

    On-demand is bought of the cheapest type, Spot in the cheapest pool of each zone, which are the same of
    both; or of the first type, if the file prefers some. EC2 looks at a pool's capacity, too, which nobody
    can foretell, so Spot may cost more than that: at most what the dearest pool does.
    """
    usual_of = {pool: usual(spot[pool], now) for pool in _allowed(service, spot)}
    prices = {
        name: TypePrices(
            on_demand.get(name),
            {pool.zone: price for pool, price in usual_of.items() if pool.instance_type == name},
        )
        for name in service.instance_type_names
    }
    prices = {name: found for name, found in prices.items() if found.on_demand_usd or found.spot_usd}
    used = fitting(list(prices), service.slots, service.most_replicas)
    each = {name: prices[name].shared_by(service.hosted_by(name)) for name in used}
    listed = {name: p.on_demand_usd for name, p in each.items() if p.on_demand_usd is not None}
    # `min` takes the first of equals: with one price for all, the first type.
    chosen = min(listed, key=lambda name: 0.0 if service.ordered else listed[name], default="")
    within = _within_cap(service, each)
    by_zone = _by_zone(service, within)
    dearest = max((price for found in within.values() for price in found.values()), default=0.0)
    return Costs(
        region=region,
        at=now.isoformat(timespec="seconds"),
        hours=HOURS_OF_MONTH,
        days=LOOK_BACK.days,
        pools=len(usual_of),
        of=_of(service, chosen, next(iter(within), ""), sorted(by_zone)),
        months=tuple(
            _month(service, count, listed.get(chosen), median(by_zone.values()) if by_zone else None, dearest)
            for count in _counts(service)
        ),
        instance_types=prices,
    )


def _allowed(service: Service, spot: Changes) -> list[CapacityPool]:
    """The pools with a price in which an alternative of the file may run: each may name zones of its own."""
    if not service.use_spot:
        return []
    of_choice = [(one, {t.name for t in eligibility.find(one).types}) for one in service.requirements.choices]
    return [
        pool
        for pool in sorted(spot)
        if spot[pool] and any(pool.instance_type in n and one.allows_zone(pool.zone) for one, n in of_choice)
    ]


def _within_cap(service: Service, prices: Mapping[str, TypePrices]) -> dict[str, dict[str, float]]:
    """Type → zone → usual Spot price, where the file's cap allows it; types without any are left out."""
    found: dict[str, dict[str, float]] = {}
    share = service.max_price_share
    for name, of_type in prices.items():
        cap = inf if share is None or of_type.on_demand_usd is None else share * of_type.on_demand_usd
        allowed = {zone: price for zone, price in of_type.spot_usd.items() if price <= cap}
        if allowed:
            found[name] = allowed
    return found


def _by_zone(service: Service, within: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Zone → price of the cheapest type there; if the file prefers some types, of the first that there is."""
    cheapest: dict[str, float] = {}
    for found in within.values():
        for zone, price in found.items():
            cheapest[zone] = min(price, cheapest.get(zone, price))
        if service.ordered:
            break
    return cheapest


def _counts(service: Service) -> list[int]:
    """The numbers of replicas to tell the costs of: none costs nothing."""
    if service.scaling is None:
        return [service.replicas]
    bounds = service.scaling.extremes
    return sorted({max(bounds.least, 1), max(bounds.most, 1)})


def _month(
    service: Service, replicas: int, on_demand: float | None, spot: float | None, dearest: float
) -> Month:
    bought = min(service.base_on_demand, replicas)
    on_spot = replicas - bought + service.overprovision

    def mixed(price: float | None) -> float | None:
        if price is None or (bought and on_demand is None):
            return None
        return _monthly(bought * (on_demand or 0.0) + on_spot * price)

    return Month(
        replicas=replicas,
        on_demand_usd=None if on_demand is None else _monthly(replicas * on_demand),
        spot_usd=mixed(spot),
        spot_dearest_usd=None if spot is None else mixed(dearest),
    )


def _monthly(usd_per_hour: float) -> float:
    return round(usd_per_hour * HOURS_OF_MONTH, 2)


def _of(service: Service, listed: str, on_spot: str, zones: Sequence[str]) -> str:
    parts = []
    if listed:
        parts.append(f"on-demand {listed}, the {'preferred' if service.ordered else 'cheapest'} type")
    if zones:
        which = f"{on_spot}, the preferred type," if service.ordered else "the cheapest type"
        parts.append(
            f"Spot {which} in each zone, the median of {', '.join(zones)}, of each the median of"
            f" {LOOK_BACK.days} days"
        )
    if not parts:
        return "nothing: none of its types has a price there"
    return "; ".join([*parts, f"{HOURS_OF_MONTH} h a month; instances alone"])
