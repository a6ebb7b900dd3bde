"""The checker itself: each rule, broken once, is reported, and a service in good order isn't."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotrelay.plane.core.replica import Replica, ReplicaState
from tests.e2e.faults.rules import Facts, broken

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def replica(id_: int, state: ReplicaState = ReplicaState.READY, **more: Any) -> Replica:
    """A replica on an instance of its own, requested a minute after the one before it."""
    at = START + timedelta(minutes=id_)
    entered = {ReplicaState.REQUESTED: at, state: at}
    return Replica("s", id_, 1, state, "why", entered, instance_id=f"i-{id_}", launch_id=f"l-{id_}", **more)


def instance(id_: int, state: str = "running") -> dict[str, Any]:
    """The instance of a replica."""
    return {"state": state, "launch": f"l-{id_}"}


LOST = replica(1, ReplicaState.TERMINATED, replaced_by=3)
OTHER = replica(2)
SUCCESSOR = replica(3, replaces=1)

GOOD = Facts(
    desired=2,
    highest_id=3,
    present=(OTHER, SUCCESSOR),
    ended=(LOST,),
    targets={"i-2": "healthy", "i-3": "healthy"},
    instances={"i-1": instance(1, "terminated"), "i-2": instance(2), "i-3": instance(3)},
    interruptions=({"instance_id": "i-1", "terminated_at": None},),
)


STOOD_IN = replica(4, ReplicaState.TERMINATED, is_fallback=True)
FALLBACK = replace(
    GOOD,
    highest_id=4,
    ended=(LOST, STOOD_IN),
    instances={**GOOD.instances, "i-4": instance(4, "terminated")},
)

STANDBY = replace(
    GOOD,
    standbys=1,
    highest_id=5,
    present=(OTHER, SUCCESSOR, replica(5, ReplicaState.STANDBY, is_standby=True, resume_s=20.0)),
    # Its instance has been resumed before.
    ended=(LOST, replace(replica(4, ReplicaState.TERMINATED, is_standby=True), instance_id="i-5")),
    instances={**GOOD.instances, "i-5": instance(5, "stopped")},
)


def test_good_order_breaks_no_rule() -> None:
    """One replica was lost and replaced, and nothing is wrong with that."""
    assert broken(GOOD) == []


def test_a_fallback_goes_without_a_replacement() -> None:
    """It is no loss, and doesn't count as one."""
    assert broken(FALLBACK) == []
    assert FALLBACK.regulars == GOOD.regulars == 3


def test_a_standby_is_stopped_and_passes_from_row_to_row() -> None:
    """It is one of those that should stand by, none that should serve, and its rows replace nobody."""
    assert broken(STANDBY) == []


def test_who_left_the_rotation_may_be_shown_as_draining() -> None:
    """A load balancer shows that for its whole delay, long after the instance has gone."""
    assert broken(replace(GOOD, targets={**GOOD.targets, "i-1": "draining"})) == []


def test_after_damage_there_is_no_history() -> None:
    """Then nobody knows who had an ID, nor who replaced whom; all else holds as ever."""
    damaged = replace(GOOD, highest_id=7, ended=(replace(LOST, replaced_by=None),))
    assert len(broken(damaged)) == 3
    assert broken(damaged, has_history=False) == []
    assert broken(replace(damaged, targets={}), has_history=False)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (replace(GOOD, desired=3), "3 READY expected"),
        (replace(GOOD, present=(OTHER, replace(SUCCESSOR, unhealthy_since=START))), "doesn't answer"),
        (replace(GOOD, open_intents=("l-9",)), "intents are open: l-9"),
        (replace(GOOD, highest_id=4), "IDs up to 4 were given, and nobody has [4]"),
        (replace(GOOD, highest_id=2), "IDs up to 2 were given, and there is 3"),
        (replace(GOOD, ended=(LOST, OTHER)), "an ID was given twice"),
        (
            replace(GOOD, present=(OTHER, replace(SUCCESSOR, entered=LOST.entered))),
            "s#3 was requested before",
        ),
        (replace(GOOD, ended=(replace(LOST, replaced_by=None),)), "nothing replaces it"),
        (replace(FALLBACK, ended=(LOST, replace(STOOD_IN, replaced_by=3))), "s#4 only stood in"),
        (replace(GOOD, present=(OTHER, replace(SUCCESSOR, replaces=None))), "which doesn't say so"),
        (replace(GOOD, present=(replace(OTHER, replaces=1), SUCCESSOR)), "s#2 replaces 1"),
        (replace(GOOD, instances={**GOOD.instances, "i-9": instance(9)}), "i-9 is alive and nobody's"),
        (replace(GOOD, instances={**GOOD.instances, "i-2": instance(2, "terminated")}), "no living instance"),
        (replace(GOOD, instances={**GOOD.instances, "i-2": instance(9)}), "instance of another launch"),
        (replace(GOOD, ended=(replace(LOST, instance_id="i-2"),)), "2 replicas have had i-2"),
        (replace(GOOD, interruptions=({"instance_id": "i-2", "terminated_at": None},)), "i-2 is lost"),
        (replace(GOOD, interruptions=({"instance_id": "i-1", "terminated_at": 1.0},)), "i-1 was warned"),
        (replace(STANDBY, standbys=2), "2 STANDBY"),
        (
            replace(STANDBY, present=(OTHER, SUCCESSOR, replica(5, ReplicaState.STANDBY, is_standby=True))),
            "[5] were never tried out",
        ),
        (replace(STANDBY, instances={**GOOD.instances, "i-5": instance(5)}), "['i-5'] stand by"),
        (replace(GOOD, instances={**GOOD.instances, "i-2": instance(2, "stopped")}), "stopped are ['i-2']"),
        (replace(GOOD, targets={"i-2": "healthy", "i-3": "unhealthy"}), "in rotation"),
        (replace(GOOD, targets={**GOOD.targets, "i-1": "healthy"}), "in rotation"),
        (replace(GOOD, targets={**GOOD.targets, "i-3": "draining"}), "missing there: ['i-3']"),
        (replace(GOOD, targets={"i-2": "healthy"}), "missing there: ['i-3']"),
    ],
)
def test_a_broken_rule_is_reported(bad: Facts, said: str) -> None:
    """Whatever isn't as it should be is said in words."""
    assert any(said in found for found in broken(bad)), broken(bad)
