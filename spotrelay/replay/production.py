"""The production controller as a policy of the replay."""

from __future__ import annotations

from collections.abc import Callable

from spotrelay.replay.cloud import Cloud


def drive(cloud: Cloud, until: float, progress: Callable[[float], None]) -> None:
    """Run the production code in the cloud until that time."""
    raise NotImplementedError
