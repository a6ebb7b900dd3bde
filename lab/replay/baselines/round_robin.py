"""Round Robin, from SkyServe's evaluation: the next zone's turn."""

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


class RoundRobin(SpotOnly):
    """Each missing replica is asked for in the next pool of a circle, once per look.

    There is no on-demand. The circle's order is drawn from the seed, as the artifact shuffles its zones for
    every repetition. A refused replica has had its pool's turn: it tries the next one a look later.
    """

    name: ClassVar[str] = "round-robin"
    summary: ClassVar[str] = "N + 1 Spot replicas; a missing one tries pool after pool in a circle"
    source: ClassVar[str] = "SkyServe (EuroSys'25), artifact MaoZiming/spothedge_ae: policies/round_robin.py"
    period_s: ClassVar[float] = 30.0
    """The artifact's tick: it sees a loss at the next one, and tries one pool per tick."""
    extra: ClassVar[int] = OVERPROVISIONED
    """One more than needed, as in the published figures: N alone can't cost the 37 and 39 % that they
    show."""

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:
        super().__init__(trace, settings)
        self._circle = [p.pool for p in trace.pools]
        self._chance.shuffle(self._circle)
        self._turn = 0

    def place(self, cloud: ReplayCloud, missing: int, present: Sequence[Machine]) -> list[Machine]:  # noqa: ARG002
        """One pool for each, in turn."""
        turns = [(self._turn + n) % len(self._circle) for n in range(missing)]
        self._turn = (self._turn + missing) % len(self._circle)
        return launch_planned(cloud, (self._circle[turn] for turn in turns))[0]
