"""An instance entered a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spotrelay.plane.core.instances import InstanceState

KIND = ("aws.ec2", "EC2 Instance State-change Notification")
"""`source` and `detail-type` of the event."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """The instance entered a state."""

    instance_id: str
    at: datetime
    state: InstanceState


# {…, "detail-type": "EC2 Instance State-change Notification",
#  "detail": {"instance-id": "i-0123456789abcdef0", "state": "shutting-down"}}
def parse(instance_id: str, at: datetime, detail: Mapping[str, Any]) -> StateChange | str:
    """The change in an event, or why it is to be ignored: AWS may add states.

    Raises:
        ValueError: it has none.
    """
    state = detail.get("state")
    if not isinstance(state, str):
        raise ValueError(f"state change of {instance_id}: has no state")  # noqa: TRY004 - as if it had none
    try:
        return StateChange(instance_id, at, InstanceState(state))
    except ValueError:
        return f"instance state {state!r}"
