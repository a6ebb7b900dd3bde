"""One instance type in one zone: what a group looks like that was never diversified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from lab.replay.baselines.asg import Asg
from lab.replay.baselines.spot_only import SpotOnly
from lab.replay.capacity import usable_share
from spotrelay.plane.core.pools import PurchaseOption

if TYPE_CHECKING:
    from lab.replay.cloud import Machine, ReplayCloud
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace


class SinglePool(SpotOnly):
    """An Auto Scaling group with a single pool; otherwise as `Asg` explains.

    The pool is the one that could have carried the largest share of N over the whole trace, which nobody
    could have known.
    """

    name: ClassVar[str] = "single-pool"
    summary: ClassVar[str] = "N Spot replicas in the best pool, replaced once they are gone"
    source: ClassVar[str] = "EC2 Auto Scaling, as for asg, with one instance type in one zone"
    period_s: ClassVar[float] = Asg.period_s

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:
        super().__init__(trace, settings)
        best = max(trace.pools, key=lambda pool: usable_share([pool], settings.replicas, 0, trace.duration_s))
        self._pool = best.pool

    def place(self, cloud: ReplayCloud, missing: int, present: Sequence[Machine]) -> list[Machine]:  # noqa: ARG002
        """All of them in the one pool, as far as it goes."""
        return cloud.launch(PurchaseOption.SPOT, missing, [self._pool])[0]
