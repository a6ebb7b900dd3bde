"""Versions that EC2 refuses to launch, drawn from a seed: for an image, a disk or a key that isn't there.

Only another version repairs that. So somebody deploys one, after faults have ended at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SHARE = 0.12
"""The share of runs in which EC2 refuses a version."""

CRASHES = 0.2
"""The share of first starts whose version never comes up."""

LAST_REPAIR = 1.5
"""When somebody looks for the last time at the earliest if an operator rolls back: after that, because an
operator may go back to a version that doesn't start."""

ROLLED_BACK = 0.12
"""The share of runs in which an operator rolls a version back."""

ILL = 0.25
"""The share of the other runs with roll-outs in which a version answers for a while, and then no more."""

ILL_AFTER_S = (1.0, 90.0)
"""For how long it answers: until within its time to be relied on, or beyond it."""


@dataclass(frozen=True, slots=True)
class Versions:
    """What befalls the versions of a run's services."""

    is_first_refused: bool = False
    """Whether EC2 refuses what is deployed at the beginning."""
    is_first_bad: bool = False
    """Whether no replica of it ever comes up: then it is repaired only after a few have failed in a row."""
    refused_at: tuple[float, ...] = ()
    """When a version is deployed that EC2 refuses; as a share of the time that faults last."""
    vanishes_at: tuple[float, ...] = ()
    """When EC2 begins to refuse what is deployed, as its image is gone; as a share of the same."""
    takes_all: bool = False
    """Whether EC2 takes back all that runs on Spot at that moment."""
    repaired_at: tuple[tuple[float, bool], ...] = ()
    """When somebody looks and deploys another version, if EC2 refuses the one that is there; as a share of
    the same, and beyond 1 of `REPAIRED_S` of `lab.sim.versions` after it. And whether EC2 refuses that one,
    too."""
    rollbacks: tuple[Rollbacks, ...] = ()
    """When an operator rolls back."""
    ill: tuple[tuple[float, float], ...] = ()
    """When a version is deployed that turns ill, as a share of the same, and after how many seconds it does.
    It is repaired only if it isn't given up."""


@dataclass(frozen=True, slots=True)
class Rollbacks:
    """A version is deployed, rolled back and perhaps tried again; as shares of the time that faults last, and
    beyond 1 as those of `Versions.repaired_at`."""

    deployed_at: float | None
    """None: what is there is rolled back."""
    at: float
    reset_at: float | None
    """When the rollback is ended by command; None: a deployment may end it, or nothing."""
    lost_after_s: float | None
    """How long after it EC2 takes back one that has the version that was given up; None: it takes none."""


def draw(seed: int, minutes: float | None, *, is_warm: bool, rolls_out: bool) -> Versions:
    """A seed's versions, from a generator of their own: the rest of the run doesn't depend on them."""
    crashes = Random(f"{seed}-crashes")  # noqa: S311 - to be repeated, not to be unpredictable
    if not is_warm and crashes.random() < CRASHES:
        return Versions(is_first_bad=True, repaired_at=((2.0, False),))
    rollbacks = _rollbacks(seed, minutes)
    random = Random(f"{seed}-versions")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= SHARE:
        ill = Random(f"{seed}-ill")  # noqa: S311 - to be repeated, not to be unpredictable
        if rolls_out and not rollbacks and ill.random() < ILL:
            turns_ill = ill.uniform(0.0, 0.9), ill.uniform(*ILL_AFTER_S)
            return Versions(ill=(turns_ill,), repaired_at=((2.0, False),))
        return Versions(rollbacks=rollbacks, repaired_at=((LAST_REPAIR, False),) if rollbacks else ())
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
        repaired_at=(*repairs, (max(1.0 + random.random(), LAST_REPAIR if rollbacks else 1.0), False)),
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
        if random.random() < 0.5:
            deployed_at, at = 0.5 + deployed_at / 2, 1.0 + at / 4  # both have served by then
        drawn.append(
            Rollbacks(
                deployed_at if is_deployed else None,
                at,
                max(reset_at, at) if is_reset else None,
                random.uniform(1.0, 20.0) if random.random() < 0.7 else None,
            )
        )
    return tuple(drawn)
