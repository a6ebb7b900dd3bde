"""Where a replica may come from, in which order of last resorts, and why: `plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from math import inf

from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import CapacityPool, Cooldown, Offering, PoolMemory, PriceKind, PurchaseOption
from spotrelay.plane.core.spec import ServiceSpec


@dataclass(frozen=True, slots=True)
class Step:
    """One launch request: every pool at once, because an instant fleet tells at once what is there."""

    purchase_option: PurchaseOption
    pools: tuple[CapacityPool, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The launch requests to make in turn until every replica has an instance; never two for one offering."""

    steps: tuple[Step, ...]
    eligible: tuple[CapacityPool, ...]
    left_out: Mapping[CapacityPool, str] = field(default_factory=dict)
    """Eligible pools that no step asks, and why not."""
    max_prices: Mapping[str, float] = field(default_factory=dict)
    """By instance type, the most to pay for Spot: USD per hour."""


def plan(
    spec: ServiceSpec,
    option: PurchaseOption,
    memory: PoolMemory,
    now: datetime,
    *,
    is_return: bool = False,
    is_last_resort: bool = False,
    standbys: Sequence[CapacityPool] | None = None,
    max_price: float | None = None,
    min_score: int | None = None,
) -> Plan:
    """How to launch replicas that are to be bought one way.

    A pool that is cooling is left out as long as there is something better, which the option's fallback is.
    It is tried after the others only as a last resort, when that isn't to be had either. If the option has no
    fallback, pools that are cooling are always tried so. `is_return` says that the option was refused before
    and its fallback stands in: there is no hurry, so zones that score low are left out, too. `standbys` says
    that a standby is to be launched, and where the others are: what empties one pool should not be what
    refuses the start of all. `max_price` says that a replica is to move to cheaper Spot: only where that is
    known to cost no more, in USD per hour, and nothing speaks against the pool, because the replica serves
    where it is. `min_score` says the same of one that is to move by placement scores: only in zones that
    scored so much, or more, for as long as counts.
    """
    if max_price is not None or min_score is not None:
        is_return, is_last_resort = True, False
    eligible = eligible_pools(spec, memory)
    if standbys is not None:
        eligible = tuple(pool for pool in eligible if _may_stand_by(spec, pool))
    is_market = option.price_kind is PriceKind.MARKET
    caps = _max_prices(spec, memory) if is_market else {}
    # Those of other types say nothing about these.
    survey = memory.survey
    scores = survey.scores if survey is not None and survey.asked == spec.asked else {}
    left_out: dict[CapacityPool, str] = {}
    rested, low, cooling = [], [], []
    for pool in eligible:
        too_dear = _too_dear(spec, pool, memory, caps, max_price) if is_market else None
        no_better = _is_no_better(spec, pool, memory, min_score) if option.is_scored else None
        cooldown = memory.cooling(Offering(pool, option), now)
        if is_no_place := too_dear or no_better:
            left_out[pool] = is_no_place
        elif cooldown:
            cooling.append(pool)
            left_out[pool] = _words_of(cooldown)
        elif option.is_scored and scores.get(pool.zone, inf) <= timing.LOW_SCORE:
            low.append(pool)
            left_out[pool] = f"placement score {scores[pool.zone]}"
        else:
            rested.append(pool)
    apart = _apart(rested, standbys or ())
    first = frozenset(apart)
    steps = [
        Step(option, apart, "apart from other standbys" if standbys else "rested"),
        Step(option, tuple(pool for pool in rested if pool not in first), "rested"),
    ]
    if not (option.fallback and is_return) or is_last_resort:
        steps.append(Step(option, tuple(low), "placement score low: after the others"))
    if option.fallback is None or is_last_resort:
        steps.append(Step(option, tuple(cooling), "cooling: nothing better is left"))
    steps = [step for step in steps if step.pools]
    asked = {pool for step in steps for pool in step.pools}
    return Plan(tuple(steps), eligible, {p: why for p, why in left_out.items() if p not in asked}, caps)


def _may_stand_by(spec: ServiceSpec, pool: CapacityPool) -> bool:
    is_type = not spec.standby_instance_types or pool.instance_type in spec.standby_instance_types
    return is_type and (not spec.standby_zones or pool.zone in spec.standby_zones)


def _apart(pools: Sequence[CapacityPool], others: Sequence[CapacityPool]) -> tuple[CapacityPool, ...]:
    """Those with the fewest of the others in their zone, and there those with the fewest in themselves."""
    in_zone, in_pool = Counter(pool.zone for pool in others), Counter(others)
    crowds = {pool: (in_zone[pool.zone], in_pool[pool]) for pool in pools}
    least = min(crowds.values(), default=None)
    return tuple(pool for pool in pools if crowds[pool] == least)


def first_rest(
    spec: ServiceSpec, option: PurchaseOption, memory: PoolMemory, now: datetime
) -> datetime | None:
    """When the first of the eligible pools has rested; None if there is one that needn't."""
    ends = []
    for pool in eligible_pools(spec, memory):
        cooldown = memory.cooling(Offering(pool, option), now)
        if cooldown is None:
            return None
        ends.append(cooldown.until)
    return min(ends, default=None)


def eligible_pools(spec: ServiceSpec, memory: PoolMemory) -> tuple[CapacityPool, ...]:
    """What EC2 said that it has, or what the service's document lists until it was asked."""
    survey = memory.survey
    if survey is None or survey.asked != spec.asked:
        return spec.pools
    zones = set(spec.subnets.values())
    return tuple(pool for pool in survey.pools if pool.zone in zones) or spec.pools


def _max_prices(spec: ServiceSpec, memory: PoolMemory) -> dict[str, float]:
    if spec.max_price_share is None or memory.survey is None:
        return {}
    prices = memory.survey.on_demand_prices
    # In decimals, as prices and shares are written: 60 % of 1.5 are 0.9, and in floats a little less.
    share = Decimal(str(spec.max_price_share))
    return {type_: float(_rounded_down(Decimal(str(price)) * share)) for type_, price in prices.items()}


def _rounded_down(usd: Decimal) -> Decimal:
    # EC2 takes five decimals at most; to round up would pay more than was allowed.
    return usd.quantize(Decimal("0.0001"), ROUND_DOWN)


def _too_dear(
    spec: ServiceSpec,
    pool: CapacityPool,
    memory: PoolMemory,
    caps: Mapping[str, float],
    max_price: float | None,
) -> str | None:
    price = memory.survey.spot_prices.get(pool) if memory.survey else None
    if max_price is not None and (price is None or price > max_price):
        return f"costs {price or 'an unknown number of'} USD: no move for more than {max_price}"
    if spec.max_price_share is None:
        return None
    cap = caps.get(pool.instance_type)
    if cap is None:
        return "no on-demand price known to cap the Spot price by"
    return f"costs {price} USD, more than {cap}" if price is not None and price > cap else None


def _is_no_better(
    spec: ServiceSpec, pool: CapacityPool, memory: PoolMemory, min_score: int | None
) -> str | None:
    if min_score is None:
        return None
    survey = memory.survey
    is_answer = survey is not None and survey.asked == spec.asked
    lasting = survey.lasting(pool.zone, timing.SCORES_LAST_S) if survey and is_answer else None
    if lasting and lasting[0] >= min_score:
        return None
    scored = f"scored {lasting[0]}" if lasting else "has no lasting score"
    return f"{scored}: no move to less than {min_score}"


def _words_of(cooldown: Cooldown) -> str:
    again = f", strike {cooldown.strikes}" if cooldown.strikes > 1 else ""
    return f"{cooldown.scope} cools until {cooldown.until:%H:%M:%S} ({cooldown.reason}{again})"


def shown(pools: Mapping[CapacityPool, str] | Sequence[CapacityPool], most: int = 6) -> str:
    """Some pools for people, and how many more there are."""
    texts = [f"{p} ({pools[p]})" for p in pools] if isinstance(pools, Mapping) else [str(p) for p in pools]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def in_words(made: Plan, step: Step, answer: str) -> str:
    """One line that says why there and what came of it, for a replica's row."""
    return "; ".join(_words(made, step, answer))


def _words(made: Plan, step: Step, answer: str) -> Iterator[str]:
    yield f"{step.purchase_option} in {len(step.pools)} of {len(made.eligible)} pools ({step.why})"
    if made.left_out:
        yield f"left out: {shown(made.left_out)}"
    yield f"EC2: {answer}"
