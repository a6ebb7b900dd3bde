"""What EC2 offers beside capacity: other pools, prices, scores and limits, and surveys of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from lab.sim.gate import at
from spotrelay.plane.core.instances import Refusal, RefusalKind
from spotrelay.plane.core.mending import Finding, FindingKind
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption, Scope, Survey, quota_of
from spotrelay.plane.core.ports import LaunchRequest
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.spec import ServiceSpec

ON_DEMAND_PRICES = {"g5.xlarge": 1.0, "g6.xlarge": 2.0, "p4d.24xlarge": 3.0}
"""USD per hour."""

OTHER_TYPE = "p4d.24xlarge"
"""A type that no service lists and that a survey may find; of another vCPU quota."""

OTHER_ZONE = "us-east-1c"
"""A zone where no service has a subnet."""

SHARES = (0.3, 0.4, 0.5, 0.6, 0.8)
"""Spot prices, as shares of the on-demand price."""

CAPS = (0.445, 0.545, 0.745)
"""Price caps, none so near a price that rounding matters."""

SCORES = (1, 3, 4, 9)
"""Placement scores: two low ones, the lowest that isn't low, a high one."""

FALLEN, RISEN = (1, 1, 1, 2, 2, 2, 2, 2, 2, 3), (9, 9, 9, 5, 5, 4)
"""Scores of zones that have fallen, and of the others; not all of them are low enough, or clearly better."""

LASTS_S = (5.0, 90.0)
"""How long a limit lasts: some attempts of a replica, and a cooldown."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What EC2 lists in a run; drawn before it begins."""

    is_surveyed: bool = False
    """Whether there are surveys while faults last."""
    extra: tuple[CapacityPool, ...] = ()
    """Pools that no service's stack lists."""
    cap: float | None = None
    """The services' `max_price_share`."""

    @classmethod
    def draw(cls, random: Random, spec: ServiceSpec) -> Listing:
        """A random listing; half of the runs know only what the service lists."""
        if random.random() < 0.5:
            return cls()
        pools = tuple(CapacityPool(spec.region, zone, OTHER_TYPE) for zone in spec.subnets.values())
        return cls(
            is_surveyed=True,
            extra=pools if random.random() < 0.5 else (),
            cap=random.choice(CAPS) if random.random() < 0.4 else None,
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """A reason to refuse what the scope covers, beside capacity and price."""

    kind: RefusalKind
    code: str
    scope: Scope
    is_named: bool = True
    """Whether EC2 names each refused pool, or only refuses the whole fleet."""

    def refuses(self, offering: Offering) -> Refusal | None:
        """The refusal of the offering, if it is refused."""
        if not self.scope.covers(offering):
            return None
        return Refusal(self.kind, self.code, "refused", offering if self.is_named else None)


class SimOffers:
    """What EC2 offers now."""

    def __init__(self, random: Random, listing: Listing) -> None:
        self.random = random
        self.listing = listing
        self.limits: list[Limit] = []
        self._spot_prices: dict[CapacityPool, float] = {}
        self.fallen: frozenset[str] | None = None
        """Zones that score low for a while, and the others high; None: each survey draws anew."""
        self._unsupported: Scope | None = None
        self._is_recovered = False

    def refusals(self, request: LaunchRequest) -> list[Refusal]:
        """The refusals for other reasons than capacity. One without an offering is for the whole fleet."""
        found = []
        for pool in request.pools:
            offering = Offering(pool, request.purchase_option)
            named = (r for limit in self.limits if (r := limit.refuses(offering)))
            refusal = next(named, None) or self._too_dear(request, offering)
            if refusal is not None and refusal.offering is None:
                return [refusal]
            if refusal is not None:
                found.append(refusal)
        return found

    def survey(self, spec: ServiceSpec, now: float) -> Survey:
        """A survey. While faults last, parts of it are missing."""
        pools = [*spec.pools, *self.listing.extra]
        types = dict.fromkeys(pool.instance_type for pool in pools)
        zones = dict.fromkeys(pool.zone for pool in pools)
        requirements = spec.asked
        # Nothing moves by score unless several surveys in a row know the scores.
        known = 0.9 if self.fallen is None else 0.98
        if not self._is_recovered:
            pools = [pool for pool in pools if self.random.random() < 0.85]
            if self.random.random() < 0.3:
                pools += [CapacityPool(spec.region, OTHER_ZONE, type_) for type_ in types]
            if self.random.random() < (0.15 if self.fallen is None else 0.05):
                requirements = Requirements(instance_types=("g4dn.xlarge",))
        # Where EC2 hides a pool, AWS has refused a question, too.
        refused = Finding(FindingKind.SURVEY_REFUSED, "on-demand prices")
        return Survey(
            spec.service,
            requirements,
            at(now),
            tuple(pools),
            {t: ON_DEMAND_PRICES[t] for t in types if self._is_known(0.95)},
            {pool: self.price(pool) for pool in pools if self._is_known(0.9)},
            {zone: self._score(zone) for zone in zones if self._is_known(known)},
            findings=(refused,) if len(pools) < len(spec.pools) else (),
        )

    def change_prices(self, dear: Collection[CapacityPool] = ()) -> None:
        """Draw new Spot prices; some pools become dear."""
        # At last no service waits for a pool that is below its cap.
        share = SHARES[1] if self._is_recovered and self.listing.cap else SHARES[-1]
        self._spot_prices = {p: share * ON_DEMAND_PRICES[p.instance_type] for p in dear}

    def price(self, pool: CapacityPool) -> float:
        """The price of a Spot instance, USD per hour."""
        if pool not in self._spot_prices:
            share = SHARES[0] if self._is_recovered else self.random.choice(SHARES)
            self._spot_prices[pool] = round(share * ON_DEMAND_PRICES[pool.instance_type], 4)
        return self._spot_prices[pool]

    def limit(self, pools: Sequence[CapacityPool]) -> Limit:
        """Add a random limit."""
        limit = self._random_limit(self.random.choice(pools))
        self.limits.append(limit)
        return limit

    def recover(self) -> None:
        """From now on there are no limits, prices are low and scores are high."""
        self._is_recovered = True
        self.fallen = None
        self.limits.clear()
        self.change_prices()

    def _score(self, zone: str) -> int:
        if self.fallen is not None:
            return self.random.choice(FALLEN if zone in self.fallen else RISEN)
        return SCORES[-1] if self._is_recovered else self.random.choice(SCORES)

    def _is_known(self, share: float) -> bool:
        return self._is_recovered or self.random.random() < share

    def _random_limit(self, pool: CapacityPool) -> Limit:
        option = self.random.choice((PurchaseOption.SPOT, PurchaseOption.SPOT, PurchaseOption.ON_DEMAND))
        one, market = Scope.of(Offering(pool, option)), Scope(pool.region, purchase_option=option)
        is_spot = option is PurchaseOption.SPOT
        kind = self.random.choice(list(RefusalKind))
        if kind is RefusalKind.UNSUPPORTED and self._unsupported not in (None, one):
            kind = RefusalKind.ADDRESSES  # it cools for a day: with two such pools no service could settle
        if kind is RefusalKind.UNSUPPORTED:
            self._unsupported = one
        code, scope = {
            RefusalKind.CAPACITY: ("UnfulfillableCapacity", one),
            RefusalKind.UNSUPPORTED: ("Unsupported", one),
            RefusalKind.MARKET_LIMIT: (
                "MaxFleetCountExceeded" if is_spot else "InstanceLimitExceeded",
                market,
            ),
            RefusalKind.QUOTA: (
                "MaxSpotInstanceCountExceeded" if is_spot else "VcpuLimitExceeded",
                Scope(pool.region, quota=quota_of(pool.instance_type), purchase_option=option),
            ),
            RefusalKind.ADDRESSES: ("InsufficientFreeAddressesInSubnet", Scope(pool.region, zone=pool.zone)),
            RefusalKind.PERMISSION: ("UnauthorizedOperation", one),
            RefusalKind.REQUEST: ("InvalidBlockDeviceMapping", one),
            RefusalKind.OTHER: ("InternalError", one),
        }[kind]
        is_named = self.random.random() < 0.7
        return Limit(kind, code, scope if is_named else market, is_named)

    def _too_dear(self, request: LaunchRequest, offering: Offering) -> Refusal | None:
        cap = request.max_prices.get(offering.pool.instance_type)
        is_spot = offering.purchase_option is PurchaseOption.SPOT
        if cap is None or not is_spot or self.price(offering.pool) <= cap:
            return None
        return Refusal(RefusalKind.CAPACITY, "SpotMaxPriceTooLow", "refused", offering)
