"""Moves to cheaper Spot, drawn from a seed: who moves, how old fleets are, and when prices change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from lab.sim.offers import Listing

if TYPE_CHECKING:
    from lab.sim.world import SimWorld

SHARE = 0.25
"""The share of runs in which replicas move."""

COSTS = (0.05, 0.2, 0.5)
"""Their `rebalance_cost`."""

MAY_MOVE_S = 3600.0
"""How long a replica has been ready before it moves: docs/placement.md."""

OLD_S = 2 * MAY_MOVE_S

LATE_S = 120.0

PER_MINUTE = 0.3
"""How often prices change in a long run."""


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of a run's services."""

    cost: float | None = None
    """The services' `rebalance_cost`."""
    age_s: float | None = None
    """How long the replicas of a warm start have been ready: longer than that, or soon; None: as ever."""
    prices: tuple[float, ...] = ()
    """When Spot becomes dear where replicas run, and EC2 is asked: as a share of the time that faults last;
    beyond 1 it is just after."""


def draw(seed: int, minutes: float | None) -> Moves:
    """A seed's moves, from a generator of their own: the rest of the run doesn't depend on them."""
    random = Random(f"{seed}-moves")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= SHARE:
        return Moves()
    changes = random.randint(0, 2) if minutes is None else round(PER_MINUTE * minutes)
    first, last = random.choice((0.0, 0.0, random.random())), random.uniform(1.0, 1.5)
    return Moves(
        random.choice(COSTS),
        random.choice((OLD_S, OLD_S, OLD_S, MAY_MOVE_S - random.uniform(0.0, 150.0))),
        tuple(sorted([first, *(random.random() for _ in range(changes)), last])),
    )


def surveyed(listing: Listing, moves: Moves) -> Listing:
    """Where nobody asks what Spot costs nothing moves."""
    return listing if moves.cost is None else replace(listing, is_surveyed=True)


def schedule(world: SimWorld, moves: Moves) -> None:
    """Have prices change."""
    service = world.scenario.specs[0].service
    for share in moves.prices:
        # What comes after faults does so within a minute: the run ends once everything is at rest.
        when = min(share, 1.0) * world.scenario.faults_s + max(share - 1.0, 0.0) * LATE_S
        world.scheduler.at(when, partial(_change_prices, world, service))


def _change_prices(world: SimWorld, service: str) -> None:
    world.say("** Spot costs something else")
    now = world.scheduler.now
    pools = {i.offering.pool for i in world.cloud.of(service) if i.is_alive(now)}
    world.cloud.offers.change_prices(dear=pools)
    spec = world.services.valid(service, world.scheduler.now)
    if spec:
        world.survey(spec)
