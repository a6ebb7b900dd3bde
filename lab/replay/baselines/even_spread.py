"""Even Spread, from SkyServe's evaluation: as many replicas in each zone, whatever happens there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from lab.replay.baselines.plan import launch_planned
from lab.replay.baselines.spot_only import SpotOnly
from lab.replay.baselines.spothedge import OVERPROVISIONED

if TYPE_CHECKING:
    from lab.replay.cloud import Machine, ReplayCloud
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace


class EvenSpread(SpotOnly):
    """Each missing replica is asked for in the pool that has the fewest, the first of equals.

    There is no on-demand. So a pool that refuses stays the one with the fewest, and is asked again and again:
    the spread is static. With more pools than replicas only the first are used; the order is drawn from the
    seed, as the artifact shuffles its zones for every repetition.
    """

    name: ClassVar[str] = "even-spread"
    summary: ClassVar[str] = "N + 1 Spot replicas, spread evenly; a missing one waits for its own pool"
    source: ClassVar[str] = "SkyServe (EuroSys'25), artifact MaoZiming/spothedge_ae: policies/naive_spread.py"
    period_s: ClassVar[float] = 30.0
    """The artifact's tick: it sees a loss at the next one, and tries again with every tick."""
    extra: ClassVar[int] = OVERPROVISIONED
    """One more than needed, as for round-robin."""

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:
        super().__init__(trace, settings)
        self._order = [p.pool for p in trace.pools]
        self._chance.shuffle(self._order)

    def place(self, cloud: ReplayCloud, missing: int, present: Sequence[Machine]) -> list[Machine]:
        """The pool with the fewest for each; what is refused counts, or all would ask the same pool."""
        planned = [0] * len(self._order)
        for machine in present:
            planned[self._order.index(machine.offering.pool)] += 1
        plan = []
        for _ in range(missing):
            fewest = planned.index(min(planned))
            planned[fewest] += 1
            plan.append(self._order[fewest])
        return launch_planned(cloud, plan)[0]
