"""No Spot at all: the price of not having to think."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from spotrelay.plane.core.pools import PurchaseOption

if TYPE_CHECKING:
    from lab.replay.cloud import Event, ReplayCloud
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace


RETRY_S = 60.0
"""As often as `asg` tries again."""


class OnDemand:
    """N on-demand replicas, launched once: nothing ever happens to them. What EC2 refuses is tried again."""

    name: ClassVar[str] = "on-demand"
    summary: ClassVar[str] = "N on-demand replicas"
    source: ClassVar[str] = "what costs are relative to"
    hears_warnings: ClassVar[bool] = False

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:  # noqa: ARG002
        self._replicas = settings.replicas

    def wake(self, cloud: ReplayCloud, events: Sequence[Event]) -> float:  # noqa: ARG002
        """Launch what is missing, and rest once there is nothing."""
        missing = self._replicas - len(cloud.machines())
        if missing > 0:
            _, refused = cloud.launch(PurchaseOption.ON_DEMAND, missing)
            if refused:
                return cloud.now + RETRY_S
        return math.inf
