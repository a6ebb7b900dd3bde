"""Versions that EC2 refuses to launch, drawn from a seed: for an image, a disk or a key that isn't there.

Only another version repairs that. So somebody deploys one, after faults have ended at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from lab.sim.rules.desired import rolled_back
from spotrelay.core.instances import Refusal, RefusalKind
from spotrelay.core.pools import Offering, PurchaseOption
from spotrelay.core.ports import Denied, LaunchRequest, LaunchResult
from spotrelay.core.rows import Backoff, Changes, Rollback
from spotrelay.events.ticks import Tick
from spotrelay.operate import rollback

if TYPE_CHECKING:
    from lab.sim.world import SimWorld

SHARE = 0.12
"""The share of runs in which EC2 refuses a version."""

ROLLED_BACK = 0.12
"""The share of runs in which an operator rolls a version back."""

REPAIRED_S = 900.0
"""How long after the end of faults the version is repaired, at most."""

CODE = "InvalidAMIID.NotFound"


@dataclass(frozen=True, slots=True)
class Versions:
    """What befalls the versions of a run's services."""

    is_first_refused: bool = False
    """Whether EC2 refuses what is deployed at the beginning."""
    refused_at: tuple[float, ...] = ()
    """When a version is deployed that EC2 refuses; as a share of the time that faults last."""
    vanishes_at: tuple[float, ...] = ()
    """When EC2 begins to refuse what is deployed, as its image is gone; as a share of the same."""
    takes_all: bool = False
    """Whether EC2 takes back all that runs on Spot at that moment."""
    repaired_at: tuple[tuple[float, bool], ...] = ()
    """When somebody looks and deploys another version, if EC2 refuses the one that is there; as a share of
    the same, and beyond 1 of `REPAIRED_S` after it. And whether EC2 refuses that one, too."""
    rollbacks: tuple[Rollbacks, ...] = ()
    """When an operator rolls back."""


@dataclass(frozen=True, slots=True)
class Rollbacks:
    """A version is deployed, rolled back and perhaps tried again; as shares of the time that faults last."""

    deployed_at: float | None
    """None: what is there is rolled back."""
    at: float
    reset_at: float | None
    """When the rollback is ended by command; None: a deployment may end it, or nothing."""
    lost_after_s: float | None
    """How long after it EC2 takes back one that has the version that was given up; None: it takes none."""


def draw(seed: int, minutes: float | None, *, is_warm: bool) -> Versions:
    """A seed's versions, from a generator of their own: the rest of the run doesn't depend on them."""
    rollbacks = _rollbacks(seed, minutes)
    random = Random(f"{seed}-versions")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= SHARE:
        # An operator may go back to a version that doesn't start.
        return Versions(rollbacks=rollbacks, repaired_at=((1.5, False),) if rollbacks else ())
    number = 1 if minutes is None else max(round(minutes / 20), 1)
    is_vanishing = random.random() < 0.6
    times = tuple(sorted(random.uniform(0.0, 0.8) for _ in range(number)))
    times_of_repair = sorted(random.uniform(0.2, 1.0) for _ in range(random.randint(0, 2 * number)))
    repairs = [(share, random.random() < 0.3) for share in times_of_repair]
    return Versions(
        is_first_refused=not is_warm and random.random() < 0.7,
        refused_at=() if is_vanishing else times,
        vanishes_at=times if is_vanishing else (),
        takes_all=random.random() < 0.7,
        repaired_at=(*repairs, (1.0 + random.random(), False)),
        rollbacks=rollbacks,
    )


def _rollbacks(seed: int, minutes: float | None) -> tuple[Rollbacks, ...]:
    """A seed's rollbacks, from a generator of their own."""
    random = Random(f"{seed}-rollbacks")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= ROLLED_BACK:
        return ()
    number = 1 if minutes is None else max(round(minutes / 20), 1)
    drawn = []
    for _ in range(number):
        deployed_at, at, reset_at = sorted(random.random() for _ in range(3))
        is_deployed, is_reset = random.random() < 0.8, random.random() < 0.4
        if random.random() < 0.3:
            deployed_at, at = 0.0, 0.9 + at / 10  # perhaps it serves by then
        drawn.append(
            Rollbacks(
                deployed_at if is_deployed else None,
                at,
                max(reset_at, at) if is_reset else None,
                random.uniform(1.0, 20.0) if random.random() < 0.5 else None,
            )
        )
    return tuple(drawn)


def schedule(world: SimWorld, versions: Versions) -> None:
    """Have EC2 refuse versions, and somebody repair them."""
    service = world.scenario.specs[0].service
    faults_s = world.scenario.faults_s
    if versions.is_first_refused:
        world.cloud.refused_versions.add((service, 1))
    for share in versions.refused_at:
        world.scheduler.at(share * faults_s, partial(deploy, world, service, is_refused=True))
    for share in versions.vanishes_at:
        world.scheduler.at(share * faults_s, partial(_vanish, world, service))
    for share, is_in_vain in versions.repaired_at:
        when = min(share, 1.0) * faults_s + max(share - 1.0, 0.0) * REPAIRED_S
        world.scheduler.at(when, partial(_repair, world, service, is_refused=is_in_vain))
    for one in versions.rollbacks:
        if one.deployed_at is not None:
            world.scheduler.at(one.deployed_at * faults_s, partial(deploy, world, service, is_refused=False))
        world.scheduler.at(one.at * faults_s, partial(_roll_back, world, service))
        if one.lost_after_s is not None:
            world.scheduler.at(one.at * faults_s + one.lost_after_s, partial(_lose, world, service))
        if one.reset_at is not None:
            world.scheduler.at(one.reset_at * faults_s, partial(_reset, world, service))


def refused(request: LaunchRequest) -> LaunchResult:
    """How EC2 refuses what a version asks: the request, the fleet as a whole, or each of its pools.

    Raises:
        Denied: the request.
    """
    how, words = request.spec.version % 3, f"{CODE}: the image does not exist"
    if how == 0:
        raise Denied(words, CODE)
    pools = [Offering(pool, request.purchase_option) for pool in request.pools]
    about = pools if how == 1 else [None]
    return LaunchResult(refusals=tuple(Refusal(RefusalKind.REQUEST, CODE, words, each) for each in about))


def deploy(world: SimWorld, service: str, *, is_refused: bool) -> None:
    """Deploy another version than there ever was."""
    spec = world.services.valid(service, world.scheduler.now)
    if spec is None:
        return
    known = (document.version for _, document in world.services.documents[service] if document)
    version = max(known) + 1
    if is_refused:
        world.say(f"** EC2 will refuse version {version}")
        world.cloud.refused_versions.add((service, version))
    world.deploy(world.scenario.of_version(spec, version))


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

    An operator may have gone back to one that doesn't start, too.
    """
    deployed = world.services.valid(service, world.scheduler.now)
    spec = rolled_back(deployed, world.memory.load(service))
    if spec is None:
        return
    is_bad = spec is not deployed and spec.version in world.cloud.bad_versions
    if is_bad or (service, spec.version) in world.cloud.refused_versions:
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
    """EC2 takes back one that has a version that was given up."""
    back, now = world.memory.load(service).rollback, world.scheduler.now
    with_it = [i for i in world.cloud.of(service) if back and i.version == back.version and i.is_alive(now)]
    spot = [i for i in with_it if i.offering.purchase_option is PurchaseOption.SPOT]
    if spot:
        world.cloud.warn(spot[0])


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
