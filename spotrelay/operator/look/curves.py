"""Spot prices of a service's pools over time, and beside them what on-demand costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spotrelay.plane.core.pools import CapacityPool

Changes = Mapping[CapacityPool, Sequence[tuple[datetime, float]]]
"""When each pool's Spot price changed, and to what: USD per hour."""

ROOM = 0.1
"""Of the prices' span, above and below them: a line on the frame itself can't be seen."""

BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Curve:
    """One pool's Spot price, between two times. The changes include the price that it began with."""

    pool: CapacityPool
    changes: tuple[tuple[datetime, float], ...]
    on_demand_usd: float | None

    @property
    def now(self) -> float:
        """The last price."""
        return self.changes[-1][1]

    @property
    def least(self) -> float:
        """The lowest price."""
        return min(price for _, price in self.changes)

    @property
    def most(self) -> float:
        """The highest price."""
        return max(price for _, price in self.changes)

    @property
    def share(self) -> float | None:
        """Of the on-demand price, now; None if that isn't known."""
        return self.now / self.on_demand_usd if self.on_demand_usd else None

    def at(self, when: datetime) -> float:
        """The price at that time; before the first change that is known, the first."""
        return price_at(self.changes, when)

    def sampled(self, start: datetime, end: datetime, count: int) -> list[float]:
        """So many prices at equal distances, the last one at the end."""
        step = (end - start) / max(count - 1, 1)
        return [self.at(start + step * index) for index in range(count)]

    def to_json(self) -> dict[str, Any]:
        """It as JSON: USD per hour."""
        return {
            "zone": self.pool.zone,
            "instance_type": self.pool.instance_type,
            "now": self.now,
            "least": self.least,
            "most": self.most,
            "on_demand": self.on_demand_usd,
            "changes": [[at.isoformat(), price] for at, price in self.changes],
        }


def price_at(changes: Sequence[tuple[datetime, float]], when: datetime) -> float:
    """The price at that time of one whose changes are in order; before the first of them, the first."""
    before = [price for at, price in changes if at <= when]
    return before[-1] if before else changes[0][1]


def curves(
    changes: Changes, pools: Sequence[CapacityPool], on_demand: Mapping[str, float], start: datetime
) -> list[Curve]:
    """A curve for each of the pools that has a price, the cheapest now first.

    EC2 tells the price that stood at the start with the time at which it came: it counts from the start.
    """
    found = []
    for pool in pools:
        ordered = sorted(changes.get(pool, ()))
        if ordered:
            from_start = tuple((max(at, start), price) for at, price in ordered)
            found.append(Curve(pool, from_start, on_demand.get(pool.instance_type)))
    return sorted(found, key=lambda curve: (curve.now, str(curve.pool)))


def bounds(curves: Sequence[Curve]) -> tuple[float, float]:
    """Between which prices a chart of them is drawn: their own, with a tenth of room above and below.

    What never changes is drawn in the middle.
    """
    least, most = min(curve.least for curve in curves), max(curve.most for curve in curves)
    room = (most - least or most) * ROOM
    return least - room, most + room


def spread(wanted: Sequence[float], least: float, most: float, apart: float) -> list[float]:
    """Where labels go that want to be at these rising places: between the bounds, and so far apart."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + apart if placed else least))
    ceiling = most
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - apart
    return placed


def sparkline(values: Sequence[float], least: float, most: float) -> str:
    """The values as a line of blocks between the two."""
    height = (most - least) or 1.0
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((min(max(value, least), most) - least) / height * top)] for value in values)
