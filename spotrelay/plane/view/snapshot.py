"""All that is known of a service at a time, as a value: what every command, page and widget is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain

from spotrelay.plane.core.pools import OPTIONS, CapacityPool, Cooldown, Offering, PoolMemory
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Desired, Rows, as_desired, derive
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec


class Part(StrEnum):
    """What a snapshot is made of. Each may be missing without the others."""

    DOCUMENT = "document"
    ROWS = "replicas"
    HISTORY = "history"
    POOLS = "pools and prices"
    ALARMS = "alarms"


class AlarmState(StrEnum):
    """CloudWatch's."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm of the service's stack."""

    name: str
    state: AlarmState
    since: datetime
    description: str = ""


@dataclass(frozen=True, slots=True)
class Minute:
    """What a service's clients met in one minute, or in a longer period, as its load balancer counts."""

    at: datetime
    """Its beginning."""
    requests: int
    failed: int
    """By replicas and by the load balancer itself."""
    p50_s: float | None = None
    """Half of the answers began within this time; None: there were none."""
    p99_s: float | None = None
    ongoing: float | None = None
    """Requests that replicas had by their own account; None: nobody asks them, or none told."""
    failed_by_balancer: int = 0
    """Of those that failed, what the load balancer answered itself: for all of its services together."""


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """A service at one moment. A part that couldn't be read is empty, and `missing` says why."""

    service: str
    region: str
    at: datetime
    spec: ServiceSpec | None = None
    """As it is deployed; what counts now is `desired`."""
    rows: Rows = field(default_factory=Rows)
    history: tuple[Replica, ...] = ()
    """Replicas that ended, newest ID first: those of 30 days at most."""
    memory: PoolMemory = field(default_factory=PoolMemory)
    alarms: tuple[Alarm, ...] = ()
    missing: Mapping[Part, str] = field(default_factory=dict)
    """What couldn't be read, and why."""

    @property
    def address(self) -> str | None:
        """Where its clients reach it; None: nobody knows."""
        return (self.spec and self.spec.address) or None

    @property
    def replicas(self) -> Mapping[int, Replica]:
        """All that there are and were, by ID. One that has just ended may be in both: its last row counts."""
        found = {r.id: r for r in chain(self.rows.replicas.values(), self.history)}
        return dict(sorted(found.items()))

    @property
    def present(self) -> tuple[Replica, ...]:
        """Those that aren't history, lowest ID first."""
        return tuple(r for r in self.replicas.values() if not r.state.is_ended)

    @property
    def in_rotation(self) -> tuple[Replica, ...]:
        """Those that get requests and answer them. One that EC2 takes back may serve on."""
        return tuple(r for r in self.present if r.serves)

    @property
    def desired(self) -> Desired | None:
        """How many there should be, and who says so; None without a document."""
        return derive(self.spec, self.rows.requests, self.at) if self.spec else None

    @property
    def wanted(self) -> int | None:
        """How many should be in rotation, those beyond the number included that a file has for safety; None
        without a document. The metrics, the alarms and the events go by it, too."""
        return as_desired(self.spec, self.rows.requests, self.at).replicas if self.spec else None

    @property
    def prices(self) -> Mapping[Offering, float]:
        """USD per hour of an instance, as last surveyed."""
        return self.memory.prices

    def usd_per_hour(self, replica: Replica) -> float | None:
        """What the replica's share of its instance costs now; None if nobody knows.

        A standby's instance is stopped, and costs nothing but its disk.
        """
        if replica.offering is None or not _is_paid(replica):
            return 0.0
        return _shared(self.memory.price(replica.offering), replica)

    def on_demand_usd_per_hour(self, replica: Replica) -> float | None:
        """The same at the on-demand price."""
        if replica.offering is None or not _is_paid(replica):
            return 0.0
        return _shared(self.memory.price(replica.offering.on_demand), replica)

    @property
    def paid_for(self) -> list[Offering]:
        """Of each instance that costs by the hour now, once: what it was bought as."""
        there = {
            host(r.instance_id): r.offering
            for r in self.present
            if r.instance_id and r.offering and _is_paid(r)
        }
        return list(there.values())

    @property
    def cooling(self) -> tuple[tuple[CapacityPool, Cooldown], ...]:
        """The pools that are left alone now, of what EC2 may take back, each with its longest cooldown."""
        pools = self.memory.survey.pools if self.memory.survey else self.spec.pools if self.spec else ()
        options = [option for option in OPTIONS.values() if option.is_interruptible]
        found: dict[CapacityPool, Cooldown] = {}
        for offering in (Offering(pool, option) for pool in pools for option in options):
            cooldown, so_far = self.memory.cooling(offering, self.at), found.get(offering.pool)
            if cooldown and (so_far is None or so_far.until < cooldown.until):
                found[offering.pool] = cooldown
        return tuple(found.items())

    @property
    def scores(self) -> Mapping[str, int]:
        """How likely Spot is to be had, by zone: 1 to 10."""
        return self.memory.survey.scores if self.memory.survey else {}

    @property
    def serving_since(self) -> datetime | None:
        """Since when somebody has been in rotation without a pause, as far as the history goes back."""
        since: datetime | None = None
        until: datetime | None = None
        for begin, end in sorted(self._spans()):
            if until is None or begin > until:
                since = begin
            until = max(until or end, end)
        return since if until is not None and until >= self.at else None

    def _spans(self) -> list[tuple[datetime, datetime]]:
        return [
            (at, r.left_at or self.at)
            for r in self.replicas.values()
            if (at := r.entered.get(ReplicaState.READY))
        ]

    def within(self, period: timedelta) -> datetime:
        """The beginning of the period that ends now."""
        return self.at - period


def _is_paid(replica: Replica) -> bool:
    """Whether its instance runs: a standby's is stopped, and what was found gone is gone."""
    stands_by = replica.stands_by and ReplicaState.STANDBY in replica.entered
    return not (stands_by or (replica.gone_at is not None and not replica.is_warned))


def _shared(usd: float | None, replica: Replica) -> float | None:
    return None if usd is None else usd / max(replica.slots, 1)
