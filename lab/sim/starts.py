"""What shortens a run's starts, drawn from its seed: a pack, an engine's cache, peers. Where these fail, a
start takes longer.

Nothing of it may do more than that. So even what meets all three is ready within its service's initial delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from lab.sim.instances import SimInstance

SHARE = 0.1
"""The share of runs in which starts are shortened, by one of the three at least."""

SINCE = 3000
"""The first seed that may have them, after the standard run's: there each port call goes wrong in each way,
and some do in one seed alone, which must stay as it is."""

SET_UP, COMPILE, BUCKET = 0.5, 0.25, 0.25
"""What each takes of the time that a start may take: in `services/llama3.yaml` set-up takes longest."""

SPARE_S = 15.0
"""Of a service's initial delay, for the probe that finds it ready."""

PEERS = 2
"""So many are named at a launch."""


@dataclass(frozen=True, slots=True)
class Starts:
    """What lets starts down. By default nothing does."""

    pack_fails: float = 0.0
    """The share of launches that can't have their pack, and run set-up."""
    pack_gone_at: float | None = None
    """When the pack vanishes, as a share of the time that faults last; None: it stays."""
    cached: str | None = None
    """The instance type that the engine's cache is for: others have another GPU, and compile. None: any."""
    lying: float | None = None
    """The share of peers that send wrong bytes; None: nobody asks peers."""


def draw(seed: int, types: Sequence[str]) -> Starts:
    """A seed's starts, from a generator of their own: the rest of the run doesn't depend on them."""
    random = Random(f"{seed}-start")  # noqa: S311 - to be repeated, not to be unpredictable
    if seed < SINCE or random.random() >= SHARE:
        return Starts()
    return Starts(
        random.choice((0.0, 0.2, 1.0)),
        random.choice((None, random.random())),
        random.choice((None, *types)),
        random.choice((None, 0.0, 0.5)),
    )


class LateStarts:
    """How much later than otherwise instances are ready."""

    def __init__(self, starts: Starts, random: Random, faults_s: float) -> None:
        self._starts = starts
        self._random = random
        self._gone_at = None if starts.pack_gone_at is None else starts.pack_gone_at * faults_s

    def later(self, instance: SimInstance) -> float:
        """By which share of the time that its start may take, for want of a pack and a cache."""
        is_gone = self._gone_at is not None and instance.launched_at >= self._gone_at
        is_other = self._starts.cached not in (None, instance.offering.pool.instance_type)
        runs_set_up = self._random.random() < self._starts.pack_fails or is_gone
        return SET_UP * runs_set_up + COMPILE * is_other

    def honest(self, serving: Sequence[SimInstance]) -> list[SimInstance] | None:
        """Those of the peers that its launch names that don't lie; None: it asks nobody."""
        lying = self._starts.lying
        if lying is None:
            return None
        named = self._random.sample(serving, min(PEERS, len(serving)))
        return [peer for peer in named if self._random.random() >= lying]
