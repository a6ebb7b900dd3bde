"""Versions that EC2 refuses to launch, that never come up or are rolled back, and what repairs them."""

from __future__ import annotations

from functools import partial

from lab.sim.rules.backoff import has_stopped_short
from lab.sim.rules.desired import rolled_back
from lab.sim.scenario.versions import Rollbacks, Versions
from lab.sim.world import SimWorld
from spotrelay.operator import rollback
from spotrelay.operator.adoption import NO_VERSION
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.rows import Backoff, Changes, Rollback
from spotrelay.plane.events.ticks import Tick

REPAIRED_S = 900.0
"""How long after the end of faults the version is repaired, at most."""


def schedule(world: SimWorld, versions: Versions) -> None:
    """Have EC2 refuse versions, and somebody repair them."""
    service = world.scenario.specs[0].service
    faults_s = world.scenario.faults_s
    if versions.is_first_refused:
        world.cloud.refused_versions.add((service, 1))
    if versions.is_first_bad:
        world.cloud.bad_versions.add((service, 1))
    for share in versions.refused_at:
        world.scheduler.at(share * faults_s, partial(deploy, world, service, is_refused=True))
    for share, after_s in versions.ill:
        world.scheduler.at(share * faults_s, partial(_deploy_ill, world, service, after_s))
    for share in versions.vanishes_at:
        world.scheduler.at(share * faults_s, partial(_vanish, world, service))
    for share, is_in_vain in versions.repaired_at:
        world.scheduler.at(_time(share, faults_s), partial(_repair, world, service, is_refused=is_in_vain))
    for one in versions.rollbacks:
        _schedule_rollback(world, service, one)


def _schedule_rollback(world: SimWorld, service: str, one: Rollbacks) -> None:
    faults_s = world.scenario.faults_s
    if one.deployed_at is not None:
        world.scheduler.at(one.deployed_at * faults_s, partial(deploy, world, service, is_refused=False))
    at = _time(one.at, faults_s)
    world.scheduler.at(at, partial(_roll_back, world, service))
    if one.lost_after_s is not None:
        world.scheduler.at(at + one.lost_after_s, partial(_lose, world, service))
    if one.reset_at is not None:
        world.scheduler.at(_time(one.reset_at, faults_s), partial(_reset, world, service))


def _time(share: float, faults_s: float) -> float:
    """When that is."""
    return min(share, 1.0) * faults_s + max(share - 1.0, 0.0) * REPAIRED_S


def deploy(world: SimWorld, service: str, *, is_refused: bool) -> None:
    """Deploy another version than there ever was."""
    spec = world.services.valid(service, world.scheduler.now)
    if spec is None:
        return
    version = _next(world, service)
    if is_refused:
        world.say(f"** EC2 will refuse version {version}")
        world.cloud.refused_versions.add((service, version))
    world.deploy(world.scenario.of_version(spec, version))


def _deploy_ill(world: SimWorld, service: str, after_s: float) -> None:
    """Deploy a version whose servers answer for so long, and then no more."""
    if world.services.valid(service, world.scheduler.now) is None:
        return
    version = _next(world, service)
    world.say(f"** version {version} answers for {after_s:.0f} s, and then no more")
    world.cloud.ill_versions[service, version] = after_s
    deploy(world, service, is_refused=False)


def _next(world: SimWorld, service: str) -> int:
    """Another version than there ever was."""
    known = (document.version for _, document in world.services.documents[service] if document)
    return max(known) + 1


def _vanish(world: SimWorld, service: str) -> None:
    """The image of the deployed version is gone, and perhaps all that has it on Spot."""
    spec = world.services.valid(service, world.scheduler.now)
    if spec is None:
        return
    world.say(f"** the image of version {spec.version} is gone")
    world.cloud.refused_versions.add((service, spec.version))
    if world.scenario.versions.takes_all:
        for instance in list(world.cloud.of(service)):
            if instance.offering.purchase_option is PurchaseOption.SPOT:
                world.cloud.warn(instance)


def _repair(world: SimWorld, service: str, *, is_refused: bool) -> None:
    """Somebody sees that EC2 refuses the version that is to be, and deploys another one.

    An operator may have gone back to one that doesn't start, too. One that turns ill may have been given up:
    then nobody needs to do anything, unless EC2 refuses the older one, too.
    """
    deployed, rows = world.services.valid(service, world.scheduler.now), world.memory.load(service)
    spec = rolled_back(deployed, rows)
    if spec is None:
        return
    # What was adopted has no version that could be launched instead.
    older = [r for r in rows.replicas.values() if r.serves and NO_VERSION != r.version < spec.version]
    is_given_up = has_stopped_short(spec, rows) and bool(older)
    is_ill = (service, spec.version) in world.cloud.ill_versions and not is_given_up
    is_bad = (service, spec.version) in world.cloud.bad_versions
    is_bad &= spec is not deployed or world.scenario.versions.is_first_bad
    needed = {spec.version, *(r.version for r in older if is_given_up)}
    is_stuck = any((service, version) in world.cloud.refused_versions for version in needed)
    if is_ill or is_bad or is_stuck:
        deploy(world, service, is_refused=is_refused)


def _roll_back(world: SimWorld, service: str) -> None:
    """An operator gives the deployed version up, as `spotrelay rollback` does."""
    spec = world.services.valid(service, world.scheduler.now)
    back = rollback.before(spec, world.memory.load(service)) if spec else None
    if back is None:
        return  # the command refuses that
    world.say(f"** an operator rolls back from version {back.version} to {back.to}")
    _note(world, service, back)


def _lose(world: SimWorld, service: str) -> None:
    """EC2 takes back one that has a version that was given up, and has served if any has."""
    rows, now = world.memory.load(service), world.scheduler.now
    back, served = rows.rollback, {r.instance_id for r in rows.replicas.values() if r.serves}
    with_it = [i for i in world.cloud.of(service) if back and i.version == back.version and i.is_alive(now)]
    spot = [i for i in with_it if i.offering.purchase_option is PurchaseOption.SPOT]
    if spot:
        world.cloud.warn(max(spot, key=lambda instance: instance.id in served))


def _reset(world: SimWorld, service: str) -> None:
    """An operator ends the rollback, and has the deployed version tried again."""
    if world.services.valid(service, world.scheduler.now):
        world.say("** an operator ends the rollback")
        world.memory.commit(Changes(service, backoff=Backoff()))
        _note(world, service, None)


def _note(world: SimWorld, service: str, back: Rollback | None) -> None:
    world.memory.note_rollback(service, back)
    world.note_in_effect(service)
    world.ticks.send_once(Tick(service).to_json())
