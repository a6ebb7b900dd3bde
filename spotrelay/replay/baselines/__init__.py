"""The policies that SpotRelay is compared with, each in a file of its own, described and sourced there."""

from collections.abc import Mapping

from spotrelay.replay.baselines.asg import Asg
from spotrelay.replay.baselines.baseline import Baseline
from spotrelay.replay.baselines.even_spread import EvenSpread
from spotrelay.replay.baselines.on_demand import OnDemand
from spotrelay.replay.baselines.round_robin import RoundRobin
from spotrelay.replay.baselines.single_pool import SinglePool
from spotrelay.replay.baselines.spothedge import SpotHedge
from spotrelay.replay.baselines.spothedge_warned import SpotHedgeWarned

__all__ = ["BASELINES", "Baseline"]

BASELINES: Mapping[str, type[Baseline]] = {
    policy.name: policy
    for policy in (OnDemand, SpotHedge, SpotHedgeWarned, Asg, RoundRobin, EvenSpread, SinglePool)
}
"""By name, in the order in which they are shown. `optimal` isn't among them, for it doesn't act."""
