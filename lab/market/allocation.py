"""Who gets how much: the choice among capacity pools that EC2 makes for a fleet, as far as it is documented.

AWS doesn't publish its algorithm. What is modelled here is what it promises in words:
price-capacity-optimized takes the cheapest of the pools with the most capacity; an ordered strategy goes down
the list and takes what each pool has. Codes, and the fact that one request can be half granted and half
refused, are EC2's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

DEEP_SHARE = 0.5
"""A pool is as deep as the deepest when it has at least this share of the deepest's free capacity.

Half, because "most available capacity" must name several pools for the price to have a choice.
"""


class Strategy(StrEnum):
    """EC2 Fleet's allocation strategies, for Spot and for on-demand."""

    PRICE_CAPACITY_OPTIMIZED = "price-capacity-optimized"
    CAPACITY_OPTIMIZED = "capacity-optimized"
    CAPACITY_OPTIMIZED_PRIORITIZED = "capacity-optimized-prioritized"
    DIVERSIFIED = "diversified"
    LOWEST_PRICE = "lowest-price"
    PRIORITIZED = "prioritized"


ORDERED = frozenset({Strategy.LOWEST_PRICE, Strategy.PRIORITIZED})
"""Strategies that try pool after pool: a dry pool is reported even if a later one grants everything."""


class RefusalCode(StrEnum):
    """EC2's own words for "no"."""

    INSUFFICIENT_INSTANCE_CAPACITY = "InsufficientInstanceCapacity"
    UNFULFILLABLE_CAPACITY = "UnfulfillableCapacity"
    SPOT_MAX_PRICE_TOO_LOW = "SpotMaxPriceTooLow"
    INVALID_FLEET_CONFIGURATION = "InvalidFleetConfiguration"
    """The zone doesn't offer the instance type at all."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pool that a launch may use.

    `priority` counts from the best, lower first; `max_price` is in USD per instance hour, None for no limit.
    """

    pool: CapacityPool
    priority: float = 0.0
    max_price: float | None = None
    weight: int = 1
    """How much of what is asked for one of its instances is."""


@dataclass(frozen=True, slots=True)
class MarketRequest:
    """So much, in instances of weight 1, bought one way, from any of the candidates.

    The last instance may bring more than was asked.

    `minimum` is all or nothing: below it the whole request is refused. The `single_…` flags demand that every
    instance comes from one zone, or is of one type.
    """

    candidates: Sequence[Candidate]
    count: int
    purchase_option: PurchaseOption
    strategy: Strategy
    minimum: int = 0
    single_zone: bool = False
    single_type: bool = False


@dataclass(frozen=True, slots=True)
class MarketGrant:
    """`count` instances from the candidate at `index` of the request."""

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class MarketRefusal:
    """The candidate at `index` of the request gave less than it was asked for."""

    index: int
    code: RefusalCode


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a request got. Grants and refusals may come together: partial success is normal."""

    grants: tuple[MarketGrant, ...]
    refusals: tuple[MarketRefusal, ...]

    @property
    def granted(self) -> int:
        """Instances in all grants."""
        return sum(grant.count for grant in self.grants)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a candidate stands when the request arrives. `refusal`: its answer once nothing is free."""

    free: int
    price: float
    refusal: RefusalCode


def allocate(request: MarketRequest, standings: Sequence[Standing]) -> Allocation:
    """Share the request out over its candidates; `standings[i]` is the standing of `candidates[i]`."""
    # With a single zone or type demanded, the group that can give most is chosen, the first of equals.
    takes = [_take(request, standings, group) for group in _groups(request)]
    taken, free = max(takes, key=lambda take: sum(take[0].values()), default=({}, {}))
    granted = sum(n * request.candidates[i].weight for i, n in taken.items())
    if granted < request.minimum:
        taken, free, granted = {}, {}, 0
    grants = tuple(MarketGrant(i, n) for i, n in sorted(taken.items()) if n)
    exhausted = [i for i in range(len(standings)) if free.get(i, 0) <= 0]
    if granted >= request.count:
        exhausted = _tried(request, standings, taken, exhausted)
    return Allocation(grants, tuple(MarketRefusal(i, standings[i].refusal) for i in exhausted))


def _groups(request: MarketRequest) -> list[list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for index, candidate in enumerate(request.candidates):
        zone = candidate.pool.zone if request.single_zone else ""
        type_ = candidate.pool.instance_type if request.single_type else ""
        groups.setdefault((zone, type_), []).append(index)
    return list(groups.values())


def _take(
    request: MarketRequest, standings: Sequence[Standing], group: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """What each candidate of the group gives, and what is left in it.

    Instance by instance, because what is left in a pool decides where the next one goes.
    """
    taken: dict[int, int] = dict.fromkeys(group, 0)
    choose = _CHOICES[request.strategy]
    free = {i: standings[i].free for i in group}
    while sum(n * request.candidates[i].weight for i, n in taken.items()) < request.count:
        open_ = [i for i in group if free[i] > 0]
        if not open_:
            break
        index = min(open_, key=choose(request.candidates, standings, free, taken))
        taken[index] += 1
        for other in group:  # two candidates may be one pool, in two subnets of a zone
            if request.candidates[other].pool == request.candidates[index].pool:
                free[other] -= 1
    return taken, free


def _tried(
    request: MarketRequest, standings: Sequence[Standing], taken: dict[int, int], exhausted: list[int]
) -> list[int]:
    """Of the exhausted candidates, those that were asked before the request was fulfilled."""
    if request.strategy not in ORDERED:
        return []
    rank = _CHOICES[request.strategy](request.candidates, standings, {}, {})
    last = max((rank(i) for i, n in taken.items() if n), default=())
    return [i for i in exhausted if rank(i) < last]


_Key = Callable[[int], tuple[float, ...]]
_Choice = Callable[[Sequence[Candidate], Sequence[Standing], dict[int, int], dict[int, int]], _Key]
"""Candidates, standings, what is free and what was taken, to a sort key: the smallest is next."""


def _shallow(free: dict[int, int], index: int) -> float:
    return float(free[index] < DEEP_SHARE * max(free.values()))


def _price(candidates: Sequence[Candidate], standings: Sequence[Standing], index: int) -> float:
    """Of one unit of what is asked for."""
    return standings[index].price / candidates[index].weight


_CHOICES: dict[Strategy, _Choice] = {
    Strategy.PRICE_CAPACITY_OPTIMIZED: lambda c, s, free, _: (
        lambda i: (
            _shallow(free, i),
            _price(c, s, i),
            i,
        )
    ),
    Strategy.CAPACITY_OPTIMIZED: lambda _, __, free, ___: lambda i: (-free[i], i),
    Strategy.CAPACITY_OPTIMIZED_PRIORITIZED: lambda c, _, free, __: (
        lambda i: (_shallow(free, i), c[i].priority, i)
    ),
    Strategy.DIVERSIFIED: lambda c, s, _, taken: lambda i: (taken[i], _price(c, s, i), i),
    Strategy.LOWEST_PRICE: lambda c, s, _, __: lambda i: (_price(c, s, i), i),
    Strategy.PRIORITIZED: lambda c, _, __, ___: lambda i: (c[i].priority, i),
}
