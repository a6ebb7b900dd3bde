"""EC2 Auto Scaling as it comes: a group of Spot instances in one region, replaced once they are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from lab.replay.baselines.spot_only import SpotOnly
from lab.replay.capacity import usable_share
from spotrelay.plane.core.pools import PurchaseOption

if TYPE_CHECKING:
    from lab.replay.cloud import Machine, ReplayCloud
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace


class Asg(SpotOnly):
    """A group over all zones and types of one region, capacity rebalancing off, Spot only.

    *One region*, because a group can't span two: the one whose pools could have carried the largest share of
    N over the whole trace, which nobody could have known.

    *Replaces after the loss*: "When you don't use Capacity Rebalancing, Amazon EC2 Auto Scaling doesn't
    replace Spot Instances until after the Amazon EC2 Spot service interrupts the instances and their health
    check fails."

    *Where*: the zone with the fewest of its instances, price-capacity-optimized within the zone; if EC2
    refuses there, the other zones at once. It never moves instances back to a zone that recovers, though a
    real group does.

    *Spot only*: a mixed instances policy splits a group into fixed shares (OnDemandBaseCapacity and
    OnDemandPercentageAboveBaseCapacity). It isn't a fallback: Spot that is refused is tried again as Spot.
    With all N wanted, a fixed on-demand share saves availability only in so far as fewer Spot replicas are
    needed, and costs three times as much all day.
    """

    name: ClassVar[str] = "asg"
    summary: ClassVar[str] = (
        "EC2 Auto Scaling: N Spot replicas in the best region, replaced once they are gone"
    )
    source: ClassVar[str] = (
        "EC2 Auto Scaling user guide: Capacity Rebalancing; health checks; mixed instances groups"
    )
    period_s: ClassVar[float] = 60.0
    """EC2's status checks run every minute. How often a group looks at them and how soon it tries again AWS
    doesn't say; this is the shortest that makes sense."""

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:
        super().__init__(trace, settings)

        def usable(region: str) -> float:
            pools = [p for p in trace.pools if p.pool.region == region]
            return usable_share(pools, settings.replicas, 0, trace.duration_s)

        # A dict, not a set: of equals the first in the trace's order is taken, each time the same.
        region = max(dict.fromkeys(p.pool.region for p in trace.pools), key=usable)
        self._pools = [p.pool for p in trace.pools if p.pool.region == region]
        self._zones = list(dict.fromkeys(pool.zone for pool in self._pools))

    def place(self, cloud: ReplayCloud, missing: int, present: Sequence[Machine]) -> list[Machine]:
        """Zone after zone, the emptiest first, for each."""
        held = Counter(machine.offering.pool.zone for machine in present)
        launched: list[Machine] = []
        for _ in range(missing):
            for zone in sorted(self._zones, key=lambda zone: held[zone]):
                pools = [pool for pool in self._pools if pool.zone == zone]
                machines, _ = cloud.launch(PurchaseOption.SPOT, 1, pools)
                if machines:
                    launched += machines
                    held[zone] += 1
                    break
            else:
                break  # every zone refused one, so it would refuse another
        return launched
