"""The policies that SpotRelay is compared with, each in a file of its own, described and sourced there."""

from collections.abc import Mapping

from lab.replay.baselines.asg import Asg
from lab.replay.baselines.baseline import Baseline
from lab.replay.baselines.even_spread import EvenSpread
from lab.replay.baselines.on_demand import OnDemand
from lab.replay.baselines.round_robin import RoundRobin
from lab.replay.baselines.single_pool import SinglePool
from lab.replay.baselines.spothedge import SpotHedge
from lab.replay.baselines.spothedge_warned import SpotHedgeWarned

__all__ = ["BASELINES", "Baseline"]

BASELINES: Mapping[str, type[Baseline]] = {
    policy.name: policy
    for policy in (OnDemand, SpotHedge, SpotHedgeWarned, Asg, RoundRobin, EvenSpread, SinglePool)
}
"""By name, in the order in which they are shown. `optimal` isn't among them, for it doesn't act."""
