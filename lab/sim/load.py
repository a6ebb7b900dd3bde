"""The load of services whose number of replicas follows it, drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random

from lab.sim.faults import OF_LOAD, PAIRS, Call, Pair
from lab.sim.gate import CallGate
from lab.sim.scheduler import Scheduler
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.scaling import Load, Needed, OngoingTarget, Scaling
from spotrelay.plane.core.spec import ServiceSpec

SHARE = 0.25
"""The share of runs in which the number follows the load."""

OVERPROVISIONED = 0.3
"""The share of runs, these or others, with replicas beyond the number."""

SLEEPS = 0.5
"""The share of those that may have no replica which begin with no load."""

CHANGES = (2, 5)
"""How often the load changes in a short run."""

PER_MINUTE = 1.0
"""The same in a long one."""

ONGOING = 0.4
"""The share of those whose target is requests in progress, as the replicas count them."""

BY_TYPE = 0.5
"""The share of the others whose target depends on the instance type."""

STRONGER = 2.0
"""How many times the requests of others one of such a type can have."""

TARGETED = 0.4
"""Of the runs with load, the share that is about a call that only these make."""

_PAIRS = tuple(pair for pair in PAIRS if pair[0] in OF_LOAD)

WINDOW_S = 60.0
"""The load of a time is what came in the minute before."""


@dataclass(frozen=True, slots=True)
class Loads:
    """What the services of a run have to do."""

    target: Pair | None = None
    """The call and fault that the run is about, if it is one of these."""
    scaling: Scaling | None = None
    """None: their number of replicas doesn't follow it."""
    overprovision: int = 0
    rates: tuple[tuple[float, float], ...] = ()
    """From when on, requests a second, or in progress; as a share of the time that faults last."""
    blind: tuple[tuple[float, float], ...] = ()
    """When nothing is measured; as shares of that time."""

    def rate(self, share: float, width: float) -> float:
        """The average rate of so long a part before, both as shares of that time."""
        ends = [start for start, _ in self.rates[1:]] + [float("inf")]
        parts = zip(self.rates, ends, strict=True)
        total = sum(
            rate * max(min(share, end) - max(share - width, start), 0.0) for (start, rate), end in parts
        )
        return total / width


def draw(seed: int, replicas: int, minutes: float | None, types: Sequence[str]) -> Loads:
    """A seed's load, from a generator of its own: the rest of the run doesn't depend on it."""
    random = Random(f"{seed}-load")  # noqa: S311 - to be repeated, not to be unpredictable
    is_scaled = random.random() < SHARE
    overprovision = random.choice((1, 1, 2)) if random.random() < OVERPROVISIONED else 0
    if not is_scaled:
        return Loads(overprovision=overprovision)
    least = random.choice((0, 1, 1, 2))
    scaling = Scaling(
        min_replicas=least,
        max_replicas=max(replicas + random.randint(0, 3), least),
        target_qps_per_replica=random.choice((0.5, 1.0, 4.0)),
        upscale_delay_s=random.choice((0.0, 10.0, 40.0)),
        downscale_delay_s=random.choice((10.0, 40.0, 120.0)),
    )
    full = scaling.max_replicas * (scaling.target_qps_per_replica or 1.0)
    number = random.randint(*CHANGES) if minutes is None else round(PER_MINUTE * minutes)
    changes = sorted(random.random() for _ in range(number))
    rates = [(share, random.choice((0.0, random.uniform(0, 1.3 * full)))) for share in changes]
    starts = [random.random() for _ in range(random.choice((0, 1, 2)))]
    # A service that may go to sleep begins with nothing to do, half of the time: else few would ever wake up.
    sleeps = least == 0 and random.random() < SLEEPS
    before = 0.0 if sleeps else replicas * (scaling.target_qps_per_replica or 1.0)
    target = _PAIRS[seed % len(_PAIRS)] if random.random() < TARGETED else None
    if random.random() < ONGOING:
        counted = OngoingTarget(target=scaling.target_qps_per_replica or 1.0, metrics=("requests",))
        scaling = replace(scaling, target_qps_per_replica=None, ongoing=counted)
    elif random.random() < BY_TYPE:
        strong = STRONGER * (scaling.target_qps_per_replica or 1.0)
        scaling = replace(scaling, qps_by_instance_type={random.choice(types): strong})
    return Loads(
        target,
        scaling,
        overprovision,
        ((float("-inf"), before), *rates),
        tuple((start, start + random.uniform(0, 0.5)) for start in starts),
    )


@dataclass(slots=True)
class SimLoads:
    """`ports.Loads`."""

    gate: CallGate
    scheduler: Scheduler
    loads: Loads
    faults_s: float
    told: dict[str, list[tuple[float, Load, Rows]]] = field(default_factory=dict)
    """By service: what was answered, when, and to whom: the rows that it had read."""

    def observe(self, spec: ServiceSpec, needed: Needed, now: datetime) -> Load:  # noqa: ARG002
        def answer() -> Load:
            load = Load(self.ongoing(self.scheduler.now))
            if load.requests_per_s == 0 and not needed.silence:
                load = replace(load, is_rate_partial=True, is_silence_presumed=True)
            rows = self.gate.invocation.rows or Rows()
            self.told.setdefault(spec.service, []).append((self.scheduler.now, load, rows))
            return load

        return self.gate(Call.OBSERVE_LOAD, spec, answer)

    def ongoing(self, time: float) -> float | None:
        """What all replicas together have to do at a time; None while nothing is measured."""
        share = time / self.faults_s
        if any(start <= share < end for start, end in self.loads.blind) and share < 1:
            return None
        return self.loads.rate(share, WINDOW_S / self.faults_s)
