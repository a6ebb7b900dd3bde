"""What a service cost, what the same hours would have cost on-demand, and what runs beside its instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from spotrelay.plane.accounting.days import Day, bounds
from spotrelay.plane.accounting.spending import HOUR, Spending
from spotrelay.plane.core.timing import HOURS_OF_MONTH

BALANCER_USD_PER_HOUR = 0.0225
"""An application load balancer in us-east-1, without capacity units
(https://aws.amazon.com/elasticloadbalancing/pricing/, 2026-11-22)."""

CONTROL_PLANE_USD_PER_HOUR = 5.9 / HOURS_OF_MONTH
"""SpotRelay itself with one service at rest: docs/cost.md counts it, item by item."""


@dataclass(frozen=True, slots=True)
class DayCost:
    """One day's, as the table has it."""

    date: str
    spent: Spending


@dataclass(frozen=True, slots=True)
class Cost:
    """What a service cost between two times. Instances and disks are worked out; the rest is a list price."""

    service: str
    start: datetime
    end: datetime
    spent: Spending
    balancer_usd: float
    """Zero where the load balancer isn't the service's own."""
    control_plane_usd: float
    """SpotRelay's, which all services share."""
    days: tuple[DayCost, ...]
    missing_days: tuple[str, ...]
    """Dates of which nothing was kept, from before it was written down or while nobody did."""

    @property
    def total_usd(self) -> float:
        """All of it."""
        return self.spent.total_usd + self.balancer_usd + self.control_plane_usd

    @property
    def share_saved(self) -> float | None:
        """Of what the same instances would have cost on-demand; None if there were none."""
        return self.spent.saved_usd / self.spent.listed_usd if self.spent.listed_usd else None

    @property
    def of(self) -> str:
        """What the figures are of, for people."""
        words = [
            "Spot at its historical price, on-demand and disks at list prices, by the second",
            "without traffic, the balancer's capacity units, public addresses, discounts and tax",
        ]
        if self.spent.waived_usd:
            words.append(
                f"{self.spent.waived_usd:.2f} USD of Spot that EC2 took back within an hour aren't charged"
            )
        if self.spent.unpriced_hours:
            words.append(
                f"{self.spent.unpriced_hours:.1f} instance hours have no known price and are left out"
            )
        if self.spent.unlisted_usd:
            words.append(
                f"{self.spent.unlisted_usd:.2f} USD of Spot have no known on-demand price to be compared with"
            )
        if self.missing_days:
            words.append(f"nothing was written down on {len(self.missing_days)} days")
        return "; ".join(words)

    def to_json(self) -> dict[str, Any]:
        """It as JSON: USD, rounded to six digits."""
        spent = self.spent
        return {
            "service": self.service,
            "start": self.start.isoformat(timespec="milliseconds"),
            "end": self.end.isoformat(timespec="milliseconds"),
            **spending_json(spent),
            "balancer_usd": round(self.balancer_usd, 4),
            "control_plane_usd": round(self.control_plane_usd, 4),
            "total_usd": round(self.total_usd, 4),
            "share_saved": None if self.share_saved is None else round(self.share_saved, 4),
            "days": [{"date": day.date, **spending_json(day.spent)} for day in self.days],
            "missing_days": list(self.missing_days),
            "of": self.of,
        }


def cost(
    service: str,
    start: datetime,
    end: datetime,
    days: Sequence[Day],
    *,
    missing: Sequence[str] = (),
    has_balancer: bool = True,
) -> Cost:
    """The sum of the days, each of which is told within the two times."""
    hours = max((end - start) / HOUR, 0.0)
    total = Spending()
    for day in days:
        total += day.spent
    return Cost(
        service,
        start,
        end,
        total,
        BALANCER_USD_PER_HOUR * hours if has_balancer else 0.0,
        CONTROL_PLANE_USD_PER_HOUR * hours,
        tuple(DayCost(day.date.isoformat(), day.spent) for day in days),
        tuple(missing),
    )


def beginning(first: date, begun: datetime, since: date) -> datetime:
    """When the time begins that is counted: with the `first` day, or with the service.

    `begun` is the earliest that its rows tell; those are gone after a month, so that its days may go back
    further, to `since`.
    """
    known = begun if begun.date() <= since else bounds(since)[0]
    return max(bounds(first)[0], known)


def spending_json(spent: Spending) -> dict[str, float]:
    """It as JSON has it: USD and hours, rounded."""
    names = ("spot_usd", "on_demand_usd", "disk_usd", "listed_usd", "saved_usd", "waived_usd", "unlisted_usd")
    found = {name: round(getattr(spent, name), 6) for name in names}
    hours = ("spot_hours", "on_demand_hours", "unpriced_hours")
    return found | {name: round(getattr(spent, name), 3) for name in hours}
