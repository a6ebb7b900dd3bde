"""A policy that decides pool by pool asks each pool once: for as many as it planned there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

if TYPE_CHECKING:
    from lab.replay.cloud import Machine, ReplayCloud


def launch_planned(
    cloud: ReplayCloud, plan: Iterable[CapacityPool]
) -> tuple[list[Machine], list[CapacityPool]]:
    """Ask for a Spot instance for each pool in the plan; what was granted, and the pools that gave less."""
    launched: list[Machine] = []
    refused: list[CapacityPool] = []
    for pool, count in Counter(plan).items():
        machines, short = cloud.launch(PurchaseOption.SPOT, count, (pool,))
        launched += machines
        refused += short
    return launched, refused
