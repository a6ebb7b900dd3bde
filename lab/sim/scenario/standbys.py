"""Standbys, drawn from a seed: how many a service has, when that changes, and what befalls them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from lab.sim.faults import OF_STANDBYS, PAIRS, Call, Pair
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.serving import standby_count

SHARE = 0.3
"""The share of runs with standbys."""

MOST = 3

AUTO_SHARE = 0.4
"""Of these, the share that leaves the number to the control plane."""

TARGETED = 0.5
"""Of these, the share that is about starting or stopping one."""

PER_MINUTE = 0.3
"""How often the number is changed, or a stopped instance is lost, in a long run."""

_PAIRS = tuple(pair for pair in PAIRS if pair[0] in OF_STANDBYS)


@dataclass(frozen=True, slots=True)
class Standbys:
    """The standbys of a run's services."""

    number: int = 0
    target: Pair | None = None
    """The call and fault that the run is about, if it is one of standbys."""
    is_warm: bool = False
    """Whether they are prepared at the beginning, where the replicas are ready."""
    sick: float = 0.0
    """The share of resumed instances that don't answer for a while."""
    deploys: tuple[tuple[float, int], ...] = ()
    """When another number is deployed; as a share of the time that faults last."""
    is_auto: bool = False
    """Whether the control plane is to find out how many; `number` is of no meaning then, but not 0."""
    losses: tuple[float, ...] = ()
    """When somebody terminates a stopped instance; as a share of that time, see `lab.sim.standbys`."""


def draw(seed: int, minutes: float | None) -> Standbys:
    """A seed's standbys, from a generator of their own: the rest of the run doesn't depend on them."""
    random = Random(f"{seed}-standby")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= SHARE:
        return Standbys()
    changes = int(random.random() < 0.25) if minutes is None else round(PER_MINUTE * minutes)
    losses = int(random.random() < 0.25) if minutes is None else round(PER_MINUTE * minutes)
    target = _PAIRS[seed % len(_PAIRS)] if random.random() < TARGETED else None
    # Those that are prepared, or that have served, are stopped.
    is_stop = target is not None and target[0] is Call.STOP
    return Standbys(
        random.randint(1, MOST),
        target,
        random.random() < 0.75 and not is_stop,
        random.choice((0.0, 0.0, 0.3)),
        tuple(sorted((random.random(), random.randint(0, MOST)) for _ in range(changes))),
        losses=tuple(sorted(random.random() for _ in range(losses))),
        is_auto=random.random() < AUTO_SHARE,
    )


def given(spec: ServiceSpec, standbys: Standbys) -> ServiceSpec:
    """The service with its standbys, as its service file would have it."""
    if standbys.is_auto:
        return replace(spec, standby=standby_count.most_at_risk(spec), standby_auto=True)
    return replace(spec, standby=standbys.number, standby_auto=False)
