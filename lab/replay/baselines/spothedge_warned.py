"""SpotHedge, if SkyServe listened: what the warning alone would be worth."""

from __future__ import annotations

from typing import ClassVar

from lab.replay.baselines.spothedge import SpotHedge


class SpotHedgeWarned(SpotHedge):
    """SpotHedge that hears EC2's warning, and launches at once as if the replica were gone.

    The warning takes no time to reach it. A loss whose warning never came is found by polling, as before.
    """

    name: ClassVar[str] = "spothedge-warned"
    summary: ClassVar[str] = "SpotHedge that hears the warning and launches at once"
    source: ClassVar[str] = "nobody's: spothedge with one thing changed"
    hears_warnings: ClassVar[bool] = True
