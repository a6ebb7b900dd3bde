"""Moves, drawn from a seed: who moves, how old fleets are, and when prices and scores change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from lab.sim.offers import Listing

SHARE = 0.25
"""The share of runs in which replicas move."""

COSTS = (0.05, 0.2, 0.5)
"""Their `rebalance_cost`."""

MAY_MOVE_S = 3600.0
"""How long a replica has been ready before it moves: docs/placement.md."""

OLD_S = 2 * MAY_MOVE_S

PER_MINUTE = 0.3
"""How often prices change in a long run."""

SCORED_SHARE = 0.2
"""The share of runs in which replicas move by score."""

BEFORE_S = (1500.0, 2100.0, 3600.0, 3600.0, 3600.0, 3600.0, 7500.0)
"""How long before a run the survey before the first one came: too shortly, long enough, or too long."""


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
    on_score: bool = False
    """Whether the services have `move_on_score`."""
    scores: tuple[float, ...] = ()
    """When zones fall and rise, as `prices`. One survey is made before the run."""
    before_s: float = 0.0
    """How long before."""

    @property
    def has_any(self) -> bool:
        """Whether replicas move at all."""
        return self.on_score or self.cost is not None


def draw(seed: int, minutes: float | None) -> Moves:
    """A seed's moves, from generators of their own: the rest of the run doesn't depend on them."""
    found = _by_price(seed, minutes)
    random = Random(f"{seed}-scores")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= SCORED_SHARE:
        return found
    changes = random.randint(0, 2) if minutes is None else round(PER_MINUTE * minutes)
    return replace(
        found,
        age_s=found.age_s or random.choice((OLD_S, OLD_S, OLD_S, MAY_MOVE_S - random.uniform(0.0, 150.0))),
        on_score=True,
        scores=tuple(sorted(random.random() for _ in range(changes))),
        before_s=random.choice(BEFORE_S),
    )


def _by_price(seed: int, minutes: float | None) -> Moves:
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
    return replace(listing, is_surveyed=True) if moves.has_any else listing
