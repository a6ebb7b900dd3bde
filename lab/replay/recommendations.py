"""EC2's recommendations to leave an instance, made up: no recording has any.

A share of the moments in which a pool comes to hold less is announced some minutes ahead, to as many of the
pool's instances as would be taken if it happened at once. EC2 publishes neither how many are announced, nor
how long before, nor how often nothing follows. So both shares are settings, and the lead is an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from spotrelay.plane.core.pools import CapacityPool

if TYPE_CHECKING:
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import PoolTrace, Trace

AHEAD_S = (300.0, 600.0)
"""A recommendation comes so long before the loss: five to ten minutes. EC2 promises nothing, and some come
with the warning, which are none that help."""


class Recommendation(NamedTuple):
    """At that time EC2 recommends to leave what the pool has beyond what it is going to hold."""

    at: float
    pool: CapacityPool
    held: int


def recommendations(trace: Trace, settings: ReplaySettings) -> list[Recommendation]:
    """All that are made in the trace, in order."""
    return sorted(made for pool in trace.pools for made in _of_pool(pool, trace.duration_s, settings))


def _of_pool(trace: PoolTrace, duration_s: float, settings: ReplaySettings) -> Iterator[Recommendation]:
    chance = Random(f"{settings.seed} {trace.pool} what is announced")  # noqa: S311 - to be repeated
    false = settings.false_recommendations
    for (_, before), (at, held) in pairwise(trace.capacity):
        if held < before and chance.random() < settings.recommendations:
            yield Recommendation(at - chance.uniform(*AHEAD_S), trace.pool, held)
            # So many that `false` is their share of all: nothing follows, and the whole pool gets them.
            while chance.random() < false:
                yield Recommendation(chance.uniform(0, duration_s), trace.pool, 0)
