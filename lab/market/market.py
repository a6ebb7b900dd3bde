"""The market itself: every pool's capacity and use, and what is asked of it."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from lab.market.allocation import Allocation, Candidate, MarketRequest, RefusalCode, Standing, allocate
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption

PRICE_STEP = timedelta(hours=6)
"""How long a Spot price stands. Real ones move a few times a day since AWS smoothed them in 2017."""

SPOT_SHARE = (0.30, 0.60)
"""A pool's usual Spot price lies between these shares of its on-demand price: common for GPU instances."""

PRICE_WOBBLE = 0.08
"""A step's price strays at most this share from the pool's usual one."""

FEW_TYPES = 3
LOW_SCORE = 3
"""With fewer than FEW_TYPES instance types a placement score is always low, says the EC2 user guide."""


Recorded = Sequence[tuple[datetime, float]]
"""When each Spot price of a pool began, and what it was; oldest first, and never empty."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool as it is now. Capacities are in instances and include those in use; prices in USD per hour."""

    pool: CapacityPool
    on_demand_price: float
    spot_capacity: int
    on_demand_capacity: int
    spot_in_use: int = 0
    on_demand_in_use: int = 0

    def capacity(self, option: PurchaseOption) -> int:
        """Instances that the pool can hold, bought this way."""
        return self.spot_capacity if option is PurchaseOption.SPOT else self.on_demand_capacity

    def in_use(self, option: PurchaseOption) -> int:
        """Instances that the pool holds, bought this way."""
        return self.spot_in_use if option is PurchaseOption.SPOT else self.on_demand_in_use

    def free(self, option: PurchaseOption) -> int:
        """Instances that a launch can still have; never below zero, though the pool may be over-committed."""
        return max(0, self.capacity(option) - self.in_use(option))

    def with_capacity(self, option: PurchaseOption, capacity: int) -> PoolState:
        """The pool with another capacity."""
        if option is PurchaseOption.SPOT:
            return replace(self, spot_capacity=capacity)
        return replace(self, on_demand_capacity=capacity)

    def with_use(self, option: PurchaseOption, change: int) -> PoolState:
        """The pool with `change` more instances in use, or fewer."""
        if option is PurchaseOption.SPOT:
            return replace(self, spot_in_use=self.spot_in_use + change)
        return replace(self, on_demand_in_use=self.on_demand_in_use + change)


class Market:
    """Capacity pools and their prices. Not thread-safe: one owner drives it."""

    def __init__(
        self,
        pools: Iterable[PoolState],
        *,
        seed: int = 0,
        recorded: Mapping[CapacityPool, Recorded] | None = None,
    ) -> None:
        self.recorded = recorded or {}
        """Spot prices that stood once; those of other pools are made up."""
        self._states = {state.pool: state for state in pools}
        self._seed = seed
        self._before_drought: dict[Offering, int] = {}

    def __iter__(self) -> Iterator[PoolState]:
        return iter(list(self._states.values()))

    def __contains__(self, pool: object) -> bool:
        return pool in self._states

    def state(self, pool: CapacityPool) -> PoolState:
        """The pool as it is now.

        Raises:
            KeyError: the market has no such pool, that is: the zone doesn't offer the type.
        """
        return self._states[pool]

    def launch(self, request: MarketRequest, now: datetime) -> Allocation:
        """Take what the pools can give; what was granted is in use until it is released."""
        standings = [
            self._standing(candidate, request.purchase_option, now) for candidate in request.candidates
        ]
        allocation = allocate(request, standings)
        for grant in allocation.grants:
            pool = request.candidates[grant.index].pool
            self._states[pool] = self._states[pool].with_use(request.purchase_option, grant.count)
        return allocation

    def release(self, offering: Offering) -> None:
        """One instance is gone and its place is free again."""
        state = self._states[offering.pool]
        if state.in_use(offering.purchase_option) < 1:
            raise ValueError(f"{offering} has no instance in use to release")
        self._states[offering.pool] = state.with_use(offering.purchase_option, -1)

    def set_capacity(self, offering: Offering, capacity: int) -> int:
        """Change what a pool can hold; how many instances are now too many, for the caller to interrupt."""
        if capacity < 0:
            raise ValueError(f"capacity of {offering} must be 0 or more, not {capacity}")
        state = self._states[offering.pool].with_capacity(offering.purchase_option, capacity)
        self._states[offering.pool] = state
        self._before_drought.pop(offering, None)
        return max(0, state.in_use(offering.purchase_option) - capacity)

    def dry_up(
        self,
        zone: str | None = None,
        instance_type: str | None = None,
        option: PurchaseOption = PurchaseOption.SPOT,
    ) -> list[CapacityPool]:
        """Take all capacity from the matching pools, None matching all; the pools that it hit."""
        hit = self.select(zone, instance_type)
        for pool in hit:
            offering, state = Offering(pool, option), self._states[pool]
            self._before_drought.setdefault(offering, state.capacity(option))
            self._states[pool] = state.with_capacity(option, 0)
        return hit

    def bring_back(
        self,
        zone: str | None = None,
        instance_type: str | None = None,
        option: PurchaseOption = PurchaseOption.SPOT,
    ) -> list[CapacityPool]:
        """Give the matching pools the capacity of before they dried up; the pools that it changed."""
        back = []
        for pool in self.select(zone, instance_type):
            capacity = self._before_drought.pop(Offering(pool, option), None)
            if capacity is not None:
                self._states[pool] = self._states[pool].with_capacity(option, capacity)
                back.append(pool)
        return back

    def select(self, zone: str | None = None, instance_type: str | None = None) -> list[CapacityPool]:
        """The pools of a zone and a type, None matching all."""
        return [
            pool
            for pool in self._states
            if (zone is None or pool.zone == zone)
            and (instance_type is None or pool.instance_type == instance_type)
        ]

    def price(self, offering: Offering, now: datetime) -> float:
        """USD per instance hour."""
        on_demand = self._states[offering.pool].on_demand_price
        if offering.purchase_option is PurchaseOption.ON_DEMAND:
            return on_demand
        if offering.pool in self.recorded:
            return _standing_at(self.recorded[offering.pool], now)[1]
        low, high = SPOT_SHARE
        usual = low + (high - low) * self._fraction(offering.pool, "share")
        step = int(now.timestamp() // PRICE_STEP.total_seconds())
        wobble = 1 + PRICE_WOBBLE * (2 * self._fraction(offering.pool, f"step {step}") - 1)
        # EC2 quotes Spot prices with four decimals.
        return round(on_demand * usual * wobble, 4)

    def price_history(
        self, pool: CapacityPool, start: datetime, end: datetime
    ) -> list[tuple[datetime, float]]:
        """When each Spot price between the two times began and what it was, newest first.

        The first one may begin before `start`: it is the price that stood at `start`.
        """
        if pool in self.recorded:
            changes = self.recorded[pool]
            stood_since = _standing_at(changes, start)[0]
            return [(at, usd) for at, usd in reversed(changes) if stood_since <= at <= end]
        step_s = PRICE_STEP.total_seconds()
        first, last = int(start.timestamp() // step_s), int(end.timestamp() // step_s)
        steps = [datetime.fromtimestamp(step * step_s, UTC) for step in range(last, first - 1, -1)]
        spot = Offering(pool, PurchaseOption.SPOT)
        return [(at, self.price(spot, at)) for at in steps]

    def placement_score(self, pools: Sequence[CapacityPool], count: int) -> int:
        """How likely a Spot request for `count` instances over these pools succeeds: 1 (hardly) to 9."""
        free = sum(self._states[pool].free(PurchaseOption.SPOT) for pool in pools if pool in self._states)
        # Twice the wanted capacity counts as plenty: a score is about keeping instances, too.
        score = 1 + round(8 * min(1.0, free / (2 * max(1, count))))
        few = len({pool.instance_type for pool in pools}) < FEW_TYPES
        return min(score, LOW_SCORE) if few else score

    def _standing(self, candidate: Candidate, option: PurchaseOption, now: datetime) -> Standing:
        state = self._states.get(candidate.pool)
        if state is None:
            return Standing(0, float("inf"), RefusalCode.INVALID_FLEET_CONFIGURATION)
        price = self.price(Offering(candidate.pool, option), now)
        if candidate.max_price is not None and candidate.max_price < price:
            return Standing(0, price, RefusalCode.SPOT_MAX_PRICE_TOO_LOW)
        dry = option is PurchaseOption.SPOT and state.spot_capacity == 0
        code = RefusalCode.UNFULFILLABLE_CAPACITY if dry else RefusalCode.INSUFFICIENT_INSTANCE_CAPACITY
        return Standing(state.free(option), price, code)

    def _fraction(self, pool: CapacityPool, what: str) -> float:
        """A number in [0, 1) that depends on the seed, the pool and what it is for, and on nothing else."""
        text = f"{self._seed}|{pool}|{what}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest()) / 2**48


def _standing_at(changes: Recorded, at: datetime) -> tuple[datetime, float]:
    """The last change until then; before the first one that."""
    return changes[max(0, bisect_right(changes, at, key=lambda change: change[0]) - 1)]
