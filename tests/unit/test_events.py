"""What EventBridge events turn into."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.events import (
    Ignored,
    InterruptionWarning,
    MalformedEventError,
    RebalanceRecommendation,
    StateChange,
    parse,
)

AT = datetime(2026, 11, 21, 7, tzinfo=UTC)
INSTANCE = "i-0123456789abcdef0"


def event(detail_type: str, **detail: str) -> dict[str, Any]:
    """An event in the shape of EventBridge's, about `INSTANCE`."""
    return {
        "version": "0",
        "id": "1e5527d7-bb36-4607-3370-4164db56a40e",
        "detail-type": detail_type,
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2026-11-21T07:00:00Z",
        "region": "us-east-1",
        "resources": [f"arn:aws:ec2:us-east-1b:instance/{INSTANCE}"],
        "detail": {"instance-id": INSTANCE, **detail},
    }


WARNING = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"


def test_each_of_our_events_becomes_its_signal() -> None:
    """The three event types that SpotRelay subscribes to are understood."""
    assert parse(event(WARNING, **{"instance-action": "stop"})) == InterruptionWarning(INSTANCE, AT, "stop")
    assert parse(event("EC2 Instance Rebalance Recommendation")) == RebalanceRecommendation(INSTANCE, AT)
    assert parse(event(STATE, state="running")) == StateChange(INSTANCE, AT, InstanceState.RUNNING)


def test_a_warning_without_an_action_is_still_a_warning() -> None:
    """What only says how EC2 takes the instance back never hides that it does."""
    assert parse(event(WARNING)) == InterruptionWarning(INSTANCE, AT, "terminate")


@pytest.mark.parametrize(
    "unknown",
    [
        event("EC2 Capacity Manager Something New"),
        {**event(WARNING), "source": "aws.ec2.next"},
        event(STATE, state="hibernating-deeply"),
        {},
    ],
)
def test_what_we_do_not_know_is_ignored(unknown: dict[str, Any]) -> None:
    """An event, source or state that AWS adds later is no error."""
    assert isinstance(parse(unknown), Ignored)


@pytest.mark.parametrize(
    "broken",
    [
        {**event(WARNING), "detail": {}},
        {**event(WARNING), "detail": {"instance-id": 7}},
        {**event(WARNING), "detail": None},
        {**event(WARNING), "time": "yesterday"},
        {**event(WARNING), "time": "2026-11-21T07:00:00"},
        {k: v for k, v in event(WARNING).items() if k != "time"},
        event(STATE),
        ["not", "an", "object"],
    ],
)
def test_an_event_of_ours_without_its_facts_is_malformed(broken: Any) -> None:
    """One of our event types that lacks what it must carry is told apart from one to ignore."""
    with pytest.raises(MalformedEventError):
        parse(broken)
