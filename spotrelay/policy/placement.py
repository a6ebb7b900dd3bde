"""Where a replica may come from, and in which order of last resorts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from spotrelay.model import (
    CapacityPool,
    Cooldown,
    Offering,
    PurchaseOption,
    Refusal,
    RefusalKind,
    ServiceSpec,
    seconds,
)
from spotrelay.policy import timing


@dataclass(frozen=True, slots=True)
class Step:
    """One launch request: every pool at once, because an instant fleet tells at once what is there."""

    purchase_option: PurchaseOption
    pools: tuple[CapacityPool, ...]
    why: str


def plan(spec: ServiceSpec, cooling: Collection[Cooldown]) -> tuple[Step, ...]:
    """The launch requests to make in turn until every replica has an instance; never two for one offering.

    Spot where no pool is cooling, then Spot in the pools that are, then on-demand likewise. What no step
    brings waits for the next tick.
    """
    resting = {c.offering for c in cooling}
    options = [PurchaseOption.SPOT] if spec.use_spot else []
    if spec.on_demand_fallback or not spec.use_spot:
        options.append(PurchaseOption.ON_DEMAND)
    steps = []
    for option in options:
        rested = tuple(p for p in spec.pools if Offering(p, option) not in resting)
        tired = tuple(p for p in spec.pools if Offering(p, option) in resting)
        steps.append(Step(option, rested, "not cooling"))
        steps.append(Step(option, tired, "cooling: tried because every other pool refused"))
    return tuple(step for step in steps if step.pools)


def cooldown_of(refusal: Refusal, now: datetime) -> Cooldown | None:
    """What a refusal teaches about its pool; None where it is not about the pool."""
    match refusal.kind:
        case RefusalKind.CAPACITY:
            duration_s = timing.REFUSAL_COOLDOWN_S
        case RefusalKind.UNSUPPORTED:
            duration_s = timing.UNSUPPORTED_COOLDOWN_S
        case RefusalKind.LIMIT | RefusalKind.OTHER:
            return None
    if refusal.offering is None:
        return None
    return Cooldown(refusal.offering, now + seconds(duration_s), refusal.code)


def cooldown_of_loss(offering: Offering, now: datetime, reason: str) -> Cooldown:
    """What a lost instance teaches about its pool."""
    return Cooldown(offering, now + seconds(timing.LOSS_COOLDOWN_S), reason)
