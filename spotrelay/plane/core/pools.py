"""Where capacity comes from, and what was learned about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from spotrelay.plane.core.names import Metric

if TYPE_CHECKING:  # of surveys alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.mending import Finding
    from spotrelay.plane.core.requirements import Requirements


class PriceKind(StrEnum):
    """What an hour of an instance costs."""

    MARKET = "market"
    """The Spot price: each pool's own, which changes with what is free there."""
    LIST = "list"
    """One price for an instance type in a region."""


class QuotaKind(StrEnum):
    """Which of EC2's vCPU quotas count instances, as EC2 names them; see `core.quotas`."""

    SPOT_REQUESTS = "Spot Instance Requests"
    RUNNING_ON_DEMAND = "Running On-Demand instances"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PurchaseOption:
    """How an instance is paid for, and all that follows from it: others ask what it may do, not which it is.

    There is one value of each, in `OPTIONS`. A new one is a value there: rows, JSON, placement, accounts and
    what is shown take it from there.
    """

    SPOT: ClassVar[PurchaseOption]
    ON_DEMAND: ClassVar[PurchaseOption]

    name: str
    """In rows, in JSON, in logs, and in CreateFleet's `DefaultTargetCapacityType`."""
    label: str
    """In a sentence."""
    is_interruptible: bool
    """Whether EC2 may take its instances back: it warns of that, and a loss says something about the pool."""
    has_spot_requests: bool
    """Whether each of its instances has a Spot request: that tells whether EC2 is taking it back, and drills
    interrupt no others."""
    can_be_stopped: bool
    """Whether its instances may be stopped and started again, as standbys are."""
    fallback: PurchaseOption | None
    """What stands in while it isn't to be had, and what the base is bought as; None: nothing is surer."""
    is_scored: bool
    """Whether EC2's placement scores are about it."""
    price_kind: PriceKind
    quota_kind: QuotaKind
    metric: Metric
    """Counts the replicas that serve on it; what a status counts as on demand goes by it, too."""
    uses_reservations: bool
    """Whether capacity reservations are used first. A launch template may target some of them, so these
    launches have one of their own."""
    lifecycle: str | None
    """`InstanceLifecycle` of its instances in DescribeInstances; None: they have none."""
    fleet_options: str
    """Its part of a CreateFleet request."""
    strategy: str
    """`AllocationStrategy` in there, where all instance types are as good."""
    ordered_strategy: str
    """The same where the service prefers some to others."""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<PurchaseOption {self.name}>"

    def __lt__(self, other: PurchaseOption) -> bool:
        return self.name < other.name

    def __reduce__(self) -> tuple[Callable[[str], PurchaseOption], tuple[str]]:
        # A copy is the value itself: there is one of each.
        return option_named, (self.name,)


PurchaseOption.ON_DEMAND = PurchaseOption(
    name="on-demand",
    label="on-demand",
    is_interruptible=False,
    has_spot_requests=False,
    can_be_stopped=True,
    fallback=None,
    is_scored=False,
    price_kind=PriceKind.LIST,
    quota_kind=QuotaKind.RUNNING_ON_DEMAND,
    metric=Metric.REPLICAS_ON_DEMAND,
    uses_reservations=True,
    lifecycle=None,
    fleet_options="OnDemandOptions",
    strategy="lowest-price",
    ordered_strategy="prioritized",
)
PurchaseOption.SPOT = PurchaseOption(
    name="spot",
    label="Spot",
    is_interruptible=True,
    has_spot_requests=True,
    # EC2 starts no instance of a one-time request again, and those of instant fleets are.
    can_be_stopped=False,
    fallback=PurchaseOption.ON_DEMAND,
    is_scored=True,
    price_kind=PriceKind.MARKET,
    quota_kind=QuotaKind.SPOT_REQUESTS,
    metric=Metric.REPLICAS_SPOT,
    uses_reservations=False,
    lifecycle="spot",
    fleet_options="SpotOptions",
    # The pools least likely to be interrupted, and the cheapest of those. It knows no priorities: the one
    # strategy that does puts them after capacity and forgets the price.
    strategy="price-capacity-optimized",
    ordered_strategy="capacity-optimized-prioritized",
)

OPTIONS = {option.name: option for option in (PurchaseOption.SPOT, PurchaseOption.ON_DEMAND)}
"""By name. How a service's replicas are bought is `ServiceSettings.purchase_option`."""


def option_named(name: str) -> PurchaseOption:
    """The option of this name. Raises `ValueError`: there is none."""
    if name not in OPTIONS:
        raise ValueError(f"{name!r} is no purchase option")
    return OPTIONS[name]


@dataclass(frozen=True, slots=True, order=True)
class CapacityPool:
    """One instance type in one zone: what EC2 takes back, and runs out of, as a whole."""

    region: str
    zone: str
    instance_type: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.instance_type}"


@dataclass(frozen=True, slots=True, order=True)
class Offering:
    """A capacity pool bought one way."""

    pool: CapacityPool
    purchase_option: PurchaseOption

    @property
    def on_demand(self) -> Offering:
        """The same pool, bought on demand."""
        return Offering(self.pool, PurchaseOption.ON_DEMAND)

    def __str__(self) -> str:
        return f"{self.pool}/{self.purchase_option}"


class Cause(StrEnum):
    """Why a pool, zone or quota cools; each cause has its own length, see `placement.cooldowns`."""

    LOSS = "loss"
    """EC2 took an instance back."""
    FAILURE = "failure"
    """An instance never became ready."""
    REBALANCE = "rebalance"
    """EC2 recommended to leave an instance."""
    REFUSAL = "refusal"
    """EC2 had no capacity, or not at our price."""
    UNSUPPORTED = "unsupported"
    """EC2 doesn't offer it there."""
    LIMIT = "limit"
    """A quota or an address range of the account is used up."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a cooldown is about: all offerings that agree with every part that is set."""

    region: str
    zone: str = ""
    instance_type: str = ""
    quota: str = ""
    """The letter of the families that share a vCPU quota: `g` for G and VT."""
    purchase_option: PurchaseOption | None = None

    @classmethod
    def of(cls, offering: Offering) -> Scope:
        """One offering and nothing else."""
        pool = offering.pool
        return cls(pool.region, pool.zone, pool.instance_type, purchase_option=offering.purchase_option)

    def covers(self, offering: Offering) -> bool:
        """Whether the offering is among what it is about."""
        pool = offering.pool
        return (
            self.region == pool.region
            and self.zone in ("", pool.zone)
            and self.instance_type in ("", pool.instance_type)
            and self.quota in ("", quota_of(pool.instance_type))
            and self.purchase_option in (None, offering.purchase_option)
        )

    def __str__(self) -> str:
        quota = self.quota and f"quota {self.quota.upper()}"
        option = self.purchase_option.name if self.purchase_option else ""
        parts = (self.zone, self.instance_type, quota, option)
        return "/".join(part for part in parts if part) or self.region


STANDARD_FAMILIES = frozenset({"a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"})
"""Families that share one quota: `Standard (A, C, D, H, I, M, R, T, Z)`."""


def quota_of(instance_type: str) -> str:
    """The group of families that the type shares its vCPU quota with; there is one of each `QuotaKind`.

    EC2 names them: G and VT; P; Inf; Trn; DL; and the standard families, which have no accelerator.
    """
    letters = re.match(r"[a-z]*?(?=\d|$)", instance_type.partition(".")[0])
    family = letters.group() if letters else ""
    if family in STANDARD_FAMILIES:
        return "standard"
    return "g" if family in ("g", "gr", "vt") else family


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Something to leave alone for a while, and why."""

    scope: Scope
    cause: Cause
    since: datetime
    until: datetime
    reason: str
    strikes: int = 1
    """How often in a row: each time the cooldown is longer."""

    @property
    def remembered_until(self) -> datetime:
        """Until then another one counts as repeated: it is forgotten once the pool was quiet for as long."""
        return self.until + (self.until - self.since)


LEAST_TYPES = 3
"""With fewer types EC2's placement score is always low, says its user guide: it tells nothing."""

RECOMMENDED_TYPES = 10
"""AWS asks for at least ten types per Spot workload: with fewer, one dry pool is a large part of all."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Placement scores as one survey found them."""

    at: datetime
    scores: Mapping[str, int]
    """By zone."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a version's instances are launched from."""

    id: str
    """EC2's."""
    made_at: datetime | None
    """None: nothing can be launched from it. Its owner deregistered it, disabled it, or shares it no more."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What EC2 offers to a service, as last asked: discovery, prices and placement scores.

    What could not be found out is missing from its mapping.
    """

    service: str
    asked: Requirements
    """What it answers: it says nothing about a service that asks for something else by now."""
    at: datetime
    pools: tuple[CapacityPool, ...]
    """Every eligible type in every zone that offers it."""
    on_demand_prices: Mapping[str, float] = field(default_factory=dict)
    """By instance type, USD per hour."""
    spot_prices: Mapping[CapacityPool, float] = field(default_factory=dict)
    """USD per hour."""
    scores: Mapping[str, int] = field(default_factory=dict)
    """By zone: how likely EC2 thinks that a Spot request there succeeds, 1 (hardly) to 10."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """The same of other zones, where the service has no subnet, and of the regions that its file allows,
    its own among them. A region's score is about all of its zones together."""
    earlier: tuple[Reading, ...] = ()
    """What the surveys before it found, the newest first, as far back as scores must last to be acted on."""
    images: Mapping[int, Image] = field(default_factory=dict)
    """By version, of those that replicas have, and the one to go back to."""
    findings: tuple[Finding, ...] = ()
    """What a person must mend, as it found it."""
    accounted_at: datetime | None = None
    """The time up to which the service's days were written by then, which the same function does; of one that
    has none yet, when that was first looked at. None: a survey of before 2026-11-27, which doesn't say."""

    def lasting(self, zone: str, for_s: float) -> tuple[int, int] | None:
        """A zone's lowest and highest score for so long; None if any reading lacks it, or none is as old."""
        readings = (Reading(self.at, self.scores), *self.earlier)
        if self.at - readings[-1].at < timedelta(seconds=for_s):
            return None
        scores = [reading.scores.get(zone) for reading in readings]
        known = [score for score in scores if score is not None]
        return (min(known), max(known)) if len(known) == len(scores) else None


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """What is known about the pools when something is launched."""

    cooldowns: tuple[Cooldown, ...] = ()
    """Those that have ended, too, while they are remembered."""
    survey: Survey | None = None

    @property
    def prices(self) -> Mapping[Offering, float]:
        """USD per hour, as last asked."""
        if self.survey is None:
            return {}
        pools, of_type = self.survey.pools, self.survey.on_demand_prices
        found: dict[Offering, float] = {}
        for option in OPTIONS.values():
            match option.price_kind:
                case PriceKind.LIST:
                    its = {p: of_type[p.instance_type] for p in pools if p.instance_type in of_type}
                case PriceKind.MARKET:
                    its = dict(self.survey.spot_prices)
            found |= {Offering(pool, option): usd for pool, usd in its.items()}
        return found

    def price(self, offering: Offering) -> float | None:
        """USD per hour, as last asked; also of what is no eligible pool (any more). None: unknown."""
        if self.survey is None:
            return None
        match offering.purchase_option.price_kind:
            case PriceKind.LIST:
                return self.survey.on_demand_prices.get(offering.pool.instance_type)
            case PriceKind.MARKET:
                return self.survey.spot_prices.get(offering.pool)

    def cooling(self, offering: Offering, now: datetime) -> Cooldown | None:
        """The cooldown that lasts longest of those that cover the offering."""
        covering = (c for c in self.cooldowns if c.until > now and c.scope.covers(offering))
        return max(covering, key=lambda c: c.until, default=None)
