"""What EC2 has beside capacity: other pools, prices, scores and limits; and what surveys say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from lab.sim.gate import at
from spotrelay.core.instances import Refusal, RefusalKind
from spotrelay.core.pools import CapacityPool, Offering, PurchaseOption, Scope, Survey, quota_of
from spotrelay.core.ports import LaunchRequest
from spotrelay.core.requirements import Requirements
from spotrelay.core.spec import ServiceSpec

ON_DEMAND_PRICES = {"g5.xlarge": 1.0, "g6.xlarge": 2.0, "p4d.24xlarge": 3.0}
"""USD per hour."""

OTHER_TYPE = "p4d.24xlarge"
"""What no service's stack lists, and a survey may find: of another vCPU quota."""

OTHER_ZONE = "us-east-1c"
"""Where EC2 has pools, too, and no service a subnet."""

SHARES = (0.3, 0.4, 0.5, 0.6, 0.8)
"""Spot prices, as shares of the on-demand price."""

CAPS = (0.445, 0.545, 0.745)
"""Price caps: none lies so near a price that rounding decides."""

SCORES = (1, 3, 4, 9)
"""Placement scores: those that count as low, the first that doesn't, a high one."""

LASTS_S = (5.0, 90.0)
"""How long a limit is met: some tries of a replica's, and a cooldown."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is fixed before a run begins about what EC2 lists."""

    is_surveyed: bool = False
    """Whether anybody asks what EC2 has before things are well again."""
    extra: tuple[CapacityPool, ...] = ()
    """Pools that no service's stack lists."""
    cap: float | None = None
    """The services' `max_price_share`."""

    @classmethod
    def draw(cls, random: Random, spec: ServiceSpec) -> Listing:
        """By chance; half of the runs know nothing but what the service's stack lists."""
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
    """A reason of EC2's, beside capacity and price, to refuse what the scope covers."""

    kind: RefusalKind
    code: str
    scope: Scope
    is_named: bool = True
    """Whether EC2 says of each pool that it refuses it, or only that it refuses the whole fleet."""

    def refuses(self, offering: Offering) -> Refusal | None:
        """What EC2 says of the offering, if it is refused."""
        if not self.scope.covers(offering):
            return None
        return Refusal(self.kind, self.code, "refused", offering if self.is_named else None)


class SimOffers:
    """What EC2 has at this moment."""

    def __init__(self, random: Random, listing: Listing) -> None:
        self.random = random
        self.listing = listing
        self.limits: list[Limit] = []
        self._spot_prices: dict[CapacityPool, float] = {}
        self._unsupported: Scope | None = None
        self._is_well = False

    def refusals(self, request: LaunchRequest) -> list[Refusal]:
        """What is refused for another reason than capacity; without an offering it is the whole fleet."""
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
        """What somebody who asks is told: all of it once things are well; until then parts are missing."""
        pools = [*spec.pools, *self.listing.extra]
        types = dict.fromkeys(pool.instance_type for pool in pools)
        zones = dict.fromkeys(pool.zone for pool in pools)
        asked = spec.asked
        if not self._is_well:
            pools = [pool for pool in pools if self.random.random() < 0.85]
            if self.random.random() < 0.3:
                pools += [CapacityPool(spec.region, OTHER_ZONE, type_) for type_ in types]
            if self.random.random() < 0.15:
                asked = Requirements(instance_types=("g4dn.xlarge",))
        return Survey(
            spec.service,
            asked,
            at(now),
            tuple(pools),
            {t: ON_DEMAND_PRICES[t] for t in types if self._is_known(0.95)},
            {pool: self.price(pool) for pool in pools if self._is_known(0.9)},
            {zone: self._score() for zone in zones if self._is_known(0.9)},
        )

    def change_prices(self) -> None:
        """Spot costs something else from now on."""
        self._spot_prices.clear()

    def price(self, pool: CapacityPool) -> float:
        """Of a Spot instance, USD per hour."""
        if pool not in self._spot_prices:
            share = SHARES[0] if self._is_well else self.random.choice(SHARES)
            self._spot_prices[pool] = round(share * ON_DEMAND_PRICES[pool.instance_type], 4)
        return self._spot_prices[pool]

    def limit(self, pools: Sequence[CapacityPool]) -> Limit:
        """Another limit is met, by chance."""
        limit = self._drawn(self.random.choice(pools))
        self.limits.append(limit)
        return limit

    def be_well(self) -> None:
        """There are no limits, and prices are low and scores high, from now on."""
        self._is_well = True
        self.limits.clear()
        self.change_prices()

    def _score(self) -> int:
        return SCORES[-1] if self._is_well else self.random.choice(SCORES)

    def _is_known(self, share: float) -> bool:
        return self._is_well or self.random.random() < share

    def _drawn(self, pool: CapacityPool) -> Limit:
        option = self.random.choice((PurchaseOption.SPOT, PurchaseOption.SPOT, PurchaseOption.ON_DEMAND))
        one, market = Scope.of(Offering(pool, option)), Scope(pool.region, purchase_option=option)
        is_spot = option is PurchaseOption.SPOT
        kind = self.random.choice(list(RefusalKind))
        if kind is RefusalKind.UNSUPPORTED and self._unsupported not in (None, one):
            kind = RefusalKind.ADDRESSES  # that cools a day: of more than one pool no service could settle
        if kind is RefusalKind.UNSUPPORTED:
            self._unsupported = one
        code, scope = {
            RefusalKind.CAPACITY: ("UnfulfillableCapacity", one),
            RefusalKind.UNSUPPORTED: ("Unsupported", one),
            RefusalKind.MARKET_LIMIT: (
                "MaxSpotInstanceCountExceeded" if is_spot else "InstanceLimitExceeded",
                market,
            ),
            RefusalKind.QUOTA: (
                "VcpuLimitExceeded",
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
