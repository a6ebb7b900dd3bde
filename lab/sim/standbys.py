"""Standbys, drawn from a seed: how many a service has, when that changes, and what befalls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from lab.sim.faults import OF_STANDBYS, PAIRS, Call, Pair
from lab.sim.instances import SimInstance
from spotrelay.core.instances import InstanceState
from spotrelay.core.replica import ReplicaState
from spotrelay.core.spec import ServiceSpec
from spotrelay.serving import standby_count

if TYPE_CHECKING:
    from lab.sim.world import SimWorld

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
    """When somebody terminates a stopped instance; as a share of that time, see `schedule`."""


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


def schedule(world: SimWorld, standbys: Standbys) -> None:
    """Have it happen."""
    last = 0.9 * world.scenario.faults_s
    service = world.scenario.specs[0].service
    for share, number in standbys.deploys:
        world.scheduler.at(share * last, partial(_deploy, world, service, number))
    struck = [when for when, _ in world.scenario.misfortunes]
    for share in standbys.losses:
        # Half of them just before a misfortune, so that what is lost would be needed.
        is_before = struck and share < 0.5
        when = max(struck[int(2 * share * len(struck))] - 4 * share, 0.0) if is_before else share * last
        world.scheduler.at(when, partial(_lose, world, service))


def _deploy(world: SimWorld, service: str, number: int) -> None:
    spec = world.services.valid(service, world.scheduler.now)
    if spec:
        world.say(f"** {number} standbys are deployed")
        world.deploy(given(spec, Standbys(number)))


def _lose(world: SimWorld, service: str) -> None:
    """Somebody terminates a stopped instance."""
    stopped = _stopped(world, service)
    if stopped:
        world.say(f"** somebody terminates {stopped[0].id}")
        world.cloud.end(stopped[0])


def _stopped(world: SimWorld, service: str) -> Sequence[SimInstance]:
    rows = world.memory.load(service).replicas.values()
    standbys = {r.instance_id for r in rows if r.state is ReplicaState.STANDBY}
    now = world.scheduler.now
    there = (i for i in world.cloud.of(service) if i.id in standbys)
    return [i for i in there if i.state(now) is InstanceState.STOPPED]
