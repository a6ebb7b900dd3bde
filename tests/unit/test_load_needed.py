"""Which of a service's load has to be known: CloudWatch charges each metric that it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, ScaleRequest
from spotrelay.plane.core.scaling import (
    LOAD_KNOWN_S,
    Load,
    MetricTarget,
    Needed,
    OngoingTarget,
    Scaling,
    Schedule,
)
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from spotrelay.plane.serving.autoscaling import SILENCE_MIN, is_open, needed

NOW = EPOCH + seconds(10_001 * 60)
"""No minute in which it is asked for everything."""

QPS = Scaling(min_replicas=1, max_replicas=10, target_qps_per_replica=2.0)
SLEEPY = replace(QPS, min_replicas=0)
AT_REST = Needed(unserved=False, silence=False)


def replica(state: ReplicaState, since_s: float, *before: ReplicaState) -> Replica:
    """One that has been in the state for so long, after other states."""
    asked = Replica.requested("demo", 1, 1, NOW - seconds(since_s), reason="wanted")
    entered = dict.fromkeys((*before, state), NOW - seconds(since_s))
    return asked.but(state=state, entered=entered)


SERVES = replica(ReplicaState.READY, LOAD_KNOWN_S)
STARTS = replica(ReplicaState.STARTING, 10)


def asked(
    scaling: Scaling = QPS,
    replicas: Sequence[Replica] = (SERVES,),
    number: int = 1,
    now: datetime = NOW,
    **since: datetime,
) -> Needed:
    """What is asked for, with this number on record."""
    there = Rows(replicas=dict(enumerate(replicas)))
    return needed(scaling, ScaleRequest(number, None, **since), there, now)


def test_at_rest_one_metric_is_needed() -> None:
    """While as few serve as there may be, and while there are none."""
    assert asked() == AT_REST
    asleep = asked(SLEEPY, (), 0)
    assert (asleep.routed, asleep.unserved) == (False, True)


@pytest.mark.parametrize(
    "scaling",
    [
        Scaling(min_replicas=1, max_replicas=3),
        Scaling(min_replicas=1, max_replicas=3, ongoing=OngoingTarget(target=8.0, metrics=("busy",))),
        Scaling(min_replicas=1, max_replicas=3, metric=MetricTarget(namespace="N", name="M", target=1.0)),
    ],
)
def test_requests_that_nothing_goes_by_are_not_needed(scaling: Scaling) -> None:
    """Where other signals say how many, and none of them needs to be woken."""
    assert asked(scaling, number=3) == Needed(routed=False, unserved=False, silence=False)


@pytest.mark.parametrize(
    ("replicas", "is_needed"),
    [
        ((SERVES,), False),
        ((STARTS, SERVES), False),
        ((), True),
        ((STARTS,), True),
        ((replica(ReplicaState.READY, LOAD_KNOWN_S - 1),), True),
        ((SERVES.but(unhealthy_since=NOW),), True),
        ((replica(ReplicaState.DRAINING, LOAD_KNOWN_S, ReplicaState.READY),), True),
    ],
)
def test_requests_that_found_nobody_matter_while_there_may_be_some(
    replicas: Sequence[Replica], is_needed: bool
) -> None:
    """Not if somebody has been there for as long as requests count."""
    assert asked(replicas=replicas).unserved is is_needed


@pytest.mark.parametrize(
    ("replicas", "number", "is_needed"),
    [
        ((), 0, False),
        ((STARTS,), 0, False),
        ((replica(ReplicaState.DRAINING, 5, ReplicaState.READY),), 0, True),
        ((SERVES,), 0, True),  # beyond the number, or by a person's word
        ((), 1, True),  # they were lost: what they had in the last minutes counts
        ((STARTS,), 1, True),
    ],
)
def test_requests_that_found_a_replica_matter_unless_it_went_to_sleep(
    replicas: Sequence[Replica], number: int, is_needed: bool
) -> None:
    """What sleeps has no target that a request could have found."""
    assert asked(SLEEPY, replicas, number).routed is is_needed


def test_silence_matters_where_it_changes_anything() -> None:
    """A replica could go, more are waited for, or the load isn't known; by schedules' bounds, too."""
    assert not asked().silence
    assert asked(number=2).silence
    assert asked(rising_since=NOW).silence
    assert asked(unknown_since=NOW).silence
    day = Schedule(cron="0 0 * * *", min_replicas=4, max_replicas=8)
    assert not asked(replace(QPS, schedules=(day,)), number=4).silence
    assert asked(replace(QPS, schedules=(day,)), number=5).silence


def test_silence_is_looked_into_now_and_then() -> None:
    """So that it is told, soon enough for `spotrelay status`, that the load isn't known."""
    looks = [asked(now=NOW + seconds(60 * minute)).silence for minute in range(60)]
    assert looks.count(True) == 60 / SILENCE_MIN


def test_what_would_change_anything_is_looked_into() -> None:
    """And what is known, or changes nothing, isn't."""
    held, more = ScaleRequest(1, None), ScaleRequest(1, None, rising_since=NOW)
    presumed = Load(9.0, is_rate_partial=True, is_silence_presumed=True)
    assert is_open(held, more, presumed)
    assert not is_open(held, held, presumed)
    assert not is_open(held, more, Load(9.0))
