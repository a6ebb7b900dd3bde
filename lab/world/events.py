"""The events that EC2 puts on the bus, as text."""

from __future__ import annotations

import json
from datetime import datetime

from spotrelay.plane.core.instances import InstanceState

WARNING_S = 120.0
"""From a warning to the end of the instance."""

_ACTIONS = {"3": "", "8": "recycle"}
"""By the end of an instance's ID: warnings without an action, or with one that EC2 may come to have."""


def warning(instance_id: str, at: datetime, action: str) -> str:
    """The event of an interruption warning."""
    detail = {"instance-id": instance_id, "instance-action": action}
    # The instance ends whatever action the event names, also if it names none.
    if action == "terminate" and instance_id[-1] in _ACTIONS:
        detail["instance-action"] = _ACTIONS[instance_id[-1]]
        detail = {name: value for name, value in detail.items() if value}
    return _event("EC2 Spot Instance Interruption Warning", at, detail)


def rebalance(instance_id: str, at: datetime) -> str:
    """The event of a rebalance recommendation."""
    return _event("EC2 Instance Rebalance Recommendation", at, {"instance-id": instance_id})


def state_change(instance_id: str, at: datetime, state: InstanceState) -> str:
    """The event of an instance's new state."""
    detail = {"instance-id": instance_id, "state": state.value}
    return _event("EC2 Instance State-change Notification", at, detail)


def _event(kind: str, at: datetime, detail: dict[str, str]) -> str:
    return json.dumps(
        {
            "id": "sim",
            "source": "aws.ec2",
            "detail-type": kind,
            "time": at.isoformat(),
            "detail": detail,
        }
    )
