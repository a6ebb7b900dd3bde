"""The fast path: signals in, actions out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import OnRebalance, OnWarning, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import InterruptionWarning, RebalanceRecommendation, Signal, StateChange
from spotrelay.plane.serving import interruption, steps
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, a_replica, needless, rows_of, told

READY, STARTING, DRAINING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING
STATES_WITH_INSTANCE = [ReplicaState.PROVISIONING, STARTING, READY]
WARNING = InterruptionWarning("i-1", NOW, "terminate")
SPEC = replace(demo_spec(), on_rebalance=OnRebalance.REPLACE)
WARNED = "interruption warning"


def react(
    *sightings: interruption.Sighting,
    others: int = 3,
    spec: ServiceSpec | None = SPEC,
    rows: Rows | None = None,
) -> list[Step]:
    """The fast path's decision, while so many others serve that the signals aren't about."""
    if rows is None:
        rows = rows_of(*(r for _, r in sightings))
    # As it reads them: the rows that the signals are about, and how many stay in all.
    rows = replace(rows, serving=rows.serving + others, is_whole=False)
    return interruption.decide(sightings, rows, spec, NOW)


def warning(replica: Replica, at: datetime = NOW, action: str = "terminate") -> interruption.Sighting:
    """EC2 warns it."""
    return InterruptionWarning(replica.instance_id or "", at, action), replica


# Leave or serve on.


@pytest.mark.parametrize("state", STATES_WITH_INSTANCE)
def test_a_warned_replica_drains_and_its_pool_cools(state: ReplicaState) -> None:
    """While the others are enough it leaves in whatever active state it is, with a replacement."""
    replica = a_replica(1, state)
    assert react((WARNING, replica)) == told(steps.drain(replica, NOW, WARNED, warned_at=NOW, cool_pool=True))


@pytest.mark.parametrize("on_warning", OnWarning)
@pytest.mark.parametrize("others", range(4))
def test_a_warned_replica_serves_on_while_others_are_not_enough(others: int, on_warning: OnWarning) -> None:
    """Of three wanted two others are enough, or three, or none: as the service wants it."""
    enough = {OnWarning.NEEDED: 2, OnWarning.SERVE_ON: 3, OnWarning.LEAVE: 0}[on_warning]
    replica = a_replica(1, READY)
    actions = react((WARNING, replica), others=others, spec=replace(SPEC, on_warning=on_warning))
    leaves = steps.drain(replica, NOW, WARNED, warned_at=NOW, cool_pool=True)
    assert actions == told(leaves if others >= enough else steps.serve_on(replica, NOW, WARNED, NOW))


@pytest.mark.parametrize(("others", "leave"), [(2, True), (1, False), (0, False)])
def test_those_of_one_batch_do_not_rely_on_each_other(others: int, *, leave: bool) -> None:
    """All that are warned together leave only if those that aren't are enough."""
    batch = [a_replica(i, READY) for i in (1, 2)]
    actions = react(*map(warning, batch), others=others)
    kind = "Drain, Replace" if leave else "ServeOn, Replace"
    assert [a.name for a in actions] == [kind] * 2, "replaced in any case"


def test_one_that_is_lost_is_no_help_to_one_that_is_warned() -> None:
    """The batch says that it is gone: it doesn't count among those who serve."""
    lost, warned = a_replica(1, READY), a_replica(2, READY)
    gone = StateChange("i-1", NOW, InstanceState.TERMINATED)
    assert react((gone, lost), warning(warned), others=1) == [
        *told(steps.drain(lost, NOW, "instance terminated", is_gone=True)),
        *told(steps.serve_on(warned, NOW, WARNED, NOW)),
    ]


@pytest.mark.parametrize("state", [ReplicaState.PROVISIONING, ReplicaState.STARTING])
def test_what_starts_goes_on_while_others_are_not_enough(state: ReplicaState) -> None:
    """Its row may be behind, and even a cold start may be over before EC2 takes it."""
    rising, serves = a_replica(1, state), a_replica(2, READY)
    assert react((WARNING, rising), others=0) == told(steps.serve_on(rising, NOW, WARNED, NOW))
    one_other = react((WARNING, rising), warning(serves), others=1)
    assert [a.name for a in one_other] == ["ServeOn, Replace"] * 2
    two_others = react((WARNING, rising), others=2)
    assert two_others == told(steps.drain(rising, NOW, WARNED, warned_at=NOW, cool_pool=True))


def test_what_has_left_and_is_in_rotation_stays_there_while_nobody_serves() -> None:
    """Whoever was to take it out died over it: it may be the one that answers, until its last moment."""
    warned_at = NOW - seconds(timing.NOTICE_S - timing.LAST_ONE_STAYS_S)
    row = a_replica(1, ReplicaState.DRAINING, warned_at=warned_at)
    for now, others, out in (
        (NOW - seconds(1), [], []),
        (NOW - seconds(1), [a_replica(2, READY)], [steps.take_out("i-1")]),
        (NOW, [], [steps.take_out("i-1")]),
    ):
        assert interruption.due(demo_spec(), rows_of(row, *others), now) == out
    spared = {"i-1": None}
    assert interruption.due(demo_spec(), rows_of(row), NOW, spared) == [], "EC2 took its warning back"


def test_what_does_not_answer_stays_where_nobody_else_is() -> None:
    """Where no target is healthy the load balancer sends requests to all: the last one may still help."""
    ill = a_replica(1, READY, unhealthy_since=LONG_AGO)
    assert react((WARNING, ill), others=0) == told(steps.serve_on(ill, NOW, WARNED, NOW))
    assert [a.name for a in react((WARNING, ill), others=2)] == ["Drain, Replace"]


def test_what_hibernates_leaves_at_once() -> None:
    """EC2 gives no notice of a hibernation: nothing would be left to serve on."""
    replica = a_replica(1, READY)
    assert react(warning(replica, action="hibernate"), others=0) == told(
        steps.drain(replica, NOW, WARNED, warned_at=NOW, cool_pool=True)
    )
    assert [a.name for a in react(warning(replica, action="stop"), others=0)] == ["ServeOn, Replace"]


def test_what_hibernates_has_no_notice_whatever_else_is_said() -> None:
    """EC2's first warning may name another action."""
    replica = a_replica(1, READY)
    (drain,) = react(warning(replica), warning(replica, action="hibernate"), others=0)
    assert drain.enters(DRAINING)


def test_of_several_states_the_last_in_an_instance_s_life_counts() -> None:
    """Events come in any order: what shuts down was stopped before."""
    replica = a_replica(1, READY)
    states = (InstanceState.STOPPED, InstanceState.SHUTTING_DOWN)
    for order in (states, reversed(states)):
        (drain,) = react(*((StateChange("i-1", NOW, state), replica) for state in order))
        assert drain.enters(DRAINING)
        assert drain.reason == "instance shutting-down"


def test_a_warning_that_comes_late_leaves_less_time() -> None:
    """Delivered after the drain deadline: one of several leaves, but the very last one stays."""
    replica, late = a_replica(1, READY), NOW - seconds(80)
    leaves = steps.drain(replica, NOW, WARNED, warned_at=late, cool_pool=True)
    assert react(warning(replica, late), others=1) == told(leaves)
    assert react(warning(replica, late), others=0) == told(steps.serve_on(replica, NOW, WARNED, late))
    later = NOW - seconds(110)
    assert react(warning(replica, later), others=1) == told(
        steps.drain(replica, NOW, WARNED, warned_at=later, cool_pool=True)
    )
    # EC2 may have taken that back long ago: whoever looks at the last moment asks it.
    assert react(warning(replica, later), others=0) == told(steps.serve_on(replica, NOW, WARNED, later))
    known = replace(replica, warned_at=later)
    assert react(warning(known, later), others=0) == [steps.look_again("i-1", later)]


@pytest.mark.parametrize("year", [1, 9999])
def test_an_absurd_time_is_no_obstacle(year: int) -> None:
    """From the dawn of time it is over, from the far future it is now; neither is worth an exception."""
    replica = a_replica(1, READY)
    at = datetime(year, 12 if year > 1 else 1, 31 if year > 1 else 1, tzinfo=UTC)
    actions = react(warning(replica, at), others=0)
    if year == 1:
        earliest = NOW - seconds(2 * timing.NOTICE_S)
        assert actions == told(steps.serve_on(replica, NOW, WARNED, earliest))
    else:
        assert actions == told(steps.serve_on(replica, NOW, WARNED, NOW))


def test_without_a_document_a_warned_replica_leaves() -> None:
    """Nothing is known that would let it stay. What is to be replaced, the commit leaves out."""
    replica = a_replica(1, READY)
    leaves = steps.drain(replica, NOW, WARNED, warned_at=NOW, cool_pool=True)
    assert react((WARNING, replica), others=0, spec=None) == told(leaves, version=0)


# Several signals, and the same ones again.


@given(
    st.permutations(
        [
            InterruptionWarning("i-1", NOW, "terminate"),
            InterruptionWarning("i-1", NOW + seconds(5), "terminate"),
            RebalanceRecommendation("i-1", NOW),
            StateChange("i-1", NOW, InstanceState.RUNNING),
            StateChange("i-1", NOW, InstanceState.SHUTTING_DOWN),
        ]
    )
)
def test_several_signals_of_one_instance_are_one_loss(signals: list[Signal]) -> None:
    """In whatever order and number they come, the signals of one interruption make one drain.

    What is gone can't serve on, whoever else does.
    """
    replica = a_replica(1, READY)
    actions = react(*((s, replica) for s in signals), others=0)
    assert actions == told(steps.drain(replica, NOW, WARNED, warned_at=NOW, cool_pool=True, is_gone=True))


@given(st.permutations([NOW, NOW - seconds(9), NOW + seconds(9)]))
def test_of_several_warnings_the_first_counts(times: list[datetime]) -> None:
    """A duplicate gives no more time, whatever its clock says."""
    replica = a_replica(1, READY)
    actions = react(*(warning(replica, at) for at in times), others=0)
    assert actions == told(steps.serve_on(replica, NOW, WARNED, NOW - seconds(9)))


def test_a_warning_again_finds_it_serving_on() -> None:
    """It is looked at again in time; and once the others are enough, the same warning makes it leave."""
    serving_on = a_replica(1, READY, warned_at=NOW - seconds(20), replaced_by=4)
    assert react((WARNING, serving_on), others=1) == [steps.look_again("i-1", NOW - seconds(20))]
    leaves = steps.drain(serving_on, NOW, WARNED, warned_at=NOW - seconds(20))
    assert react((WARNING, serving_on), others=2) == [leaves]


def test_a_second_warning_is_no_new_time() -> None:
    """One that serves on leaves by the time of its first warning."""
    serving_on = a_replica(1, READY, warned_at=NOW - seconds(80), replaced_by=4)
    (action,) = react((WARNING, serving_on), others=1)
    assert action.name == "Drain"
    assert action.row.warned_at == NOW - seconds(80)


def test_one_that_serves_on_and_is_lost_drains_without_a_second_replacement() -> None:
    """Its replacement came with the warning, whether there was one or as many as wanted were left anyway."""
    lost = StateChange("i-1", NOW, InstanceState.TERMINATED)
    for facts, is_needless in (({"replaced_by": 4}, False), ({}, True), ({"is_fallback": True}, False)):
        serving_on = a_replica(1, READY, warned_at=LONG_AGO, **facts)
        drain = steps.drain(serving_on, NOW, "instance terminated", warned_at=LONG_AGO, is_gone=True)
        assert react((lost, serving_on), others=0) == [needless(drain) if is_needless else drain]


def test_a_draining_replica_is_not_replaced_again() -> None:
    """A first warning during another drain is noted; a second one takes the instance out once more.

    Whoever wrote the row may have died before the load balancer heard of it.
    """
    warned = a_replica(1, DRAINING, warned_at=NOW)
    assert react((WARNING, warned)) == [steps.take_out("i-1")]
    scaled_down = a_replica(1, DRAINING)
    assert react((WARNING, scaled_down)) == [steps.note_warning(scaled_down, NOW)]


def test_a_late_warning_takes_out_nothing_that_may_be_alone() -> None:
    """Who was to take it out died over it, and nobody stays by now: who looks again asks EC2."""
    row = a_replica(1, DRAINING, warned_at=NOW - seconds(115))
    assert react((WARNING, row), others=0) == [steps.look_again("i-1", NOW - seconds(115))]
    assert react((WARNING, row), others=1) == [steps.take_out("i-1")]
    leave = replace(SPEC, on_warning=OnWarning.LEAVE)
    assert react((WARNING, row), others=0, spec=leave) == [steps.take_out("i-1")]
    assert react((WARNING, row), others=0, spec=None) == [steps.take_out("i-1")]
    assert react(warning(row, action="hibernate"), others=0) == [steps.take_out("i-1")], "it is gone at once"


# Replacements.


@pytest.mark.parametrize(("others", "kind"), [(3, "Drain"), (0, "ServeOn")])
def test_a_warning_takes_over_from_a_recommendation(others: int, kind: str) -> None:
    """A replica whose replacement is on its way already leaves or serves on, and gets no second one."""
    old = a_replica(1, READY, rebalance_at=LONG_AGO, replaced_by=2)
    new = a_replica(2, STARTING)
    (action,) = react((WARNING, old), others=others, rows=rows_of(old, new))
    assert action.name == kind
    assert action.name in ("Drain", "ServeOn")
    replaced = told(action)
    gone = react((WARNING, old), others=others, rows=rows_of(old))
    assert gone == replaced, "what was to replace it is no longer there"
    for lost in (replace(new, warned_at=NOW), replace(new, state=DRAINING)):
        going = react((WARNING, old), others=others, rows=rows_of(old, lost))
        assert going == replaced, "what was to replace it goes itself"


@pytest.mark.parametrize(("others", "kind"), [(3, "Drain"), (0, "ServeOn")])
def test_a_fallback_that_is_warned_is_not_replaced(others: int, kind: str) -> None:
    """Whether another one is wanted, the tick decides."""
    fallback = a_replica(1, READY, is_fallback=True, purchase_option=PurchaseOption.ON_DEMAND)
    (action,) = react((WARNING, fallback), others=others)
    assert action.name == kind


# The callback.


def due(*replicas: Replica, ago_s: float = 0) -> list[Step]:
    """What the delayed message finds so many seconds before `NOW`."""
    return interruption.due(SPEC, rows_of(*replicas), NOW - seconds(ago_s))


def test_who_serves_on_leaves_when_it_is_called() -> None:
    """At its drain deadline, and not before; with the reason that it was warned."""
    stays = a_replica(4, READY)
    serving_on = a_replica(1, READY, warned_at=NOW - seconds(70), replaced_by=5)
    assert due(serving_on, stays, ago_s=timing.LOOK_AGAIN_WITHIN_S + timing.CLOCKS_APART_S + 0.001) == []
    again = [steps.look_again("i-1", NOW - seconds(70))]
    assert due(serving_on, stays, ago_s=0.001) == again, "who should have asked for it may have died"
    assert due(serving_on, stays) == [steps.drain(serving_on, NOW, WARNED, warned_at=NOW - seconds(70))]
    alone = replace(serving_on, replaced_by=None)
    assert due(alone, stays) == [needless(steps.drain(alone, NOW, WARNED, warned_at=NOW - seconds(70)))]


def test_a_fallback_that_leaves_is_not_called_needless() -> None:
    """It never gets a replacement, so that it has none says nothing about how many are left."""
    standing = a_replica(1, READY, warned_at=NOW - seconds(70), is_fallback=True)
    (action,) = due(standing, a_replica(4, READY))
    assert action == steps.drain(standing, NOW, WARNED, warned_at=NOW - seconds(70))


def test_only_what_has_long_been_ready_is_settled() -> None:
    """A tick may be about to register what became ready within a lease, and what isn't ready yet."""
    ready = a_replica(1, READY, since_s=timing.LEASE_S)
    young = a_replica(2, READY, since_s=timing.LEASE_S - 0.001)
    rows = rows_of(ready, young, a_replica(3, STARTING), a_replica(4, DRAINING))
    assert interruption.settled(rows, NOW) == {"i-1"}


def test_what_should_have_left_is_taken_out_by_the_call() -> None:
    """A warned replica that drains leaves the rotation once more, others that drain don't."""
    warned, drained = a_replica(1, DRAINING, warned_at=NOW), a_replica(2, DRAINING)
    assert due(warned, drained, a_replica(3, READY)) == [steps.take_out("i-1")]


# The other signals.


def test_a_rebalance_recommendation_is_noted_if_the_service_wants_it() -> None:
    """It is no emergency: nothing drains, and by default nothing happens at all."""
    replica = a_replica(1, READY)
    told = RebalanceRecommendation("i-1", NOW)
    assert react((told, replica), spec=demo_spec()) == []
    assert react((told, replica)) == [steps.note_rebalance(replica, NOW)]
    assert react((told, replace(replica, rebalance_at=NOW))) == []
    assert react((told, replica), spec=None) == []


def test_a_recommendation_is_not_lost_to_the_news_that_the_instance_runs() -> None:
    """Both in one batch: that it runs, the next tick sees as well."""
    replica = a_replica(1, ReplicaState.PROVISIONING)
    told = RebalanceRecommendation("i-1", NOW)
    runs = StateChange("i-1", NOW, InstanceState.RUNNING)
    assert react((runs, replica), (told, replica)) == [steps.note_rebalance(replica, NOW)]
    assert react((runs, replica)) == [steps.start(replica, NOW)]


@pytest.mark.parametrize(
    "state", [InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED, InstanceState.STOPPED]
)
def test_an_instance_that_goes_without_a_warning_is_replaced(state: InstanceState) -> None:
    """A loss that nobody announced is a loss all the same."""
    replica = a_replica(1, READY)
    actions = react((StateChange("i-1", NOW, state), replica), others=0)
    assert actions == told(steps.drain(replica, NOW, f"instance {state}", is_gone=True))


def test_why_an_instance_ended_at_birth_is_for_the_tick_to_ask() -> None:
    """The event doesn't say whether the version failed or EC2 took it; with a warning that is known."""
    gone = StateChange("i-1", NOW, InstanceState.TERMINATED)
    for state in (ReplicaState.PROVISIONING, ReplicaState.STARTING):
        born = a_replica(1, state)
        assert react((gone, born), others=0) == []
        warned = react((gone, born), (InterruptionWarning("i-1", NOW, "terminate"), born), others=0)
        assert warned == told(steps.drain(born, NOW, WARNED, warned_at=NOW, cool_pool=True, is_gone=True))
        (drain,) = react((gone, replace(born, warned_at=NOW)), others=0)
        assert drain.name == "Drain, GoWithout"


def test_a_running_instance_is_put_into_rotation_once() -> None:
    """`running` starts a provisioning replica and says nothing new about any other."""
    signal = StateChange("i-1", NOW, InstanceState.RUNNING)
    fresh = a_replica(1, ReplicaState.PROVISIONING)
    assert react((signal, fresh)) == [steps.start(fresh, NOW)]
    assert react((signal, a_replica(1, READY))) == []


def test_the_end_of_a_draining_instance_ends_its_replica() -> None:
    """`terminated` is the last that is heard of a replica."""
    replica = a_replica(1, DRAINING)
    signal = StateChange("i-1", NOW, InstanceState.TERMINATED)
    assert react((signal, replica)) == [steps.end(replica, NOW, "test")]


def test_news_of_a_draining_instance_that_is_no_loss_changes_nothing() -> None:
    """That it runs is no reason to take it out of rotation once more."""
    for state in (InstanceState.PENDING, InstanceState.RUNNING):
        assert react((StateChange("i-1", NOW, state), a_replica(1, DRAINING))) == []


def test_an_instance_that_is_not_running_yet_starts_nothing() -> None:
    """`pending` is no news; `running` after it is, in whatever order they come."""
    fresh = a_replica(1, ReplicaState.PROVISIONING)
    pending = StateChange("i-1", NOW, InstanceState.PENDING), fresh
    running = StateChange("i-1", NOW, InstanceState.RUNNING), fresh
    assert react(pending) == []
    assert react(pending, running) == react(running, pending) == [steps.start(fresh, NOW)]
