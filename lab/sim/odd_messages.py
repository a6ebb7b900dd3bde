"""Odd messages: malformed ones, and events that aren't for us."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from random import Random
from typing import Any

from lab.sim.gate import at

DEEP = "[" * 20_000
"""JSON deeper than Python's stack."""

LONG = f'{{"n": {"9" * 5000}}}'
"""JSON with a number that Python refuses to read."""


class Fate(Enum):
    """What must happen to a message."""

    HANDLED = "handled"
    IGNORED = "ignored"
    """It isn't for us: it is counted and deleted."""
    SET_ASIDE = "set aside"
    """It is malformed: it goes to the dead letters, with the reason."""


@dataclass(frozen=True, slots=True)
class SimSignal:
    """An event about an instance, as the rules read it."""

    instance_id: str
    at: datetime
    is_warning: bool

    @classmethod
    def of(cls, body: str) -> SimSignal:
        """The signal in one of EC2's events."""
        event = json.loads(body)
        is_warning = event["detail-type"] == _WARNING
        return cls(event["detail"]["instance-id"], datetime.fromisoformat(event["time"]), is_warning)


@dataclass(frozen=True, slots=True)
class Oddity:
    """A malformed message, or one that isn't for us."""

    body: str
    fate: Fate
    is_event: bool
    """Whether it comes on the queue of signals, or on that of ticks."""


def oddity(random: Random, instance_id: str, service: str, now: float) -> Oddity:
    """A random one, about an instance and a service of ours: it would do harm if it were accepted."""
    if random.random() < _TICKS_SHARE:
        body = random.choice(_TICKS)(service, now)
        return Oddity(body if isinstance(body, str) else json.dumps(body), Fate.SET_ASIDE, is_event=False)
    make, fate = random.choice(_EVENTS)
    body = make(instance_id, now)
    return Oddity(body if isinstance(body, str) else json.dumps(body), fate, is_event=True)


_TICKS_SHARE = 0.4

_WARNING = "EC2 Spot Instance Interruption Warning"
_REBALANCE = "EC2 Instance Rebalance Recommendation"
_STATE = "EC2 Instance State-change Notification"


def _event(kind: object, instance_id: object, now: float, **other: object) -> dict[str, Any]:
    detail = {"instance-id": instance_id, "instance-action": "terminate"}
    time = at(now).isoformat()
    return {"id": "odd", "source": "aws.ec2", "detail-type": kind, "time": time, "detail": detail, **other}


def _without(event: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != key}


_Make = Callable[[str, float], object]

_EVENTS: tuple[tuple[_Make, Fate], ...] = (
    (lambda _i, _t: '{"source": "aws.ec2", "detail-type": ', Fate.SET_ASIDE),
    (lambda _i, _t: DEEP, Fate.SET_ASIDE),
    (lambda _i, _t: LONG, Fate.SET_ASIDE),
    (lambda _i, _t: [], Fate.SET_ASIDE),
    (lambda _i, _t: '"a text"', Fate.SET_ASIDE),
    (lambda _i, _t: "null", Fate.SET_ASIDE),
    (lambda i, t: _without(_event(_WARNING, i, t), "detail"), Fate.SET_ASIDE),
    (lambda i, t: _event(_WARNING, i, t, detail=[i]), Fate.SET_ASIDE),
    (lambda i, t: _event(_WARNING, i, t, detail=i), Fate.SET_ASIDE),
    (lambda i, t: _event(_REBALANCE, i, t, detail={"instance": i}), Fate.SET_ASIDE),
    (lambda _i, t: _event(_WARNING, 17, t), Fate.SET_ASIDE),
    (lambda _i, t: _event(_WARNING, "", t), Fate.SET_ASIDE),
    (lambda i, t: _event(_WARNING, f"arn:aws:ec2:us-east-1a:instance/{i}", t), Fate.SET_ASIDE),
    # DynamoDB refuses keys of more than 1024 bytes, and the whole batch with them.
    (lambda i, t: _event(_WARNING, i * 60, t), Fate.SET_ASIDE),
    (lambda i, t: _without(_event(_WARNING, i, t), "time"), Fate.SET_ASIDE),
    (lambda i, t: _event(_WARNING, i, t, time="soon"), Fate.SET_ASIDE),
    (lambda i, t: _event(_WARNING, i, t, time=17), Fate.SET_ASIDE),
    (lambda i, t: _event(_WARNING, i, t, time=at(t).replace(tzinfo=None).isoformat()), Fate.SET_ASIDE),
    (lambda i, t: _event(_WARNING, i, t, time="0001-01-01T00:00:00+23:59"), Fate.SET_ASIDE),
    (lambda i, t: _event(_STATE, i, t), Fate.SET_ASIDE),
    (lambda i, t: _event(_STATE, i, t, detail={"instance-id": i, "state": 48}), Fate.SET_ASIDE),
    (lambda i, t: _event(_STATE, i, t, detail={"instance-id": i, "state": "hibernating"}), Fate.IGNORED),
    (lambda i, t: _event("EC2 Spot Instance Request Fulfillment", i, t), Fate.IGNORED),
    (lambda i, t: _event([_WARNING], i, t), Fate.IGNORED),
    (lambda i, t: _event(_WARNING, i, t, source="aws.autoscaling"), Fate.IGNORED),
    (lambda i, t: _event(_WARNING, i, t, source=["aws.ec2"]), Fate.IGNORED),
    (lambda i, t: _without(_event(_WARNING, i, t), "source"), Fate.IGNORED),
    (lambda _i, _t: {}, Fate.IGNORED),
)
"""Also kinds and states that AWS may add."""

_TICKS: tuple[Callable[[str, float], object], ...] = (
    lambda _s, _t: '{"service": ',
    lambda _s, _t: DEEP,
    lambda _s, _t: LONG,
    lambda s, _t: [s],
    lambda s, _t: json.dumps(s),
    lambda _s, t: {"due": at(t).isoformat()},
    lambda _s, _t: {"service": ""},
    lambda _s, _t: {"service": None},
    lambda _s, _t: {"service": 17},
    lambda s, _t: {"service": s, "due": "soon"},
    lambda s, _t: {"service": s, "due": 17},
    lambda s, t: {"service": s, "due": at(t).replace(tzinfo=None).isoformat()},
    lambda s, _t: {"service": s, "kind": "dance"},
    lambda _s, _t: {"source": "aws.ssm"},
    lambda _s, _t: {"source": "aws.ssm", "detail": {"operation": "Delete"}},
    lambda s, _t: {"source": "aws.ssm", "detail": {"operation": "Delete", "name": [s]}},
    lambda _s, _t: {"source": "aws.ssm", "detail": {"operation": "Delete", "name": "/spotrelay/services/"}},
)
