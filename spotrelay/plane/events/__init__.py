"""What EventBridge tells us: one event → one signal, or the reason why it is none of ours.

An event type that we don't know is ignored, never an error: AWS may add some at any time. An event of ours
that lacks what it must carry is a `MalformedEventError`: it goes to the dead-letter queue, for a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spotrelay.plane.events import interruption, rebalance, state_change
from spotrelay.plane.events.interruption import InterruptionWarning
from spotrelay.plane.events.rebalance import RebalanceRecommendation
from spotrelay.plane.events.state_change import StateChange

__all__ = [
    "Ignored",
    "InterruptionWarning",
    "MalformedEventError",
    "RebalanceRecommendation",
    "Signal",
    "StateChange",
    "parse",
]

INSTANCE_ID = re.compile(r"i-[0-9A-Za-z-]{1,64}")
"""EC2's have 8 or 17 hexadecimal digits. DynamoDB refuses far longer keys, and the whole batch with them."""

Signal = InterruptionWarning | RebalanceRecommendation | StateChange

_PARSERS: Mapping[tuple[object, object], Callable[[str, datetime, Mapping[str, Any]], Signal | str]] = {
    kind.KIND: kind.parse for kind in (interruption, rebalance, state_change)
}


class MalformedEventError(ValueError):
    """An event that claims to be one of ours and lacks what such an event carries."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Not for us, and why."""

    why: str


def parse(event: Mapping[str, Any]) -> Signal | Ignored:
    """The signal in an EventBridge event.

    Raises:
        MalformedEventError: one of our event types, without an instance ID, a time or a state.
    """
    if not isinstance(event, Mapping):
        raise MalformedEventError(f"an EventBridge event is a JSON object, got {type(event).__name__}")
    kind = (event.get("source"), event.get("detail-type"))
    parser = _PARSERS.get(kind) if all(isinstance(part, str) for part in kind) else None
    if parser is None:
        return Ignored(f"{event.get('source')}: {event.get('detail-type')}")
    detail = event.get("detail")
    if not isinstance(detail, Mapping):
        raise MalformedEventError(f"{event['detail-type']} {event.get('id')}: has no detail object")
    try:
        found = parser(_instance_id(event, detail), _time(event), detail)
    except ValueError as error:
        raise MalformedEventError(str(error)) from error
    return Ignored(found) if isinstance(found, str) else found


def _instance_id(event: Mapping[str, Any], detail: Mapping[str, Any]) -> str:
    """The instance that it is about. Raises `ValueError`."""
    # From the detail, never from the ARN, which carries the zone in some samples and the account in others.
    instance_id = detail.get("instance-id")
    if not isinstance(instance_id, str) or not INSTANCE_ID.fullmatch(instance_id):
        raise ValueError(f"{event['detail-type']} {event.get('id')}: has no instance-id")
    return instance_id


def _time(event: Mapping[str, Any]) -> datetime:
    """When it happened. Raises `ValueError`."""
    try:
        at = datetime.fromisoformat(str(event["time"]))
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    # OverflowError: the first and the last day of all may have no such time in UTC.
    except (KeyError, ValueError, OverflowError) as error:
        raise ValueError(f"{event['detail-type']} {event.get('id')}: has no time") from error
    raise ValueError(f"{event['detail-type']} {event.get('id')}: its time has no zone")
