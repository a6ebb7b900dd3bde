"""What befalls standbys: another number is deployed, and somebody terminates a stopped instance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lab.sim.instances import SimInstance
from lab.sim.scenario.standbys import Standbys, given
from lab.sim.world import SimWorld
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.replica import ReplicaState


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
