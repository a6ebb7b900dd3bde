"""EC2 takes an instance back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

KIND = ("aws.ec2", "EC2 Spot Instance Interruption Warning")
"""`source` and `detail-type` of the event."""


@dataclass(frozen=True, slots=True)
class InterruptionWarning:
    """EC2 takes the instance back, two minutes after `at` (hibernation: at once)."""

    instance_id: str
    at: datetime
    action: str


# {"version": "0", "id": "…", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
#  "account": "123456789012", "time": "2026-11-21T07:00:00Z", "region": "us-east-1",
#  "resources": ["arn:aws:ec2:us-east-1b:instance/i-0123456789abcdef0"],
#  "detail": {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"}}
def parse(instance_id: str, at: datetime, detail: Mapping[str, Any]) -> InterruptionWarning:
    """The warning in an event."""
    # An action that is missing or new must not hold up the one thing to do: the instance is going.
    return InterruptionWarning(instance_id, at, str(detail.get("instance-action", "terminate")))
