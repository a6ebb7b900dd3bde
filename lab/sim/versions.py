"""Versions that EC2 refuses to launch, drawn from a seed: for an image, a disk or a key that isn't there.

Only another version repairs that. So somebody deploys one, after faults have ended at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from spotrelay.core.instances import Refusal, RefusalKind
from spotrelay.core.pools import Offering, PurchaseOption
from spotrelay.core.ports import Denied, LaunchRequest, LaunchResult

if TYPE_CHECKING:
    from lab.sim.world import SimWorld

SHARE = 0.12
"""The share of runs in which EC2 refuses a version."""

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


def draw(seed: int, minutes: float | None, *, is_warm: bool) -> Versions:
    """A seed's versions, from a generator of their own: the rest of the run doesn't depend on them."""
    random = Random(f"{seed}-versions")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= SHARE:
        return Versions()
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
    )


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
    """Somebody sees that EC2 refuses the deployed version, and deploys another one."""
    spec = world.services.valid(service, world.scheduler.now)
    if spec and (service, spec.version) in world.cloud.refused_versions:
        deploy(world, service, is_refused=is_refused)
