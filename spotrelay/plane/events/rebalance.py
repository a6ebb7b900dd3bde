"""EC2 recommends to leave an instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

KIND = ("aws.ec2", "EC2 Instance Rebalance Recommendation")
"""`source` and `detail-type` of the event."""


@dataclass(frozen=True, slots=True)
class RebalanceRecommendation:
    """EC2 thinks an interruption likely; it may never come."""

    instance_id: str
    at: datetime


# {…, "detail-type": "EC2 Instance Rebalance Recommendation",
#  "detail": {"instance-id": "i-0123456789abcdef0"}}
def parse(instance_id: str, at: datetime, _: Mapping[str, Any]) -> RebalanceRecommendation:
    """The recommendation in an event."""
    return RebalanceRecommendation(instance_id, at)
