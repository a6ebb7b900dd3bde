"""Rows for these tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.timing import seconds

START = datetime(2026, 1, 1, tzinfo=UTC)

POOL = CapacityPool("us-east-1", "us-east-1a", "g5.xlarge")


def replica(
    id_: int,
    state: ReplicaState = ReplicaState.READY,
    *,
    entered: dict[str, float] | None = None,
    **more: Any,
) -> Replica:
    """A replica on Spot; `entered`: the seconds from `START` at which it entered each state."""
    times = {ReplicaState(name): START + seconds(at) for name, at in (entered or {str(state): 0}).items()}
    offering = Offering(POOL, more.pop("option", PurchaseOption.SPOT))
    return Replica("chat", id_, 1, state, "", times, offering=offering, **more)
