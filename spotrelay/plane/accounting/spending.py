"""What instances cost over a time, and what the same hours would have cost on-demand.

EC2 charges by the second from the launch on: Spot at the market price of the moment (DescribeSpotPriceHistory
tells it). It doesn't charge for a Spot instance that it interrupts within its first hour
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html). A stopped
instance costs its disk alone. Discounts, savings plans and taxes are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

from spotrelay.plane.core import slots
from spotrelay.plane.core.instances import RECLAIMED
from spotrelay.plane.core.pools import CapacityPool, Offering, PriceKind
from spotrelay.plane.core.replica import Replica, ReplicaState

HOUR = timedelta(hours=1)

FREE_IF_INTERRUPTED = HOUR
"""EC2 doesn't charge for a Spot instance that it interrupts within this time of its launch."""

Changes = Mapping[CapacityPool, Sequence[tuple[datetime, float]]]
"""When each pool's Spot price changed, and to what: USD per hour, in order. The first counts before, too."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What instances and their disks cost, in USD."""

    spot_usd: float = 0.0
    on_demand_usd: float = 0.0
    disk_usd: float = 0.0
    listed_usd: float = 0.0
    """What the same hours, Spot's and on-demand's, would have cost on-demand."""
    spot_hours: float = 0.0
    on_demand_hours: float = 0.0
    waived_usd: float = 0.0
    """Of Spot instances that EC2 took back within their first hour: not charged, and not in `spot_usd`."""
    unpriced_hours: float = 0.0
    """Hours of instances whose price isn't known: they cost something that is in none of the sums."""
    unlisted_usd: float = 0.0
    """Of `spot_usd`, what no on-demand price is known for: it is compared with nothing."""

    @property
    def instances_usd(self) -> float:
        """Without disks."""
        return self.spot_usd + self.on_demand_usd

    @property
    def total_usd(self) -> float:
        """With disks."""
        return self.instances_usd + self.disk_usd

    @property
    def saved_usd(self) -> float:
        """Against the same hours on-demand, where that price is known; disks cost the same."""
        return self.listed_usd - (self.instances_usd - self.unlisted_usd)

    def __add__(self, other: Spending) -> Spending:
        return Spending(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Life:
    """One instance: when it ran, and when it was there, stopped or not."""

    id: str
    offering: Offering
    ran: tuple[tuple[datetime, datetime], ...]
    existed: tuple[datetime, datetime]
    is_waived: bool
    """EC2 took it back within its first hour."""


def lives(replicas: Iterable[Replica], now: datetime) -> list[Life]:
    """The instances that the rows tell of; several replicas may share one, at once or one after the other."""
    by_host: dict[str, list[Replica]] = {}
    for replica in replicas:
        if replica.instance_id and replica.offering and ReplicaState.PROVISIONING in replica.entered:
            by_host.setdefault(slots.host(replica.instance_id), []).append(replica)
    return [_life(host, sharing, now) for host, sharing in by_host.items()]


def _life(host: str, sharing: Sequence[Replica], now: datetime) -> Life:
    offering = next(r.offering for r in sharing if r.offering)
    spans = tuple(_joined(_ran(r, now) for r in sharing))
    begin = min(begin for begin, _ in spans)
    end = max(_ended(r, now) for r in sharing)
    is_taken = offering.purchase_option.is_interruptible and any(map(_was_taken, sharing))
    return Life(host, offering, spans, (begin, end), is_taken and end - begin <= FREE_IF_INTERRUPTED)


def _was_taken(replica: Replica) -> bool:
    """Whether EC2 took its instance back: with a warning, or by what it said of the instance's end."""
    is_warned = replica.is_warned and replica.state is ReplicaState.TERMINATED
    return is_warned or (replica.state.is_ended and RECLAIMED in replica.reason)


def _ran(replica: Replica, now: datetime) -> tuple[datetime, datetime]:
    """From the launch, or the resume, until its instance stopped or was gone."""
    begin = replica.entered[ReplicaState.PROVISIONING]
    stopped = replica.entered.get(ReplicaState.STANDBY)
    if stopped is not None and stopped >= begin:
        return begin, stopped
    return begin, _ended(replica, now)


def _ended(replica: Replica, now: datetime) -> datetime:
    return replica.since if replica.state.is_ended else now


def _joined(spans: Iterable[tuple[datetime, datetime]]) -> Iterator[tuple[datetime, datetime]]:
    """The spans without overlaps, in order."""
    last: tuple[datetime, datetime] | None = None
    for begin, end in sorted(spans):
        if last is None:
            last = begin, end
        elif begin <= last[1]:
            last = last[0], max(last[1], end)
        else:
            yield last
            last = begin, end
    if last is not None:
        yield last


def spent(
    found: Iterable[Life],
    spot: Changes,
    on_demand: Mapping[str, float],
    start: datetime,
    end: datetime,
    disk_usd_per_hour: float = 0.0,
) -> Spending:
    """What the instances cost between two times. `on_demand`: by instance type, USD per hour."""
    total = Spending()
    for life in found:
        total += _cost(life, spot, on_demand, (start, end))
        total += Spending(disk_usd=disk_usd_per_hour * _hours(_within(life.existed, (start, end))))
    return total


def spent_on(
    replica: Replica,
    replicas: Iterable[Replica],
    spot: Changes,
    on_demand: Mapping[str, float],
    now: datetime,
    disk_usd_per_hour: float = 0.0,
) -> Spending | None:
    """What one replica cost until now: its hours, and its share of the USD if an instance hosts several.

    `replicas`: all rows, since those beside it tell when their instance was launched and whether EC2 charges
    for it. None: it never had an instance.
    """
    if not (replica.instance_id and (own := lives([replica], now))):
        return None
    host = slots.host(replica.instance_id)
    beside = (r for r in replicas if r.instance_id and slots.host(r.instance_id) == host)
    (instance,) = lives(beside, now)
    life = replace(own[0], is_waived=instance.is_waived)
    found = spent([life], spot, on_demand, life.existed[0], now, disk_usd_per_hour)
    names = (f.name for f in fields(found) if f.name.endswith("_usd"))
    return replace(found, **{name: getattr(found, name) / max(replica.slots, 1) for name in names})


def _cost(
    life: Life, spot: Changes, on_demand: Mapping[str, float], within: tuple[datetime, datetime]
) -> Spending:
    pool = life.offering.pool
    spans = [_within(span, within) for span in life.ran]
    hours = sum(_hours(span) for span in spans)
    listed = on_demand.get(pool.instance_type)
    is_market = life.offering.purchase_option.price_kind is PriceKind.MARKET
    changes = spot.get(pool)
    if (is_market and not changes) or (not is_market and listed is None):
        return Spending(unpriced_hours=hours)
    listed_usd = hours * (listed or 0.0)
    if not is_market:
        return Spending(on_demand_usd=listed_usd, listed_usd=listed_usd, on_demand_hours=hours)
    usd = sum(_integral(changes or (), span) for span in spans)
    if life.is_waived:
        return Spending(waived_usd=usd, listed_usd=listed_usd, spot_hours=hours)
    unlisted_usd = usd if listed is None else 0.0
    return Spending(spot_usd=usd, listed_usd=listed_usd, spot_hours=hours, unlisted_usd=unlisted_usd)


def _integral(changes: Sequence[tuple[datetime, float]], span: tuple[datetime, datetime]) -> float:
    """The price over the time: USD."""
    ends = [at for at, _ in changes[1:]] + [max(span[1], changes[-1][0])]
    begins = [min(span[0], changes[0][0])] + [at for at, _ in changes[1:]]
    return sum(
        price * _hours(_within((begin, end), span))
        for begin, end, (_, price) in zip(begins, ends, changes, strict=True)
    )


def _within(span: tuple[datetime, datetime], bounds: tuple[datetime, datetime]) -> tuple[datetime, datetime]:
    return max(span[0], bounds[0]), min(span[1], bounds[1])


def _hours(span: tuple[datetime, datetime]) -> float:
    return max((span[1] - span[0]) / HOUR, 0.0)
