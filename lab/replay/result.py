"""What one policy made of one trace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lab.replay.cloud import Machine, ReplayCloud
from lab.replay.settings import ReplaySettings
from lab.replay.traces import EQUAL_PRICES, Trace
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

DAY_S = 86_400.0
MONTH_S = 30 * DAY_S


@dataclass(frozen=True, slots=True)
class Gaps:
    """How long the periods below N were, in seconds; zeros if there were none."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0

    @classmethod
    def of(cls, durations_s: Sequence[float]) -> Gaps:
        """The distribution, by nearest rank: each number is the length of a gap that there was."""
        if not durations_s:
            return cls()
        ordered = sorted(durations_s)
        p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.50, 0.99))
        return cls(len(ordered), p50, p99, ordered[-1])


@dataclass(frozen=True, slots=True)
class Life:
    """One machine's, for the timeline. Seconds since the trace's start; infinity for what never happened."""

    id: str
    pool: CapacityPool
    option: PurchaseOption
    launched_at: float
    up_at: float
    """When it could serve; infinity if it ended before."""
    warned_at: float
    out_at: float
    """When the policy took it out of rotation, warned or not."""
    drained_at: float
    """When the policy took it out of service on purpose."""
    ended_at: float
    """Infinity if it outlived the trace."""
    is_lost: bool
    """Whether EC2 took it."""

    @classmethod
    def of(cls, machine: Machine) -> Life:
        """What became of the machine."""
        return cls(
            machine.id,
            machine.offering.pool,
            machine.offering.purchase_option,
            machine.launched_at,
            machine.up_at if machine.up_at < machine.ended_at else math.inf,
            machine.warned_at,
            machine.out_at,
            machine.drained_at,
            machine.ended_at,
            machine.ended_at == machine.lost_at < math.inf,
        )


class StandbysFound(NamedTuple):
    """So many standbys pay from then on, as the controller found out."""

    at_s: float
    standbys: int
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """Shares are fractions of the measured time, costs are relative to N on-demand replicas for as long."""

    trace: str
    policy: str
    settings: ReplaySettings
    availability: float
    """Share of time with at least N ready. A warned replica is ready until EC2 takes it."""
    in_rotation: float
    """Share of time with at least N in rotation: a warned replica counts until it was taken out."""
    zero_s_per_30d: float
    """Seconds in 30 days with nobody in rotation: every request fails then."""
    zero_outages: int
    """How many such periods there were in the measured time."""
    zero_longest_s: float
    """The longest of them."""
    mean_ready: float
    """min(ready, N) / N, averaged over time."""
    cost: float
    optimal_cost: float
    """What an oracle pays: as many as possible on Spot at each instant, no cold start."""
    losses: int
    """Spot instances that EC2 took."""
    launches: int
    refusals: int
    """Launch requests that got less than they asked for."""
    gaps: Gaps
    time_at_strength: Mapping[int, float]
    """By number of ready replicas: share of time."""
    measured_from_s: float
    """When measuring began: what was before is the first launch, nobody's interruption."""
    simulated_s: float
    """The trace's length."""
    wall_s: float
    prices: str = EQUAL_PRICES
    """Where the Spot prices are from: see `Trace.prices`."""
    timeline: tuple[Life, ...] = ()
    """Every machine, in order of launch."""
    standbys_found: Sequence[StandbysFound] = ()
    """With `standby: auto`: each change of their number."""

    @property
    def losses_per_day(self) -> float:
        """Spot instances that EC2 took, per measured day."""
        return self.losses / ((self.simulated_s - self.measured_from_s) / DAY_S)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; without the timeline."""
        return {
            "trace": self.trace,
            "policy": self.policy,
            "cold_start_s": self.settings.cold_start_s,
            "warning_s": self.settings.warning_s,
            "warning_loss": self.settings.warning_loss,
            "recommendations": self.settings.recommendations,
            "false_recommendations": self.settings.false_recommendations,
            "on_rebalance": self.settings.on_rebalance.value,
            "replicas": self.settings.replicas,
            "od_price_ratio": self.settings.od_price_ratio,
            "prices": self.prices,
            "on_demand_dry": self.settings.on_demand_dry,
            "seed": self.settings.seed,
            "on_warning": self.settings.on_warning.value,
            "drain_s": self.settings.drain_s,
            "standby": self.settings.standby,
            "standby_start_s": self.settings.standby_start_s,
            "standby_refusal": self.settings.standby_refusal,
            "rebalance_cost": self.settings.rebalance_cost,
            "standbys_found": [found._asdict() for found in self.standbys_found],
            "availability": self.availability,
            "in_rotation": self.in_rotation,
            "zero_s_per_30d": self.zero_s_per_30d,
            "zero_outages": self.zero_outages,
            "zero_longest_s": self.zero_longest_s,
            "mean_ready": self.mean_ready,
            "cost": self.cost,
            "optimal_cost": self.optimal_cost,
            "losses_per_day": self.losses_per_day,
            "launches": self.launches,
            "refusals": self.refusals,
            "gaps": self.gaps.count,
            "gaps_s": {"p50": self.gaps.p50, "p99": self.gaps.p99, "max": self.gaps.max},
            "time_at_strength": {str(n): share for n, share in self.time_at_strength.items()},
            "measured_from_s": self.measured_from_s,
            "simulated_days": self.simulated_s / DAY_S,
            "wall_s": self.wall_s,
        }


def result_of(
    trace: Trace,
    policy: str,
    cloud: ReplayCloud,
    optimal_cost: float,
    wall_s: float,
    standbys_found: Sequence[StandbysFound] = (),
) -> Result:
    """Close the books of a cloud in which a policy has acted until now."""
    ledger = cloud.close(trace.duration_s)
    whole_s = ledger.measured_s
    return Result(
        trace=trace.name,
        policy=policy,
        settings=cloud.settings,
        availability=ledger.full_s / whole_s,
        in_rotation=ledger.full_rotation_s / whole_s,
        zero_s_per_30d=sum(ledger.zero.lengths_s) / whole_s * MONTH_S,
        zero_outages=len(ledger.zero.lengths_s),
        zero_longest_s=max(ledger.zero.lengths_s, default=0.0),
        mean_ready=ledger.ready_share_s / whole_s,
        cost=ledger.cost,
        optimal_cost=optimal_cost,
        losses=ledger.losses,
        launches=ledger.launches,
        refusals=ledger.refusals,
        gaps=Gaps.of(ledger.gaps.lengths_s),
        time_at_strength={n: s / whole_s for n, s in sorted(ledger.strength_s.items())},
        measured_from_s=cloud.settings.measured_from_s,
        simulated_s=trace.duration_s,
        wall_s=wall_s,
        prices=trace.prices,
        timeline=tuple(Life.of(machine) for machine in cloud.history),
        standbys_found=standbys_found,
    )


def oracle(trace: Trace, policy: str, settings: ReplaySettings, optimal_cost: float) -> Result:
    """Full strength at what that costs at least: no policy, but a bound for all."""
    return Result(
        trace=trace.name,
        policy=policy,
        settings=settings,
        availability=1.0,
        in_rotation=1.0,
        zero_s_per_30d=0.0,
        zero_outages=0,
        zero_longest_s=0.0,
        mean_ready=1.0,
        cost=optimal_cost,
        optimal_cost=optimal_cost,
        losses=0,
        launches=0,
        refusals=0,
        gaps=Gaps(),
        time_at_strength={settings.replicas: 1.0},
        measured_from_s=settings.measured_from_s,
        simulated_s=trace.duration_s,
        wall_s=0.0,
        prices=trace.prices,
    )
