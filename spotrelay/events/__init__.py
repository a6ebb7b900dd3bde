"""What EventBridge tells us: one event → one signal, or the reason why it is none of ours.

An event type that we don't know is ignored, never an error: AWS may add some at any time. An event of ours
that lacks what it must carry is a `MalformedEventError`: it goes to the dead-letter queue, for a person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spotrelay.core.instances import InstanceState

INSTANCE_ID = re.compile(r"i-[0-9A-Za-z-]{1,64}")
"""EC2's have 8 or 17 hexadecimal digits. DynamoDB refuses far longer keys, and the whole batch with them."""

# {"version": "0", "id": "…", "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
#  "account": "123456789012", "time": "2026-11-21T07:00:00Z", "region": "us-east-1",
#  "resources": ["arn:aws:ec2:us-east-1b:instance/i-0123456789abcdef0"],
#  "detail": {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"}}
WARNING = "EC2 Spot Instance Interruption Warning"
# {…, "detail": {"instance-id": "i-0123456789abcdef0"}}
REBALANCE = "EC2 Instance Rebalance Recommendation"
# {…, "detail": {"instance-id": "i-0123456789abcdef0", "state": "shutting-down"}}
STATE_CHANGE = "EC2 Instance State-change Notification"


@dataclass(frozen=True, slots=True)
class InterruptionWarning:
    """EC2 takes the instance back, two minutes after `at` (hibernation: at once)."""

    instance_id: str
    at: datetime
    action: str


@dataclass(frozen=True, slots=True)
class RebalanceRecommendation:
    """EC2 thinks an interruption likely; it may never come."""

    instance_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StateChange:
    """The instance entered a state."""

    instance_id: str
    at: datetime
    state: InstanceState


Signal = InterruptionWarning | RebalanceRecommendation | StateChange


@dataclass(frozen=True, slots=True)
class Ignored:
    """Not for us, and why."""

    why: str


class MalformedEventError(ValueError):
    """An event that claims to be one of ours and lacks what such an event carries."""


def parse(event: Mapping[str, Any]) -> Signal | Ignored:
    """The signal in an EventBridge event.

    Raises:
        MalformedEventError: one of our event types, without an instance ID, a time or a state.
    """
    if not isinstance(event, Mapping):
        raise MalformedEventError(f"an EventBridge event is a JSON object, got {type(event).__name__}")
    source, kind = event.get("source"), event.get("detail-type")
    if source != "aws.ec2" or kind not in (WARNING, REBALANCE, STATE_CHANGE):
        return Ignored(f"{source}: {kind}")
    detail = event.get("detail")
    if not isinstance(detail, Mapping):
        raise MalformedEventError(f"{kind} {event.get('id')}: has no detail object")
    # From the detail, never from the ARN, which carries the zone in some samples and the account in others.
    instance_id = detail.get("instance-id")
    if not isinstance(instance_id, str) or not INSTANCE_ID.fullmatch(instance_id):
        raise MalformedEventError(f"{kind} {event.get('id')}: has no instance-id")
    at = _time_of(event)
    if kind == WARNING:
        # An action that is missing or new must not hold up the one thing to do: the instance is going.
        return InterruptionWarning(instance_id, at, str(detail.get("instance-action", "terminate")))
    if kind == REBALANCE:
        return RebalanceRecommendation(instance_id, at)
    state = detail.get("state")
    if not isinstance(state, str):
        raise MalformedEventError(f"{kind} {event.get('id')}: has no state")
    try:
        return StateChange(instance_id, at, InstanceState(state))
    except ValueError:
        return Ignored(f"instance state {state!r}")


def _time_of(event: Mapping[str, Any]) -> datetime:
    """When it happened. Raises `MalformedEventError`."""
    try:
        at = datetime.fromisoformat(str(event["time"]))
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    # OverflowError: the first and the last day of all may have no such time in UTC.
    except (KeyError, ValueError, OverflowError) as error:
        raise MalformedEventError(f"{event['detail-type']} {event.get('id')}: has no time") from error
    raise MalformedEventError(f"{event['detail-type']} {event.get('id')}: its time has no zone")
