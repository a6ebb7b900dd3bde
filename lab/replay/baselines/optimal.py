"""What an oracle would pay, the least that full strength can cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.replay.capacity import least_price, usable_share

if TYPE_CHECKING:
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace

NAME = "optimal"
"""It is computed from the trace; no policy can do it."""


def optimal_cost(trace: Trace, settings: ReplaySettings, start: float, end: float) -> float:
    """What the oracle pays from `start` to `end`, as a share of what N on-demand replicas cost.

    It has min(N, capacity) replicas on Spot at every instant, in the cheapest pools, and the rest on-demand;
    nothing starts cold, nothing is bought twice. Therefore it isn't an actor in the market but a sum.

    It foresees when on-demand runs dry, and has launched before. So a dry spell takes no strength from it. It
    would pay for on-demand from the warning's time on rather than from the loss; that little isn't counted.
    """
    on_spot = usable_share(trace.pools, settings.replicas, start, end)
    price = least_price(trace.pools, settings.replicas, start, end)
    return price / settings.od_price_ratio + (1 - on_spot)
