"""What accounting needs of the world. Errors are those of `spotrelay.plane.core.ports`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Protocol

from spotrelay.plane.accounting.days import Day
from spotrelay.plane.core.pools import CapacityPool, PoolMemory
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows


class RowReader(Protocol):
    """The part of `core.ports.Store` that is read here."""

    def load(self, service: str) -> Rows:
        """Everything about the service that isn't history."""
        ...

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        """The replicas that ended, newest ID first. They expire after 30 days."""
        ...

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """The region's cooldowns that are still remembered, and the service's last survey."""
        ...


class Days(Protocol):
    """Where days are kept, longer than the rows that they were worked out from."""

    def note(self, day: Day) -> None:
        """Keep it, in place of what was kept of the same service and date."""
        ...

    def get(self, service: str, day: date) -> Day | None:
        """What is kept of the day; None if nothing is."""
        ...

    def since(self, service: str, first: date) -> Sequence[Day]:
        """All that is kept of that date and of later ones, in order."""
        ...


class InstancePrices(Protocol):
    """Whoever knows what instances cost."""

    def spot_since(
        self, region: str, types: Collection[str], start: datetime
    ) -> Mapping[CapacityPool, Sequence[tuple[datetime, float]]]:
        """Every change of the types' prices since then, and before it the last one of each pool."""
        ...

    def on_demand(self, region: str, instance_type: str) -> float | None:
        """The list price; None if there is none."""
        ...
