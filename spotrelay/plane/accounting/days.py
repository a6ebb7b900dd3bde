"""A service's day: what it spent, and what each of its pools gave it. Days are UTC's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from spotrelay.plane.accounting.spending import Changes, Spending, lives, spent
from spotrelay.plane.core.pools import CapacityPool, Cause, PoolMemory, PriceKind, Survey
from spotrelay.plane.core.ports import PortError
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.slots import host

DAY = timedelta(days=1)

CLOSED_AFTER = timedelta(hours=2)
"""So long after its end a day is still written anew: the last survey of a day misses its last minutes."""


ROWS_KEPT = timedelta(days=29)
"""Rows are kept for 30 days: what is younger can be worked out anew."""


@dataclass(frozen=True, slots=True)
class PoolDay:
    """What one pool cost and gave on a day."""

    usd_per_hour: float | None = None
    """The Spot price that it had last; None: EC2 told none."""
    launched: int = 0
    lost: int = 0
    """Instances of ours that EC2 took back, or that were gone."""
    refused: int = 0
    """Refusals in a row that its last cooldown was for."""
    hours: float = 0.0
    """That instances of ours ran there on Spot."""


@dataclass(frozen=True, slots=True)
class Day:
    """What a service did on a day."""

    service: str
    date: date
    until: datetime
    """The time up to which it is told: a day that isn't over goes on."""
    spent: Spending = field(default_factory=Spending)
    pools: Mapping[str, PoolDay] = field(default_factory=dict)
    """By pool, `zone/type`, those that the service may use on Spot."""
    scores: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By zone and hour: how likely Spot was to be had, 1 to 10."""

    def with_scores_of(self, before: Day | None) -> Day:
        """The same with what earlier surveys of the day found beside its own."""
        known = before.scores if before else {}
        zones = {*known, *self.scores}
        scores = {zone: {**known.get(zone, {}), **self.scores.get(zone, {})} for zone in sorted(zones)}
        return Day(self.service, self.date, self.until, self.spent, self.pools, scores)

    def to_dict(self) -> dict[str, Any]:
        """It as JSON has it."""
        return {
            "service": self.service,
            "date": self.date.isoformat(),
            "until": self.until.isoformat(),
            "spent": {name: round(value, 6) for name, value in asdict(self.spent).items()},
            "pools": {pool: _said(asdict(one)) for pool, one in self.pools.items()},
            "scores": {zone: {str(h): s for h, s in hours.items()} for zone, hours in self.scores.items()},
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Day:
        """What `to_dict` wrote; what a later version added is left out."""
        return cls(
            stored["service"],
            date.fromisoformat(stored["date"]),
            datetime.fromisoformat(stored["until"]),
            Spending(**_known(Spending, stored["spent"])),
            {pool: PoolDay(**_known(PoolDay, one)) for pool, one in stored["pools"].items()},
            {
                zone: {int(hour): int(score) for hour, score in hours.items()}
                for zone, hours in stored["scores"].items()
            },
        )


def open_days(now: datetime) -> list[date]:
    """The days to write now: today, and yesterday until it is closed."""
    return sorted({(now - CLOSED_AFTER).astimezone(UTC).date(), now.astimezone(UTC).date()})


def unfinished(kept: Callable[[date], Day | None], first: date, now: datetime) -> list[date]:
    """The days before the open ones that nobody wrote to their end, since the last one that somebody did.

    `first` is the earliest that is known of. Whoever writes them does so in order, the oldest first.
    """
    found: list[date] = []
    day = open_days(now)[0] - DAY
    while day >= first and bounds(day)[0] >= now - ROWS_KEPT:
        before = kept(day)
        if before is not None and before.until >= bounds(day)[1]:
            break
        found.append(day)
        day -= DAY
    return found[::-1]


def list_prices(
    survey: Survey | None, types: Iterable[str], ask: Callable[[str], float | None]
) -> Mapping[str, float]:
    """On-demand prices by instance type: those surveyed, and of what isn't eligible any more those asked for.

    What nobody tells is missing: its hours are told to have no price.
    """
    found = dict(survey.on_demand_prices) if survey else {}
    for name in sorted({*types} - found.keys()):
        try:
            price = ask(name)
        except PortError:
            continue
        if price is not None:
            found[name] = price
    return found


def bounds(day: date) -> tuple[datetime, datetime]:
    """Its beginning and its end."""
    begin = datetime.combine(day, time(), UTC)
    return begin, begin + DAY


def of(
    service: str,
    day: date,
    replicas: Iterable[Replica],
    memory: PoolMemory,
    spot: Changes,
    on_demand: Mapping[str, float],
    now: datetime,
    disk_usd_per_hour: float,
) -> Day:
    """The service's day, as far as it has come by now. `on_demand`: by instance type, USD per hour."""
    rows, survey = list(replicas), memory.survey
    begin, end = bounds(day)
    end = min(end, now)
    found = lives(rows, now)
    is_today = survey is not None and begin <= survey.at < end
    launched, lost = _launched(rows, begin, end), _lost(rows, begin, end)
    hours: dict[CapacityPool, float] = defaultdict(float)
    for life in found:
        if life.offering.purchase_option.price_kind is PriceKind.MARKET:
            one = spent([life], spot, on_demand, begin, end)
            hours[life.offering.pool] += one.spot_hours + one.unpriced_hours
    return Day(
        service,
        day,
        end,
        spent(found, spot, on_demand, begin, end, disk_usd_per_hour),
        {
            str(pool): PoolDay(
                next((price for at, price in reversed(spot.get(pool, ())) if at < end), None),
                launched[pool],
                lost[pool],
                _refused(memory, pool, begin, end),
                round(hours[pool], 4),
            )
            for pool in (survey.pools if survey else ())
        },
        {zone: {survey.at.astimezone(UTC).hour: score} for zone, score in survey.scores.items()}
        if survey and is_today
        else {},
    )


def _launched(rows: Iterable[Replica], begin: datetime, end: datetime) -> Counter[CapacityPool]:
    return _counted(rows, lambda r: r.entered.get(ReplicaState.PROVISIONING), begin, end)


def _lost(rows: Iterable[Replica], begin: datetime, end: datetime) -> Counter[CapacityPool]:
    return _counted(rows, lambda r: r.gone_at, begin, end)


def _counted(
    rows: Iterable[Replica], when: Callable[[Replica], datetime | None], begin: datetime, end: datetime
) -> Counter[CapacityPool]:
    """To how many instances of each pool that EC2 may take back it happened then, however many replicas share
    one."""
    first: dict[str, tuple[datetime, CapacityPool]] = {}
    for r in rows:
        at = when(r)
        if at and r.instance_id and r.offering and r.offering.purchase_option.is_interruptible:
            this = (at, r.offering.pool)
            first[host(r.instance_id)] = min(first.get(host(r.instance_id), this), this)
    return Counter(pool for at, pool in first.values() if begin <= at < end)


def _refused(memory: PoolMemory, pool: CapacityPool, begin: datetime, end: datetime) -> int:
    return max(
        (
            c.strikes
            for c in memory.cooldowns
            if c.cause is Cause.REFUSAL and begin <= c.since < end
            if c.scope.zone == pool.zone and c.scope.instance_type == pool.instance_type
        ),
        default=0,
    )


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _known(type_: type[Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(type_)}
    return {name: value for name, value in stored.items() if name in names}
