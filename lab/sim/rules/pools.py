"""Which pools a service may use, by what a tick was shown: for rules about launches, moves and metrics."""

from __future__ import annotations

from spotrelay.plane.core.pools import CapacityPool, PoolMemory
from spotrelay.plane.core.spec import ServiceSpec


def eligible(spec: ServiceSpec, memory: PoolMemory) -> list[CapacityPool]:
    """The surveyed pools in the service's zones, or the stack's list without such a survey."""
    survey, zones = memory.survey, set(spec.subnets.values())
    is_answer = survey is not None and survey.asked == spec.asked
    found = [p for p in survey.pools if p.zone in zones] if survey and is_answer else []
    return found or list(spec.pools)


def is_too_dear(spec: ServiceSpec, pool: CapacityPool, memory: PoolMemory) -> bool:
    """Whether Spot there costs more than the service may pay, or nobody knows."""
    if spec.max_price_share is None:
        return False
    if memory.survey is None or pool.instance_type not in memory.survey.on_demand_prices:
        return True  # its price is unknown
    most = spec.max_price_share * memory.survey.on_demand_prices[pool.instance_type]
    return memory.survey.spot_prices.get(pool, 0.0) > most
