"""The level-triggered path: an observation in, actions out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.model import (
    Backoff,
    InstanceState,
    LaunchIntent,
    OnRebalance,
    PurchaseOption,
    ReadinessProbe,
    Replica,
    ReplicaState,
    Rows,
    TargetState,
    seconds,
)
from spotrelay.policy import observation, reconcile, timing
from spotrelay.policy.actions import (
    Action,
    Adopt,
    CloseIntent,
    Drain,
    End,
    Fail,
    Launch,
    MarkReady,
    NoteHealth,
    Register,
    Request,
    Start,
    Supersede,
    TakeOut,
    Terminate,
)
from spotrelay.policy.observation import Observation
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, RECENTLY, a_replica, an_instance, decide


def test_a_fleet_at_rest_needs_nothing() -> None:
    """Nothing to do is nothing done."""
    replica = a_replica(1, ReplicaState.READY)
    assert decide(replica, instances=(an_instance(1),), health={1: TargetState.HEALTHY}) == []


def test_missing_replicas_are_requested() -> None:
    """0 of 3 there: 3 requested."""
    assert decide(wanted=3) == [Request(3, "fewer replicas than wanted", PurchaseOption.SPOT)]


def test_a_requested_replica_without_an_open_launch_is_launched() -> None:
    """What an earlier run left without an instance is taken up, once its back-off is over."""
    due = a_replica(1, ReplicaState.REQUESTED, retry_at=NOW)
    waiting = a_replica(2, ReplicaState.REQUESTED, retry_at=NOW + seconds(1))
    assert decide(due, waiting) == [Launch((due,))]


def test_an_open_launch_is_left_alone() -> None:
    """A replica whose launch another invocation is busy with is not launched a second time."""
    intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(5))
    replica = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    assert decide(replica, intents=(intent,)) == []


def test_a_launch_that_was_never_recorded_is_adopted() -> None:
    """After a crash between CreateFleet and the record, the tag tells whose the instance is."""
    intent = LaunchIntent("L1", "demo", (1, 2), NOW - seconds(30))
    waiting = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    other = a_replica(2, ReplicaState.REQUESTED, launch_id="L1")
    instance = an_instance(7, launch_id="L1", launched_at=NOW - seconds(28))
    assert decide(waiting, other, instances=(instance,), intents=(intent,)) == [Adopt(waiting, instance)]


def test_an_expired_launch_is_closed_and_then_repeated() -> None:
    """A launch that left no instance is given up and, by the next tick, made anew."""
    intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(timing.INTENT_EXPIRES_S))
    replica = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    assert decide(replica, intents=(intent,)) == [CloseIntent("L1")]
    assert decide(replica) == [Launch((replica,))]


def test_an_intent_that_nobody_seems_to_wait_for_is_left_alone() -> None:
    """It may be newer than the rows, which are read one after the other; when it is old, it is closed."""
    stale = a_replica(1, ReplicaState.REQUESTED, retry_at=NOW + seconds(60))
    for intent, expected in (
        (LaunchIntent("launch-9", "demo", (1, 2), NOW - seconds(5)), []),
        (LaunchIntent("launch-9", "demo", (1, 2), LONG_AGO), [CloseIntent("launch-9")]),
    ):
        assert decide(stale, intents=(intent,)) == expected


def test_rows_that_are_newer_than_the_highest_id_are_not_known_yet() -> None:
    """What is created while the rows are read counts from the next tick on."""
    old, new = a_replica(9, ReplicaState.READY), a_replica(10, ReplicaState.REQUESTED)
    assert observation.known(Rows(9, {9: old, 10: new})) == Rows(9, {9: old})


def test_an_orphan_is_terminated_after_its_grace() -> None:
    """What no row and no intent knows goes, but not while its launch may still be recorded."""
    old = an_instance(7, launch_id="gone", launched_at=NOW - seconds(timing.ORPHAN_GRACE_S))
    fresh = an_instance(8, launch_id="gone", launched_at=NOW - seconds(5))
    (action,) = decide(instances=(old, fresh))
    assert isinstance(action, Terminate)
    assert action.instance_id == "i-7"


def test_a_running_instance_starts_and_a_healthy_one_is_ready() -> None:
    """PROVISIONING → STARTING → READY, without any event."""
    fresh = a_replica(1, ReplicaState.PROVISIONING, since_s=5)
    starting = a_replica(2, ReplicaState.STARTING)
    actions = decide(
        fresh, starting, instances=(an_instance(1), an_instance(2)), health={2: TargetState.HEALTHY}
    )
    assert actions == [Start(fresh), MarkReady(starting)]


def test_a_started_replica_that_is_out_of_rotation_is_registered() -> None:
    """A registration that got lost is repeated, but not past a readiness probe."""
    starting = a_replica(1, ReplicaState.STARTING, since_s=5, entered=RECENTLY)
    assert decide(starting, instances=(an_instance(1),)) == [Register(starting)]
    probed = replace(demo_spec(replicas=1), readiness_probe=ReadinessProbe("/v1", {}))
    seen = Observation(Rows(1, {1: starting}), {"i-1": an_instance(1, address="10.0.0.1")})
    assert reconcile.decide(probed, seen, NOW) == []
    assert {r: i.address for r, i in reconcile.awaiting_probe(probed, seen).items()} == {1: "10.0.0.1"}


def test_a_replica_that_never_becomes_ready_has_failed() -> None:
    """After its initial delay it is given up, and its successor waits for the back-off."""
    late = a_replica(1, ReplicaState.PROVISIONING)
    fail = Fail(late, "not ready 1200 s after its launch")
    assert decide(late, instances=(an_instance(1, InstanceState.PENDING),)) == [fail]
    late = a_replica(1, ReplicaState.STARTING)
    fail = replace(fail, replica=late)
    judged = {state: decide(late, instances=(an_instance(1),), health={1: state}) for state in TargetState}
    assert judged.pop(TargetState.HEALTHY) == [MarkReady(late)]
    assert judged.pop(TargetState.INITIAL) == []
    assert all(actions == [fail] for actions in judged.values())


def test_a_lost_warning_is_found() -> None:
    """EC2's request status shows a marked instance, event or no event."""
    replica = a_replica(1, ReplicaState.READY)
    (action,) = decide(
        replica,
        instances=(an_instance(1),),
        health={1: TargetState.HEALTHY},
        warned=frozenset({"i-1"}),
    )
    assert isinstance(action, Drain)
    assert (action.warned_at, action.replace, action.cool_pool) == (NOW, True, True)


@pytest.mark.parametrize("state", [InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED, None])
def test_a_lost_instance_is_found(state: InstanceState | None) -> None:
    """An instance that is going or gone is replaced without any event."""
    replica = a_replica(1, ReplicaState.READY)
    instances = (an_instance(1, state),) if state else ()
    (action,) = decide(replica, instances=instances)
    assert isinstance(action, Drain)
    assert action.replace


def test_an_instance_that_ec2_does_not_show_yet_is_waited_for() -> None:
    """DescribeInstances may lag behind CreateFleet."""
    young = a_replica(1, ReplicaState.PROVISIONING, since_s=5)
    assert decide(young) == []
    (action,) = decide(young, warned=frozenset({"i-1"}))
    assert isinstance(action, Drain), "that EC2 takes it back is known all the same"


def test_an_unhealthy_replica_gets_time_and_is_then_replaced() -> None:
    """One failed check is noted; three minutes of them are a loss; a good one forgives."""
    seen = {"instances": (an_instance(1),), "health": {1: TargetState.UNHEALTHY}}
    well = a_replica(1, ReplicaState.READY)
    assert decide(well, **seen) == [NoteHealth(well, NOW)]  # type: ignore[arg-type]  # test data
    since = NOW - seconds(timing.UNHEALTHY_REPLACED_S + 1)
    ill = a_replica(1, ReplicaState.READY, unhealthy_since=since)
    (action,) = decide(ill, **seen)  # type: ignore[arg-type]  # test data
    assert isinstance(action, Drain)
    assert decide(ill, instances=(an_instance(1),), health={1: TargetState.HEALTHY}) == [
        NoteHealth(ill, None)
    ]


def test_a_drained_instance_is_terminated_once_its_requests_are_done() -> None:
    """Ours to terminate: as soon as the load balancer let go of it, or when its time is over."""
    done = a_replica(1, ReplicaState.DRAINING, since_s=30)
    busy = a_replica(2, ReplicaState.DRAINING, since_s=30)
    overdue = a_replica(3, ReplicaState.DRAINING, since_s=600)
    actions = decide(
        done,
        busy,
        overdue,
        instances=(an_instance(1), an_instance(2), an_instance(3)),
        health={2: TargetState.DRAINING, 3: TargetState.DRAINING},
        wanted=0,
    )
    assert [a.instance_id for a in actions if isinstance(a, Terminate)] == ["i-1", "i-3"]


@pytest.mark.parametrize("noted", [True, False])
def test_a_warned_instance_is_never_terminated(noted: bool) -> None:
    """Whether the row or only EC2 knows of the warning: EC2's own interruption may make the hour free."""
    replica = a_replica(1, ReplicaState.DRAINING, warned_at=NOW if noted else None)
    actions = decide(
        replica,
        instances=(an_instance(1),),
        warned=frozenset() if noted else frozenset({"i-1"}),
        wanted=0,
    )
    assert not [a for a in actions if isinstance(a, Terminate)]


def test_a_warned_instance_that_was_stopped_instead_is_terminated() -> None:
    """EC2 has had its way; what is left of the instance costs us its disk and serves nobody."""
    replica = a_replica(1, ReplicaState.DRAINING, warned_at=LONG_AGO)
    (action,) = decide(replica, instances=(an_instance(1, InstanceState.STOPPED),), wanted=0)
    assert isinstance(action, Terminate)


def test_a_draining_replica_in_rotation_is_taken_out_again() -> None:
    """A registration that raced the drain is undone."""
    replica = a_replica(1, ReplicaState.DRAINING, warned_at=NOW, since_s=3)
    actions = decide(replica, instances=(an_instance(1),), health={1: TargetState.HEALTHY}, wanted=0)
    assert actions == [TakeOut("i-1")]


def test_a_drained_replica_ends_with_its_instance() -> None:
    """DRAINING → TERMINATED once EC2 says that it is gone."""
    replica = a_replica(1, ReplicaState.DRAINING)
    terminated = an_instance(1, InstanceState.TERMINATED)
    assert decide(replica, instances=(terminated,), wanted=0) == [End(replica, "test")]


def test_surplus_is_taken_from_what_serves_least() -> None:
    """Scaling down gives up the replica farthest from serving, then the newest."""
    ready = [a_replica(i, ReplicaState.READY) for i in (1, 2)]
    starting = a_replica(3, ReplicaState.STARTING, since_s=5, entered=RECENTLY)
    actions = decide(
        *ready,
        starting,
        instances=tuple(an_instance(i) for i in (1, 2, 3)),
        health={1: TargetState.HEALTHY, 2: TargetState.HEALTHY, 3: TargetState.INITIAL},
        wanted=1,
    )
    assert [(a.replica.id, a.replace) for a in actions if isinstance(a, Drain)] == [
        (3, False),
        (2, False),
    ]


def test_a_replica_is_acted_upon_once() -> None:
    """One too many that is just becoming ready is drained, no more: a commit writes a row once."""
    kept = [a_replica(i, ReplicaState.READY) for i in (1, 2, 3)]
    extra = a_replica(4, ReplicaState.STARTING)
    there = tuple(an_instance(r.id) for r in (*kept, extra))
    healthy = dict.fromkeys((1, 2, 3, 4), TargetState.HEALTHY)
    assert decide(*kept, extra, instances=there, health=healthy, wanted=3) == [
        Drain(extra, "more replicas than wanted", replace=False)
    ]


def test_launches_are_held_after_replicas_that_never_became_ready() -> None:
    """A service that dies while starting doesn't burn money as fast as it can."""
    held = Backoff(3, NOW + seconds(1), version=1)
    assert decide(wanted=1, backoff=held) == []
    request = Request(1, "fewer replicas than wanted", PurchaseOption.SPOT)
    assert decide(wanted=1, backoff=replace(held, until=NOW)) == [request]
    assert decide(wanted=1, backoff=replace(held, version=7)) == [request]


def test_a_crash_loop_stops_until_there_is_a_new_version() -> None:
    """After five failures in a row nothing is launched, however long it lasts, until a version comes."""
    looping = Backoff(timing.CRASH_LOOP_FAILURES, LONG_AGO, version=1)
    waiting = a_replica(1, ReplicaState.REQUESTED)
    assert decide(waiting, wanted=2, backoff=looping) == []
    request = Request(1, "fewer replicas than wanted", PurchaseOption.SPOT)
    assert decide(wanted=1, backoff=replace(looping, version=0)) == [request]


def test_a_removed_service_ends_without_replacements() -> None:
    """When a stack is destroyed its instances go, and nothing new comes."""
    rows = Rows(3, {1: a_replica(1, ReplicaState.READY), 2: a_replica(2, ReplicaState.REQUESTED)})
    seen = Observation(rows, {"i-1": an_instance(1)})
    actions = reconcile.retire(seen, NOW)
    assert actions == [
        Drain(rows.replicas[1], "service removed", replace=False),
        End(rows.replicas[2], "service removed"),
    ]
    draining = Rows(3, {1: a_replica(1, ReplicaState.DRAINING)})
    (action,) = reconcile.retire(Observation(draining, {"i-1": an_instance(1)}), NOW)
    assert isinstance(action, Terminate)
