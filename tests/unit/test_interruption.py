"""The fast path: signals in, actions out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.model import (
    InstanceState,
    OnRebalance,
    ReplicaState,
    Rows,
)
from spotrelay.policy import interruption
from spotrelay.policy.actions import (
    Action,
    Drain,
    End,
    NoteRebalance,
    NoteWarning,
    Start,
)
from spotrelay.signals import InterruptionWarning, RebalanceRecommendation, Signal, StateChange
from tests.unit.cases import LONG_AGO, NOW, a_replica


def react(
    sightings: list[interruption.Sighting], on_rebalance: OnRebalance = OnRebalance.REPLACE
) -> list[Action]:
    """The fast path's decision."""
    return interruption.decide(sightings, Rows(9, {r.id: r for _, r in sightings}), on_rebalance)


STATES_WITH_INSTANCE = [ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY]


WARNING = InterruptionWarning("i-1", NOW, "terminate")


@pytest.mark.parametrize("state", STATES_WITH_INSTANCE)
def test_a_warned_replica_drains_and_its_pool_cools(state: ReplicaState) -> None:
    """A warning drains a replica in whatever active state it is, with a replacement."""
    replica = a_replica(1, state)
    assert react([(WARNING, replica)]) == [
        Drain(replica, "interruption warning", warned_at=NOW, cool_pool=True)
    ]


@given(
    st.permutations(
        [
            InterruptionWarning("i-1", NOW, "terminate"),
            InterruptionWarning("i-1", NOW, "terminate"),
            RebalanceRecommendation("i-1", NOW),
            StateChange("i-1", NOW, InstanceState.RUNNING),
            StateChange("i-1", NOW, InstanceState.SHUTTING_DOWN),
        ]
    )
)
def test_several_signals_of_one_instance_are_one_loss(signals: list[Signal]) -> None:
    """In whatever order and number they come, the signals of one interruption make one drain."""
    replica = a_replica(1, ReplicaState.READY)
    actions = react([(s, replica) for s in signals])
    assert actions == [Drain(replica, "interruption warning", warned_at=NOW, cool_pool=True)]


def test_a_draining_replica_is_not_replaced_again() -> None:
    """A second warning does nothing; a first one during another drain is only noted."""
    warned = a_replica(1, ReplicaState.DRAINING, warned_at=NOW)
    assert react([(WARNING, warned)]) == []
    scaled_down = a_replica(1, ReplicaState.DRAINING)
    assert react([(WARNING, scaled_down)]) == [NoteWarning(scaled_down, NOW)]


def test_a_rebalance_recommendation_is_noted_if_the_service_wants_it() -> None:
    """It is no emergency: nothing drains, and by default nothing happens at all."""
    replica = a_replica(1, ReplicaState.READY)
    told: list[interruption.Sighting] = [(RebalanceRecommendation("i-1", NOW), replica)]
    assert react(told, OnRebalance.IGNORE) == []
    assert react(told) == [NoteRebalance(replica, NOW)]
    assert react([(told[0][0], replace(replica, rebalance_at=NOW))]) == []


def test_a_warning_takes_over_from_a_recommendation() -> None:
    """A replica whose replacement is on its way already drains at once, and gets no second one."""
    old = a_replica(1, ReplicaState.READY, rebalance_at=LONG_AGO, replaced_by=2)
    new = a_replica(2, ReplicaState.STARTING)
    (action,) = interruption.decide([(WARNING, old)], Rows(2, {1: old, 2: new}), OnRebalance.REPLACE)
    assert isinstance(action, Drain)
    assert not action.replace


@pytest.mark.parametrize(
    "state", [InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED, InstanceState.STOPPED]
)
def test_an_instance_that_goes_without_a_warning_is_replaced(state: InstanceState) -> None:
    """A loss that nobody announced is a loss all the same."""
    replica = a_replica(1, ReplicaState.READY)
    actions = react([(StateChange("i-1", NOW, state), replica)])
    assert actions == [Drain(replica, f"instance {state}")]


def test_a_running_instance_is_put_into_rotation_once() -> None:
    """`running` starts a provisioning replica and says nothing new about any other."""
    signal = StateChange("i-1", NOW, InstanceState.RUNNING)
    fresh = a_replica(1, ReplicaState.PROVISIONING)
    assert react([(signal, fresh)]) == [Start(fresh)]
    assert react([(signal, a_replica(1, ReplicaState.READY))]) == []


def test_the_end_of_a_draining_instance_ends_its_replica() -> None:
    """`terminated` is the last that is heard of a replica."""
    replica = a_replica(1, ReplicaState.DRAINING)
    signal = StateChange("i-1", NOW, InstanceState.TERMINATED)
    assert react([(signal, replica)]) == [End(replica, "test")]
