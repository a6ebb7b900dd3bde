"""What EventBridge tells us: one event → one signal, or the reason why it is none of ours.

An event type that we don't know is ignored, never an error: AWS may add some at any time. An event of ours
that lacks what it must carry is a `MalformedEventError`: it goes to the dead-letter queue, for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from spotrelay.events import interruption, rebalance, state_change
from spotrelay.events.event import Ignored, MalformedEventError, instance_id_of, time_of
from spotrelay.events.interruption import InterruptionWarning
from spotrelay.events.rebalance import RebalanceRecommendation
from spotrelay.events.state_change import StateChange

__all__ = [
    "Ignored",
    "InterruptionWarning",
    "MalformedEventError",
    "RebalanceRecommendation",
    "Signal",
    "StateChange",
    "parse",
]

Signal = InterruptionWarning | RebalanceRecommendation | StateChange

_PARSERS: Mapping[tuple[object, object], Callable[[str, datetime, Mapping[str, Any]], Signal | Ignored]] = {
    kind.KIND: kind.parse for kind in (interruption, rebalance, state_change)
}


def parse(event: Mapping[str, Any]) -> Signal | Ignored:
    """The signal in an EventBridge event.

    Raises:
        MalformedEventError: one of our event types, without an instance ID, a time or a known state.
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
    return parser(instance_id_of(event, detail), time_of(event), detail)
